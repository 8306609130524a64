"""The size of the package is a budget: who needs more raises it here, and says why in the commit."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "glassformer"
MODULES, LINES = 215, 40_900
"""With 25 modules and 4,700 lines for the import of pretrained models, a feature of its own."""


def test_modules_and_lines_stay_within_the_budget() -> None:
    files = list(PACKAGE.rglob("*.py"))
    assert len(files) <= MODULES
    assert sum(path.read_text(encoding="utf-8").count("\n") for path in files) <= LINES
