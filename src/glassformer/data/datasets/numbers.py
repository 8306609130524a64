"""Targets that are numbers: which cells of a table are numbers, which column holds them, and what is wrong with others.

A number is written with a decimal point: 3, -0.5, 1e6. What might be read in two ways, such as 1,5, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from glassformer.data.datasets.labels import normalised_label

LARGEST = 1e300
"""Numbers beyond it are refused: their sums and differences would be infinite."""
QUANTILES = {"min": 0.0, "q25": 0.25, "median": 0.5, "q75": 0.75, "max": 1.0}
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def is_number(cell: str) -> bool:
    """Return whether a cell, without spaces and invisible characters around it, is a number that can be a target."""
    return not why_no_number(normalised_label(cell))


def why_no_number(cell: str) -> str:
    """Return what is wrong with the cell of a number, as a sentence; "" if nothing is."""
    if not cell:
        return "the number is empty"
    if not _NUMBER.fullmatch(cell):
        comma = "," in cell and set(cell) <= set("0123456789.,+-")
        hint = "; write it with a decimal point and without a comma" if comma else ""
        return f"{cell[:40]!r} is not a number{hint}"
    return "" if abs(float(cell)) <= LARGEST else f"{cell[:40]!r} is beyond {LARGEST:g} in size"


def summary(cells: Sequence[str]) -> dict[str, float]:
    """Return mean, standard deviation and `QUANTILES` of the cells that are numbers; nothing where there are none."""
    numbers = np.array([float(cell) for cell in cells if is_number(cell)])
    if not len(numbers):
        return {}
    mean, sd = mean_and_sd(numbers)
    quantiles = zip(QUANTILES, np.quantile(numbers, [*QUANTILES.values()]).tolist(), strict=True)
    return {"mean": mean, "sd": sd, **dict(quantiles)}


def mean_and_sd(numbers: np.ndarray) -> tuple[float, float]:
    """Return mean and standard deviation, of numbers of any size: no square of theirs overflows."""
    unit = float(np.abs(numbers).max()) or 1.0
    scaled = numbers / unit
    return float(scaled.mean()) * unit, float(scaled.std()) * unit
