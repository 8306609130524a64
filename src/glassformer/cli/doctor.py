"""`glassformer doctor`: what this machine offers, or what stands out in a run, with what to try."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from glassformer.cli import flags
from glassformer.cli.folders import run_folder
from glassformer.errors import UsageError
from glassformer.report.findings import EXAMINED, RULES, Checkup, diagnose
from glassformer.report.run_record import load_run_record
from glassformer.runs.folder import RunFolder
from glassformer.utils import console
from glassformer.utils.formatting import counted


@dataclass(frozen=True)
class DoctorArguments:
    """Report on this machine, or on a run: NaN, overfitting and more."""

    usage: ClassVar = "doctor [RUN]"
    example: ClassVar = "doctor runs/imdb"
    json: bool = False
    """Print one JSON object."""
    examine: bool = False
    """Load its weights too, and look at attention, units and the first loss, on up to 128 validation texts."""


def run_doctor(given: flags.Given[DoctorArguments]) -> None:
    """Run `glassformer doctor`."""
    arguments = given.arguments()
    if given.words:
        path = run_folder(given.words[0])
        write(_of_run(path, arguments), arguments.json, path)
    elif arguments.examine:
        raise UsageError("no run is named to examine", "as in: glassformer doctor runs/imdb --examine")
    elif arguments.json:
        console.write_json(machine())
    else:
        console.write_table(("what", "here"), list(machine().items()))


def _of_run(path: Path, arguments: DoctorArguments) -> Checkup:
    """Return what the folder shows, where it is more than a model, and what the weights, where that is asked for."""
    found = Checkup(not_made=dict.fromkeys(RULES, "no log is here, only a model"))
    reason, record = "needs the weights: --examine", None
    if RunFolder(path).resumable:
        record = load_run_record(path, damaged_log=True)
        found = diagnose(record)
    if arguments.examine:
        from glassformer.cli.examine import examine

        if record is not None:
            return found + examine(record)
        reason = "the model was not trained here, so there is no log to compare with"
    return found + Checkup(not_made=dict.fromkeys(EXAMINED, reason))


def write(checkup: Checkup, as_json: bool, path: Path) -> None:
    """Print findings, how many checks were made, and why others were not."""
    if as_json:
        found = [asdict(finding) for finding in checkup.findings]
        console.write_json({"run": str(path), "diagnostics": found, "made": checkup.made, "not_made": checkup.not_made})
        return
    for finding in checkup.findings:
        console.write(f"{finding.grade.upper()}  {finding.place}: {finding.matter}")
        if finding.remedy:
            console.write(f"    try: {finding.remedy}")
    if checkup.made:
        rest = "" if checkup.findings else ", nothing stands out"
        console.write(f"{counted(len(checkup.made), 'checks')}{rest}")
    reasons = defaultdict[str, list[str]](list)
    for name, reason in checkup.not_made.items():
        reasons[reason].append(name)
    for reason, names in reasons.items():
        console.write(f"not made: {', '.join(names)} ({reason})")


def machine() -> dict[str, Any]:
    """Return versions, device, threads and the folder of downloads."""
    from glassformer.data.download import cache_dir
    from glassformer.training.preflight import describe_machine
    from glassformer.utils.device import choose_device

    facts, cache = describe_machine(choose_device("auto")), cache_dir()
    existing = next(folder for folder in (cache, *cache.parents) if folder.exists())
    writable = existing.is_dir() and os.access(existing, os.W_OK)
    kept = f"{cache} ({'writable' if writable else 'NOT writable: set GLASSFORMER_CACHE'})"
    return facts.pop("versions") | facts | {"cache": kept}
