"""Targets that are numbers: which cells of a table are numbers, which column holds them, and what is wrong with others.

A number is written with a decimal point: 3, -0.5, 1e6. What might be read in two ways, such as 1,5, is refused.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from glassformer.data.datasets.labels import NUMBER, normalised_label
from glassformer.data.diagnostics import Diagnostics

LARGEST = 1e300
"""Numbers beyond it are refused: their sums and differences would be infinite."""


def is_number(cell: str) -> bool:
    """Return whether a cell, without spaces and invisible characters around it, is a number that can be a target."""
    return not why_no_number(normalised_label(cell))


def why_no_number(cell: str) -> str:
    """Return what is wrong with the cell of a number, as a sentence; "" if nothing is."""
    if not cell:
        return "the number is empty"
    if not NUMBER.fullmatch(cell):
        comma = "," in cell and set(cell) <= set("0123456789.,+-")
        hint = "; write it with a decimal point and without a comma" if comma else ""
        return f"{cell[:40]!r} is not a number{hint}"
    return "" if abs(float(cell)) <= LARGEST else f"{cell[:40]!r} is beyond {LARGEST:g} in size"


def clean_numbers(
    path: Path, lines: Sequence[int], cells: Sequence[str], separator: str, diagnostics: Diagnostics
) -> list[str]:
    """Return the numbers without spaces and invisible characters around them; report those of one form in one line.

    What differs in its digits alone is of one form: 1,5 and 2,25, or 5% and 70%.
    """
    cells, forms = [normalised_label(cell) for cell in cells], defaultdict[str, list[int]](list)
    for i, cell in enumerate(cells):
        if why_no_number(cell) and re.search(r"\d", cell):
            forms[re.sub(r"\d+", "0", cell)].append(i)
    for first, *others in forms.values():
        more = f" (and {len(others):,} more of this form)" if others else ""
        diagnostics.error(path, lines[first], "label", f"{why_no_number(cells[first])}{more}")
        for i in (first, *others):  # no line for each of them
            cells[i] = "0"
    return cells


def mean_and_sd(numbers: np.ndarray) -> tuple[float, float]:
    """Return mean and standard deviation, of numbers of any size: no square of theirs overflows."""
    unit = float(np.abs(numbers).max()) or 1.0
    scaled = numbers / unit
    return float(scaled.mean()) * unit, float(scaled.std()) * unit
