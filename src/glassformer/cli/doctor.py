"""`glassformer doctor`: what this machine offers, or what stands out in a run, with what to try."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from glassformer.cli.flags import Command, Result, run_folder
from glassformer.errors import UsageError
from glassformer.report.findings import EXAMINED, RULES, Checkup, diagnose
from glassformer.report.run_record import load_run_record
from glassformer.runs.folder import RunFolder
from glassformer.utils import console
from glassformer.utils.formatting import counted


class Doctor(Command):
    """Report on this machine, or on a run: NaN, overfitting and more."""

    usage: ClassVar = "doctor [RUN]"
    example: ClassVar = "doctor runs/imdb"
    examine: bool = False
    """Load its weights too, and look at attention, units and the first loss, on up to 128 validation texts."""

    def run(self) -> Iterator[Result]:
        if self.words:
            checkup = self.of_run(path := run_folder(self.words[0]))
            yield {"run": str(path)} | asdict(checkup), _in_words(checkup)
        elif self.examine:
            raise UsageError("no run is named to examine", "as in: glassformer doctor runs/imdb --examine")
        else:
            yield (facts := machine()), console.lines_of({"here": facts})

    def of_run(self, path: Path) -> Checkup:
        """Return what the folder shows, where it is more than a model, and what the weights, if asked for."""
        if not RunFolder(path).resumable:
            return Checkup(not_made=dict.fromkeys((*RULES, *EXAMINED), "no log is here, only a model"))
        found = diagnose(record := load_run_record(path, damaged_log=True))
        if self.examine:
            from glassformer.training.examine import examine

            return found + examine(record)
        return found + Checkup(not_made=dict.fromkeys(EXAMINED, "needs the weights: --examine"))


def _in_words(checkup: Checkup) -> Iterator[str]:
    """Yield findings, how many checks were made, and why others were not."""
    for finding in checkup.findings:
        yield f"{finding.grade.upper()}  {finding.place}: {finding.matter}"
        if finding.remedy:
            yield f"    try: {finding.remedy}"
    if checkup.made:
        yield counted(len(checkup.made), "checks") + ("" if checkup.findings else ", nothing stands out")
    for reason in dict.fromkeys(checkup.not_made.values()):
        names = [name for name, why in checkup.not_made.items() if why == reason]
        yield f"not made: {', '.join(names)} ({reason})"


def machine() -> dict[str, Any]:
    """Return versions, device, threads and the folder of downloads."""
    from glassformer.data.download import cache_dir
    from glassformer.training.preparation import describe_machine
    from glassformer.utils.device import choose_device

    facts, cache = describe_machine(choose_device("auto")), cache_dir()
    existing = next(folder for folder in (cache, *cache.parents) if folder.exists())
    writable = existing.is_dir() and os.access(existing, os.W_OK)
    kept = f"{cache} ({'writable' if writable else 'NOT writable: set GLASSFORMER_CACHE'})"
    return facts.pop("versions") | facts | {"cache": kept}
