"""`glassformer data`: check, audit and show the data of a recipe before training."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from glassformer.cli import flags
from glassformer.config import Config
from glassformer.config.recipes import load_recipe
from glassformer.errors import DataError, UsageError
from glassformer.utils import console
from glassformer.utils.formatting import counted, shortened

logger = logging.getLogger(__name__)

MOST_ALIKE = 5
"""Lines with the same problem that are printed of a file; the others are counted."""
N_SHOWN = 3
"""Examples that `data show` prints of each split, and findings that `data audit` prints of each kind."""
SHOWN_CHARS = 100


@dataclass(frozen=True)
class DataArguments:
    """Check own files (data check classify --train-file …), audit them, or show what is read (data show imdb).

    The word after check, audit or show is a recipe: classify, translate, lm, pretrain, multilabel, regress or tag for
    files of your own. `data audit` looks for faults that training does not stop at: label errors, equal texts with
    different answers, near-duplicates, words that give a label away; its exit code is 0 whatever it finds.
    """

    usage: ClassVar = "data check|audit|show RECIPE"
    example: ClassVar = "data check classify --train-file a.csv"
    sections: ClassVar = ("data",)
    json: bool = False
    """Print one JSON object."""
    out: str | None = None
    """With audit: a new CSV of all findings, with file and line (.csv)."""
    texts: bool = False
    """With show: print all texts and nothing else, one a line, as predict reads them."""


def run_data(given: flags.Given[DataArguments]) -> int:
    """Run `glassformer data`."""
    if len(given.words) < 2:  # its help is wanted
        given.arguments()
    what, recipe = given.words
    if what not in ("check", "audit", "show"):
        raise UsageError(f"data takes check, audit or show, not {what!r}", f"as in: glassformer {given.cls.example}")
    arguments, config = given.for_recipe(load_recipe(recipe))
    if arguments.out is not None and what != "audit":
        raise UsageError(f"data {what} writes no file, and --out names {arguments.out}", "leave it out")
    if what == "audit":
        return _audit(config, arguments)
    return _check(config, arguments.json) if what == "check" else _show(config, arguments)


def _check(config: Config, as_json: bool) -> int:
    """Print all problems with file and line; return exit code 3 if one of them is an error."""
    from glassformer.data.check import check_data
    from glassformer.tasks import task_class

    report = check_data(task_class(config.task).schema, config.data)
    if as_json:
        console.write_json({"ok": report.ok} | asdict(report))
        return 0 if report.ok else DataError.exit_code
    for note in report.notes:
        logger.info(note)
    alike = Counter((problem.path, problem.message) for problem in report.errors)
    shown: Counter[tuple[str, str]] = Counter()
    for problem in report.errors:
        kind = problem.path, problem.message
        shown[kind] += 1
        if shown[kind] <= MOST_ALIKE:
            console.write(str(problem))
        elif shown[kind] == alike[kind]:
            console.write(
                f"… and {counted(alike[kind] - MOST_ALIKE, 'lines')} more of {problem.path}: {problem.message}"
            )
    if report.n_errors > len(report.errors):
        console.write(f"… and {report.n_errors - len(report.errors):,} more")
    found = {f"examples in {part}": size for part, size in report.sizes.items()} | report.counts
    console.write_table(("found", "count"), list(found.items()))
    if not report.ok:
        raise DataError(
            f"{counted(report.n_errors, 'problems')} to mend before training", "each is listed above with its file"
        )
    for finding in report.findings:
        logger.warning(str(finding))
    logger.info("nothing stands in the way of training")
    return 0


def _audit(config: Config, arguments: DataArguments) -> int:
    """Print the first findings of each kind, their number, and what to do about them; write all as a CSV."""
    if (out := arguments.out) is not None and os.path.lexists(out):
        raise UsageError(f"{out} exists, and the report is a new CSV", "name a new file, or remove this one")
    if out is not None and Path(out).suffix.lower() != ".csv":
        raise UsageError(f"the report is a new CSV, and --out names {out}", "as in: --out report.csv")
    if config.data.limit is not None:
        raise UsageError("an audit reads all examples, and --limit would leave some out", "leave it out")
    from glassformer.evaluate.audit import CHECKS, audit_data, write_report
    from glassformer.tasks import task_class

    report = audit_data(task_class(config.task).schema, config.data)
    if out is not None:
        write_report(Path(out), report.findings)
    if arguments.json:
        console.write_json({"task": config.task} | asdict(report))
        return 0
    for note in report.notes:
        logger.info(note)
    rows = [
        (kind, found.place, f"{found.score:.2f}", found.matter, shortened(found.text, SHOWN_CHARS))
        for kind in report.counts
        for found in [found for found in report.findings if found.kind == kind][:N_SHOWN]
    ]
    if rows:
        console.write_table(("kind", "place", "score", "matter", "text"), rows)
        console.write("")
    advice = {check.kind: check.advice for check in CHECKS} | report.not_made
    counts = report.counts | dict.fromkeys(report.not_made, "not made")
    console.write_table(("found", "count", "what to do"), [(kind, n, advice[kind]) for kind, n in counts.items()])
    logger.info(f"{counted(len(report.findings), 'findings')}{f' written: {out}' if out else ''}")
    return 0


def _show(config: Config, arguments: DataArguments) -> int:
    """Print sizes and first examples of each split; download a built-in data set if it is missing."""
    from glassformer.data.datasets.labels import labels_of
    from glassformer.data.datasets.local_files import load_text_data
    from glassformer.tasks import task_class

    kind = task_class(config.task)
    data = load_text_data(kind.schema, config.data)
    for note in [*data.notes, *data.findings]:
        logger.info(note)
    splits = data.splits()
    if arguments.texts:
        for split in splits.values():
            for text in split.text:
                console.write(re.sub(r"\r\n|\r|\n", " ", text))
        return 0
    sizes = {name: {"n": len(split), "source": split.source} for name, split in splits.items()}
    if arguments.json:
        classes = kind.classes_of(data.train)
        facts = {"task": config.task, "splits": sizes, "label_names": classes, "hashes": data.hashes}
        console.write_json(facts)
        return 0
    rows = [(name, f"{size['n']:,}", size["source"]) for name, size in sizes.items()]
    console.write_table(("split", "examples", "source"), rows)
    rows = []
    for name, split in splits.items():
        answers = (split.answer or [""] * N_SHOWN)[:N_SHOWN]
        if kind.schema.target == "label":
            answers = ["; ".join(labels_of(answer)) for answer in answers]
        elif kind.schema.target == "tags":
            answers = [" ".join(labels_of(answer)) for answer in answers]
        pairs = zip(split.text[:N_SHOWN], answers, strict=False)
        rows += [(name, *(shortened(text, SHOWN_CHARS) for text in pair)) for pair in pairs]
    console.write("")
    console.write_table(("split", "text", "answer"), rows)
    return 0
