"""What an audit looks at and what it finds: parts of a data set with line numbers, findings, and the report as CSV."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from glassformer.utils.atomic_io import atomic_write_chunks

FindingKind = Literal[
    "contradiction",
    "label-leak",
    "split-overlap",
    "label-error",
    "near-duplicate",
    "copied-source",
    "wrong-language",
    "length",
]
"""Kinds in the order of the report: causes before what follows from them."""
KINDS: tuple[str, ...] = FindingKind.__args__  # pyright: ignore[reportAttributeAccessIssue]
LONGEST_CELL = 100_000
"""Characters of a text that the CSV keeps; its reader refuses lines of a million bytes."""
LABEL_COLUMNS = ("file", "line", "kind", "label", "suggested", "score", "text", "other_file", "other_line", "token")
TAG_COLUMNS = (*LABEL_COLUMNS, "word")
PAIR_COLUMNS = ("file", "line", "kind", "score", "source", "target", "other_file", "other_line")


class Place(NamedTuple):
    """A line of a file, counted from 1; of a built-in data set, an example of a part."""

    file: str
    line: int


@dataclass(frozen=True)
class Part:
    """Texts of a part of a data set with their answers, and where each stands.

    `target_file` holds the targets of parallel files; it is `file` where both are in one table. With `pairs` each text
    is a pair.
    """

    name: str
    file: str
    text: list[str]
    answer: list[str]
    lines: Sequence[int]
    target_file: str
    pairs: bool = False

    def __len__(self) -> int:
        return len(self.text)

    def place(self, i: int) -> Place:
        """Return where an example stands."""
        return Place(self.file, int(self.lines[i]))


@dataclass(frozen=True)
class AuditFinding:
    """One line of a report.

    Attributes:
        text: the text, or the source of a pair. target: the target of a pair.
        score: how sure it is: of numbers that differ for equal texts their distance in standard deviations, at most 1;
            of an error the probability that the label is wrong; of near-duplicates the
            share of common character n-grams; of a leak its precision; of pairs see `audit/pairs.py`.
        suggested: another label, where one is suggested.
        other_file, other_line, other_label: the other text of two, and its label.
        token: what leaks a label; the word that a finding about a tag is about.
        numbers: counts that the finding rests on, by name.
    """

    kind: FindingKind
    file: str
    line: int
    text: str
    label: str = ""
    suggested: str = ""
    score: float = 1.0
    other_file: str = ""
    other_line: int = 0
    other_label: str = ""
    target: str = ""
    token: str = ""
    numbers: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class AuditReport:
    """Everything that an audit found.

    Args:
        findings: in the order of `KINDS`, the surest first.
        sizes: examples by part.
        made: kinds that were looked for.
        not_made: kinds that were not, and the reason.
        numbers: what the audit rests on, such as the accuracy of the model that judged the labels.
        notes: messages about how the files were read.
    """

    findings: list[AuditFinding]
    sizes: dict[str, int]
    made: list[str]
    not_made: dict[str, str]
    numbers: dict[str, float]
    notes: list[str]

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of findings of each kind that was looked for."""
        found = Counter(finding.kind for finding in self.findings)
        return {kind: found[kind] for kind in KINDS if kind in self.made}

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return {"counts": self.counts} | asdict(self)


class Checks:
    """Collects the findings of the checks, and which were made."""

    def __init__(self) -> None:
        self.findings: list[AuditFinding] = []
        self.made: list[str] = []
        self.not_made: dict[str, str] = {}
        self.numbers: dict[str, float] = {}

    def add(self, kind: FindingKind, found: list[AuditFinding] | str) -> None:
        """Add the findings of a check, or the reason why it was not made."""
        if isinstance(found, str):
            self.not_made[kind] = found
        else:
            self.made.append(kind)
            self.findings += found

    def report(self, parts: Sequence[Part], notes: list[str]) -> AuditReport:
        """Return the report, its findings in order."""
        file_order = {file: i for i, part in enumerate(parts) for file in (part.target_file, part.file)}

        def order(finding: AuditFinding) -> tuple[int, float, int, int, str]:
            rank = KINDS.index(finding.kind), -finding.score
            return *rank, file_order.get(finding.file, len(file_order)), finding.line, finding.token

        sizes = {part.name: len(part) for part in parts}
        return AuditReport(sorted(self.findings, key=order), sizes, self.made, self.not_made, self.numbers, notes)


def shortened_findings(findings: Sequence[AuditFinding]) -> tuple[list[AuditFinding], int]:
    """Return findings whose texts fit into a cell of the report, and how many were cut."""
    fitting = [replace(f, text=f.text[:LONGEST_CELL], target=f.target[:LONGEST_CELL]) for f in findings]
    return fitting, sum(short != whole for short, whole in zip(fitting, findings, strict=True))


def write_report(path: Path, findings: Sequence[AuditFinding], target: str | None) -> None:
    """Write findings as a CSV with every field in quotes, atomically; `read_table` reads it.

    `target` is what the texts come with, as in `DataSchema`.

    Raises:
        ResourceError: the file cannot be written.
    """
    columns = {"target": PAIR_COLUMNS, "tags": TAG_COLUMNS}.get(target or "", LABEL_COLUMNS)
    atomic_write_chunks(path, _csv_lines(findings, columns))


def is_report(path: Path) -> bool:
    """Return whether a file begins as a report does, so that a new one may replace it."""
    with open(path, "rb") as file:
        first = file.readline(1000)
    return first in (b"", *(_csv_line(columns) for columns in (LABEL_COLUMNS, TAG_COLUMNS, PAIR_COLUMNS)))


def _csv_lines(findings: Sequence[AuditFinding], columns: Sequence[str]) -> Iterator[bytes]:
    yield _csv_line(columns)
    for finding in findings:
        facts = vars(finding) | {"source": finding.text, "score": f"{finding.score:.4f}"}
        facts["word"] = int(finding.numbers["word"]) if "word" in finding.numbers else ""
        facts["other_line"] = facts["other_line"] or ""
        yield _csv_line([safe_cell(str(facts[name])) for name in columns])


def safe_cell(cell: str) -> str:
    """Return a cell that no spreadsheet takes for a formula: one that begins like it gets an apostrophe before it."""
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def _csv_line(cells: Sequence[str]) -> bytes:
    line = io.StringIO()
    csv.writer(line, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(cells)
    return line.getvalue().encode("utf-8", "backslashreplace")
