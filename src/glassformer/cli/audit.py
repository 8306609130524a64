"""`glassformer data audit`: faults of data that training does not stop at, with file and line."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from glassformer.cli import flags
from glassformer.config import FilesConfig
from glassformer.config.recipes import load_recipe
from glassformer.errors import UsageError
from glassformer.utils import console
from glassformer.utils.formatting import counted, percent, shortened

if TYPE_CHECKING:
    from glassformer.evaluate.audit.audit import Vectors
    from glassformer.evaluate.audit.findings import AuditFinding, AuditReport

logger = logging.getLogger(__name__)

USAGE = "data audit classify --train-file a.csv"
N_SHOWN = 5
"""Findings of a kind that are printed; the report has all."""
SHOWN_CHARS = 60


@dataclass(frozen=True)
class AuditArguments:
    """Look for faults of texts with answers (data audit classify --train-file …) or of pairs (data audit translate …).

    Of labels, tags and numbers: probable errors, equal texts with different answers, near-duplicates within and across
    parts, words that give a label away. Of pairs: shifted lines, copied sources, the other side's language, odd
    lengths. The exit code is 0 whatever is found.
    """

    sections: ClassVar = ("data",)
    placeholders: ClassVar = {"out": "FILE", "run": "RUN"}
    out: str | None = None
    """CSV of all findings to go through, with file and line (.csv)."""
    run: str | None = None
    """Run whose pooled vectors judge labels or numbers, such as an imported encoder; if absent, TF-IDF of words."""
    json: bool = False
    """Print one JSON object."""


def run(argv: Sequence[str]) -> int:
    """Run the command with the arguments after its name."""
    words, flag_args = flags.split_words(AuditArguments, argv, "data audit")
    if "--help" in flag_args and not words:
        flags.parse(AuditArguments, flag_args, "data audit RECIPE")
    base = load_recipe(flags.one_word(words, "recipe", USAGE))
    arguments, config = flags.parse_for_recipe(AuditArguments, flag_args, base, f"data audit {base.recipe}")
    out = _report_path(arguments.out, config.data.files)
    if config.data.limit is not None and config.data.dataset == "files":
        raise UsageError("an audit reads all examples, and --limit would leave some out", "leave it out")
    from glassformer.evaluate.audit.audit import audit_data
    from glassformer.evaluate.audit.findings import shortened_findings, write_report
    from glassformer.tasks import task_class

    schema = task_class(config.task).schema
    vectors = _vectors(arguments.run, schema.target) if arguments.run else None
    report = audit_data(schema, config.data, vectors)
    if out is not None:
        findings, n_cut = shortened_findings(report.findings)
        write_report(out, findings, schema.target)
        if n_cut:
            logger.warning(f"{counted(n_cut, 'long texts')} cut in {out}")
    if arguments.json:
        console.write_json({"task": config.task, "out": arguments.out} | report.to_json())
        return 0
    _write(report, out, "tags" if schema.target == "tags" else "labels")
    return 0


def _report_path(out: str | None, files: FilesConfig) -> Path | None:
    """Return where the report goes; raise UsageError before any work if it cannot go there."""
    if out is None:
        return None
    path = Path(out)
    if path.suffix.lower() != ".csv":
        raise UsageError(f"the report is a CSV, and --out names {out}", "as in: --out report.csv")
    if path.is_dir():
        raise UsageError(f"{out} is a folder", "name a file: --out report.csv")
    if path.exists() and any(file and Path(file).exists() and path.samefile(file) for file in astuple(files)):
        raise UsageError(f"{out} is the data itself, which the report would replace", "name another file")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise UsageError(f"{out} is a link or a pipe, which the report would replace", "name a file: --out report.csv")
    from glassformer.evaluate.audit.findings import is_report

    if path.is_file() and not is_report(path):
        raise UsageError(f"{out} exists and is no report of an audit, so it is kept", "name another file")
    return path


def _vectors(word: str, target: str | None) -> Vectors:
    """Return a function that gives the pooled vectors of a run."""
    if target != "label":
        what = {"tags": "tags belong to words", "number": "numbers are not judged"}.get(target or "", "pairs have none")
        raise UsageError(f"--run judges labels of texts, and {what}", "leave it out")
    from glassformer.api import load
    from glassformer.tasks.base import pooled_vectors

    loaded = load(flags.run_folder(word))
    return lambda texts: pooled_vectors(loaded.task, loaded.model, texts)


def _write(report: AuditReport, out: Path | None, answers: str) -> None:
    """Print the first findings of each kind, the counts, and what the list of labels rests on."""
    for note in report.notes:
        logger.info(note)
    rows = []
    for kind, n in report.counts.items():
        of_kind = (finding for finding in report.findings if finding.kind == kind)
        rows += [_row(finding) for finding in islice(of_kind, N_SHOWN)]
        if n > N_SHOWN:
            rows.append((kind, f"… and {n - N_SHOWN:,} more", "", "", ""))
    if rows:
        console.write_table(("kind", "place", "score", "text", "what"), rows)
        console.write("")
    console.write_table(("found", "count"), [(kind, f"{n:,}") for kind, n in report.counts.items()])
    for kind, reason in report.not_made.items():
        console.write(f"not made: {kind} ({reason})")
    if judge := _judge(report.numbers, answers):
        console.write(judge)
    if out is not None:
        logger.info(f"written: {out}, {counted(len(report.findings), 'findings')}")
    elif report.findings:
        logger.info("--out report.csv writes all of them")


def _judge(numbers: Mapping[str, float], answers: str) -> str:
    """Return how well the model that judges the answers agrees with them; "" where none did."""
    least = percent(numbers.get("most_frequent", 0.0))
    if "micro_f1" in numbers:
        agrees = percent(numbers["micro_f1"])
        return f"labels are judged by a model with a micro F1 of {agrees} on them; the most frequent alone: {least}"
    if "accuracy" not in numbers:
        return ""
    agrees = percent(numbers["accuracy"])
    return f"{answers} are judged by a model that agrees with {agrees} of them; always the most frequent: {least}"


def _row(finding: AuditFinding) -> tuple[str, str, str, str, str]:
    """Return a row of the table."""
    text = shortened(finding.text, SHOWN_CHARS)
    return finding.kind, f"{finding.file}:{finding.line}", f"{finding.score:.2f}", text, _what(finding)


def _what(finding: AuditFinding) -> str:
    """Return what is odd about a finding, in a few words."""
    numbers, other = finding.numbers, f"{finding.other_file}:{finding.other_line}"
    change = f"{finding.label} → {finding.suggested}" if finding.suggested else finding.label
    change = _place_of(finding) + change
    match finding.kind:
        case "label-error":
            return change
        case "label-leak":
            n, of, label = (int(numbers[name]) for name in ("with_both", "with_token", "with_label"))
            return f"{finding.token!r}: {n:,} of {of:,} texts with it, and of {label:,} with {finding.label}"
        case "contradiction" | "near-duplicate" | "split-overlap":
            label = f"{_place_of(finding)}{finding.label}, " if finding.label else ""
            same = finding.label == finding.other_label
            return f"{label}as {other}" if same else f"{label}but {finding.other_label} at {other}"
        case _:
            return shortened(finding.target, SHOWN_CHARS)


def _place_of(finding: AuditFinding) -> str:
    """Return which word of a sentence a finding is about; "" for one about a text."""
    return f"word {finding.numbers['word']:.0f}, {finding.token!r}: " if "word" in finding.numbers else ""
