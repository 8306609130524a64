"""Every method of an explanation and every request of the page, for every family in every case: it answers or refuses.

A refusal is a `UsageError` with a sentence, and is among those expected (`tests/helpers/matrix.py`).
Of an exported model nothing is explained. All cells are tried in the slow test, a part of each in the fast one.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.for_each import for_each
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

from glassformer.cli.main import main
from glassformer.errors import UsageError
from glassformer.explain.explanation import Explanation
from glassformer.explain.figures import ExplanationPlots
from glassformer.explain.page.manifest import manifest
from glassformer.explain.page.service import Service
from glassformer.run import Run


def public_names(kind: type) -> set[str]:
    """Return the methods and properties of a class that are not fields of its data."""
    data = {f.name for f in fields(Explanation)} if kind is Explanation else set()
    return {name for name in dir(kind) if not name.startswith("_")} - data


@for_each(
    ("of", "kind"), [("Explanation", Explanation), ("plot", ExplanationPlots), ("Service", Service), ("Run", Run)]
)
def test_every_method_has_a_cell(of: str, kind: type) -> None:
    """A method that is added without a call here fails."""
    called = {name.partition(":")[0] for name in CALLS[of]}
    assert public_names(kind) - NO_CELL.get(of, set()) == called


ALL = [f"{of}.{name}" for of, name, _ in calls()]
CELLS = [(family, case) for family in FAMILIES for case in CASES]
PARTS = len(CASES)


@pytest.mark.parametrize(("family", "case"), CELLS)
def test_a_part_of_a_cell_answers_or_refuses(family: str, case: str, tmp_path: Path) -> None:
    """Try a fifth of the calls, another in each case: every call of every family is in one of them."""
    skipped = LONG_IN_SLOW if case == "long" else set()
    part = (CASES.index(case) + [*FAMILIES].index(family)) % PARTS  # not the same calls of a case in each family
    names = set(ALL[part::PARTS])
    try_calls(make_cell(FAMILIES[family], case, tmp_path), names - skipped)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "case"), CELLS)
def test_a_cell_answers_or_refuses(family: str, case: str, tmp_path: Path) -> None:
    try_calls(make_cell(FAMILIES[family], case, tmp_path), set(ALL))


@pytest.mark.parametrize("family", ["classifier", "translator"])
def test_an_exported_model_predicts_and_refuses_all_else(family: str, tmp_path: Path, capfd: Any) -> None:
    model = make_exported(FAMILIES[family], tmp_path / "exported")
    assert main(["explain", str(model.path), "a b"]) == UsageError.exit_code
    assert f"{model.path} is an exported model, not a run" in capfd.readouterr().err
    answered = set[str]()
    for of, name, _ in calls():
        try:
            exported_call(model, of, name)
            answered.add(f"{of}.{name}")
        except UsageError as error:
            assert "is an exported model" in error.message or "edits" in error.message
    assert answered == EXPORTED_ANSWERS


@pytest.mark.parametrize("case", ["plain", "edited", "long"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_manifest_says_what_is_refused(family: str, case: str, tmp_path: Path) -> None:
    """The page offers what the manifest does not name, so it must name what is refused, in the same words."""
    cell = make_cell(FAMILIES[family], case, tmp_path)
    refused = {}
    calls = {"edits": "trace:edits", "learn": "trace:answer", "contributions": "sweep:contributions"}
    if cell.edited:  # edits are taken away there before an answer is learned
        del calls["learn"]
    for what, name in calls.items():
        try:
            CALLS["Service"][name](cell)
        except UsageError as error:
            refused[what] = error.message
    stated = dict(manifest(cell.e)["refused"])
    if cell.task == "lm" and "learn" in refused:  # whose text and answer have another number of tokens together
        assert stated.pop("learn").split(" has ")[0] == refused["learn"].split(" has ")[0]
        stated["learn"] = refused["learn"]
    assert stated == refused
    always = {"masked": {"contributions"}}.get(family, set[str]())
    expected = {"edits", "learn", "contributions"} if case == "long" else always
    assert set(refused) == expected


def try_calls(cell: Cell, names: set[str]) -> None:
    """Make calls of a cell, and compare what is refused with what is expected."""
    wrong = []
    for of, name, call in calls():
        if f"{of}.{name}" not in names:
            continue
        expected = expected_refusal(of, name, cell)
        try:
            call(cell)
            if expected is not None:
                wrong.append(f"{of}.{name} answered, but {expected!r} was expected")
        except UsageError as error:
            if expected is None or expected not in error.message:
                wrong.append(f"{of}.{name} refused: {error.message}")
        except Exception as error:
            wrong.append(f"{of}.{name}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)
