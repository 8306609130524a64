"""Every method of an explanation and every request of the page, for every family in every case: it answers or refuses.

A refusal is a `UsageError` with a sentence, and is among those expected (`tests/helpers/matrix.py`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest
from tests.helpers.matrix import (
    CALLS,
    CASES,
    EXPORTED_ANSWERS,
    FAMILIES,
    LONG_IN_SLOW,
    NO_CELL,
    Cell,
    calls,
    expected_refusal,
    exported_call,
    make_cell,
    make_exported,
)

from glassformer.api import Run
from glassformer.errors import UsageError
from glassformer.explain.explanation import Explanation
from glassformer.explain.explanation_data import ExplanationData
from glassformer.explain.figures.explanation_plots import ExplanationPlots
from glassformer.explain.page.service import Service

counts: Counter[str] = Counter()


def public_names(kind: type) -> set[str]:
    """Return the methods and properties of a class that are not fields of its data."""
    data = {f.name for f in fields(ExplanationData)} if issubclass(kind, ExplanationData) else set()
    return {name for name in dir(kind) if not name.startswith("_") or name == "_repr_mimebundle_"} - data


@pytest.mark.parametrize(
    ("of", "kind"), [("Explanation", Explanation), ("plot", ExplanationPlots), ("Service", Service), ("Run", Run)]
)
def test_every_method_has_a_cell(of: str, kind: type) -> None:
    """A method that is added without a call here fails."""
    called = {name.partition(":")[0] for name in CALLS[of]}
    assert public_names(kind) - (NO_CELL if of == "Run" else set()) == called


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_cell_answers_or_refuses(family: str, case: str, tmp_path: Path) -> None:
    skipped = LONG_IN_SLOW if case == "long" else set()
    try_calls(make_cell(FAMILIES[family], case, tmp_path), {f"{of}.{name}" for of, name, _ in calls()} - skipped)
    counts["in the slow test"] += len(skipped)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_long_text_answers_or_refuses(family: str, tmp_path: Path) -> None:
    try_calls(make_cell(FAMILIES[family], "long", tmp_path), LONG_IN_SLOW)


def try_calls(cell: Cell, names: set[str]) -> None:
    """Make calls of a cell, and compare what is refused with what is expected."""
    wrong = []
    for of, name, call in calls():
        if f"{of}.{name}" not in names:
            continue
        expected = expected_refusal(of, name, cell)
        try:
            call(cell)
            counts["answered"] += 1
            if expected is not None:
                wrong.append(f"{of}.{name} answered, but {expected!r} was expected")
        except UsageError as error:
            counts["refused"] += 1
            if expected is None or expected not in error.message:
                wrong.append(f"{of}.{name} refused: {error.message}")
        except Exception as error:
            wrong.append(f"{of}.{name}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


def test_every_cell_was_tried(request: pytest.FixtureRequest) -> None:
    if len([item for item in request.session.items if "test_a_cell_answers_or_refuses" in item.nodeid]) < 20:
        pytest.skip("only some cells were chosen")
    n_cells = len(FAMILIES) * len(CASES) * len(list(calls()))
    print(f"{n_cells} cells: {counts['answered']} answered, {counts['refused']} refused")
    if hasattr(request.config, "workerinput"):
        return  # each worker has tried some
    assert counts["answered"] + counts["refused"] + counts["in the slow test"] == n_cells
