"""The size of the package is a budget: who needs more raises it here, and says why in the commit."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "glassformer"
MODULES, LINES = 218, 41_500
"""With 28 modules and 5,000 lines for pretrained models, a feature of its own: their import, also by name from the hub,
what a run began with, and the start of a fine-tuning; 250 more for heads whose classes are others, tokens that a
tokenizer lacks, and what is said of an imported run."""


def test_modules_and_lines_stay_within_the_budget() -> None:
    files = list(PACKAGE.rglob("*.py"))
    assert len(files) <= MODULES
    assert sum(path.read_text(encoding="utf-8").count("\n") for path in files) <= LINES
