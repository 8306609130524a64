"""Figures and tables: medians with their ranges, markdown, and a table's place between two markers of a file."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from benchmarks.speed.load import MOST_OTHERS


@dataclass(frozen=True)
class Figure:
    """One quantity, measured several times."""

    values: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def text(self, digits: int = 3) -> str:
        """Return the median, and minimum and maximum in brackets."""
        low, high = min(self.values), max(self.values)
        middle = rounded(self.median, digits)
        return middle if len(self.values) == 1 else f"{middle} ({rounded(low, digits)}–{rounded(high, digits)})"


@dataclass
class Section:
    """One table of the page.

    Args:
        title: its heading.
        columns: of the table.
        rows: their cells.
        facts: everything measured, for the JSON file.
        notes: sentences below it.
        summary: lines of the short table: work, glassformer, the best row of another, how they compare.
        part: which one it is. machine, date: where and when it was measured.
    """

    title: str
    columns: tuple[str, ...]
    rows: list[list[str]] = field(default_factory=list)
    facts: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    summary: list[tuple[str, str, str, str]] = field(default_factory=list)
    part: str = ""
    machine: str = ""
    date: str = ""

    def markdown(self) -> str:
        """Return heading, table and notes."""
        lines = [f"**{self.title}**", "", _line(self.columns), _line(["---"] * len(self.columns))]
        lines += [_line(row) for row in self.rows]
        where = [f"Measured on {self.date}: {self.machine}"] if self.machine else []
        lines += [line for note in [*self.notes, *where] for line in ("", note)]
        return "\n".join(lines)


def machine() -> str:
    """Return processor, cores and versions."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{os.cpu_count()} cores of {name}; Python {platform.python_version()}, torch {torch.__version__}."


def merged(earlier: Sequence[Section], now: Sequence[Section]) -> list[Section]:
    """Merge new sections into earlier ones, in the order of the parts."""
    found = {section.part: section for section in (*earlier, *now)}
    return [found[part] for part in sorted(found)]


def short_table(sections: Sequence[Section]) -> str:
    """Return the summaries of sections as one table."""
    lines = [("work", "glassformer", "best other", ""), ("---",) * 4]
    return "\n".join(map(_line, [*lines, *(line for section in sections for line in section.summary)]))


def rounded(value: float, digits: int = 3) -> str:
    """Return a number with `digits` significant digits and thousands separated: 17,800; 4.12; 0.0713."""
    if value == 0:
        return "0"
    text = f"{float(f'{value:.{digits}g}'):,.10f}".rstrip("0").rstrip(".")
    whole = text.split(".")[0].lstrip("-").replace(",", "")
    missing = digits - len(whole) - (len(text.split(".")[1]) if "." in text else 0)
    if whole != "0" and missing > 0:
        text += ("" if "." in text else ".") + "0" * missing
    return text


def busy(others: Sequence[float], anyway: bool) -> tuple[bool, str]:
    """Return whether a row may be shown, and a remark, by the cores that others used during its rounds."""
    if (cores := statistics.median(others)) <= MOST_OTHERS:
        return True, ""
    remark = f"busy: others took {cores:.2f} cores"
    return anyway, remark if anyway else f"{remark}; not shown (--anyway shows it)"


def write_between(path: Path, name: str, text: str) -> None:
    """Replace what stands between `<!-- NAME -->` and `<!-- /NAME -->` in a file.

    Raises:
        ValueError: the file has not both markers, in this order.
    """
    page, begin, end = path.read_text(encoding="utf-8"), f"<!-- {name} -->", f"<!-- /{name} -->"
    before, found, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found and found_end):
        raise ValueError(f"{path}: a line {begin} and below it a line {end} are needed for the table")
    path.write_text(f"{before}{begin}\n{text.strip()}\n{end}{after}", encoding="utf-8")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
