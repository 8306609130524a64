"""`glassformer data` and `doctor`: look at the data of a recipe before training, at this machine, or at a run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from glassformer.cli.explain import check_suffix
from glassformer.cli.flags import Command, Result, run_folder
from glassformer.config import Config
from glassformer.config.recipes import load_recipe
from glassformer.errors import DataError, UsageError
from glassformer.report.findings import EXAMINED, RULES, Checkup, diagnose
from glassformer.report.run_record import load_run_record
from glassformer.runs.folder import RunFolder
from glassformer.utils import console
from glassformer.utils.formatting import counted, shortened

logger = logging.getLogger(__name__)

N_SHOWN = 3
"""Examples that `data show` prints of each split, and findings that `data audit` prints of each kind."""
SHOWN_CHARS = 100


class Data(Command):
    """Check own files (data check classify --train-file …), audit them, or show what is read (data show imdb).

    The word after check, audit or show is a recipe: classify, translate, lm, pretrain, multilabel, regress or tag for
    files of your own. `data audit` looks for faults that training does not stop at: label errors, equal texts with
    different answers, near-duplicates, words that give a label away; its exit code is 0 whatever it finds.
    """

    usage: ClassVar = "data check|audit|show RECIPE"
    example: ClassVar = "data check classify --train-file a.csv"
    sections: ClassVar = ("data",)
    out: str | None = None
    """With audit: a new CSV of all findings, with file and line (.csv)."""

    @classmethod
    def base_of(cls, words: Sequence[str]) -> Config | None:
        return load_recipe(words[1]) if len(words) > 1 else None

    def run(self) -> Iterator[Result]:
        from glassformer.tasks import task_class

        do = {"check": _check, "audit": _audit, "show": _show}.get(what := self.words[0])
        if do is None:
            raise UsageError(f"data takes check, audit or show, not {what!r}", f"as in: glassformer {self.example}")
        if self.out is not None and what != "audit":
            raise UsageError(f"data {what} writes no file, and --out names {self.out}", "leave it out")
        config = self.laid_over(self.base or Config())
        yield from do(task_class(config.task), config, self)


def _check(kind: Any, config: Config, command: Data) -> Iterator[Result]:
    """Yield all problems with file and line; the exit code is 3 if there is one."""
    from glassformer.data.check import check_data

    report = check_data(kind.schema, config.data)
    text = [*map(str, report.errors), *(f"… and {n:,} more: {place}" for place, n in report.more.items())]
    sizes = {f"examples in {part}": size for part, size in report.sizes.items()}
    text += console.lines_of({"found": sizes | report.counts | {"problems": report.n_errors}})
    yield {"ok": report.ok} | asdict(report), text
    for note in report.notes:
        logger.info(note)
    for finding in report.findings:
        logger.warning(str(finding))
    if not report.ok:
        logger.warning(f"{counted(report.n_errors, 'problems')} to mend before training, listed above with their files")
        raise SystemExit(DataError.exit_code)
    logger.info("nothing stands in the way of training")


def _audit(kind: Any, config: Config, command: Data) -> Iterator[Result]:
    """Yield the first findings of each kind, their number, and what to do about them; write all as a CSV."""
    check_suffix(out := command.out, (".csv",))
    if config.data.limit is not None:
        raise UsageError("an audit reads all examples, and --limit would leave some out", "leave it out")
    from glassformer.evaluate.audit import CHECKS, audit_data, write_report

    report = audit_data(kind.schema, config.data)
    if out is not None:
        write_report(Path(out), report.findings)
    rows = [
        {"kind": kind, "place": found.place, "score": f"{found.score:.2f}", "matter": found.matter}
        | {"text": shortened(found.text, SHOWN_CHARS)}
        for kind in report.counts
        for found in [found for found in report.findings if found.kind == kind][:N_SHOWN]
    ]
    advice = {check.kind: check.advice for check in CHECKS} | report.not_made
    counts = report.counts | dict.fromkeys(report.not_made, "not made")
    found = [{"found": kind, "count": n, "what to do": advice[kind]} for kind, n in counts.items()]
    yield {"task": config.task} | asdict(report), console.lines_of({"findings": rows, "found": found})
    for note in report.notes:
        logger.info(note)
    logger.info(f"{counted(len(report.findings), 'findings')}{f' written: {out}' if out else ''}")


def _show(kind: Any, config: Config, command: Data) -> Iterator[Result]:
    """Yield sizes and first examples of each split; download a built-in data set if it is missing."""
    from glassformer.data.datasets.local_files import load_text_data

    data = load_text_data(kind.schema, config.data)
    for note in [*data.notes, *data.findings]:
        logger.info(note)
    splits = data.splits()
    sizes = [{"split": name, "n": len(split), "source": split.source} for name, split in splits.items()]
    facts = {"task": config.task, "splits": sizes, "label_names": kind.classes_of(data.train), "hashes": data.hashes}
    examples = [
        {"split": name, "text": shortened(text, SHOWN_CHARS), "answer": shortened(answer, SHOWN_CHARS)}
        for name, split in splits.items()
        for text, answer in zip(split.text[:N_SHOWN], split.answer or [""] * N_SHOWN, strict=False)
    ]
    yield (facts, console.lines_of({"splits": sizes, "examples": examples}))


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

    facts = describe_machine(choose_device("auto"))
    return facts.pop("versions") | facts | {"cache": str(cache_dir())}
