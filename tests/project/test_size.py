"""The size of the package is a budget: who needs more raises it here, and says why in the commit."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "glassformer"
MODULES, LINES = 293, 56_120
"""With 28 modules and 5,250 lines for pretrained models, a feature of its own: their import, also by name from the hub,
what a run began with, the start of a fine-tuning, and heads whose classes are others. With two modules and 800 lines
for what every fiftieth step logs, and for what the doctor looks at. With ten modules and 1,700 lines for one step of
learning: loss, backward pass, optimizer, the command, its tensors in saved pages, and `run.py`, as api.py had reached
its limit. With 11 modules and 1,300 lines to watch a training: its control, its log, its page and its replay. With 29
modules and 5,450 lines for data of one's own: several labels in a text, the audit of data, tables in and out, what is
done with probabilities, the interface of scikit-learn, and trackers. With 21 modules and 4,300 lines for answers of
other kinds (numbers, a tag for each word, pairs of texts), exports of imported encoders and translators, learning
curves, and probabilities of the tokens of a translation. With 700 lines for calibrated probabilities on the
page, sweeps, contributions and learning of a number, the rows of a table to label next, and columns by numbers. With
one module and 450 lines to audit numbers, tags and texts of several labels."""


def test_modules_and_lines_stay_within_the_budget() -> None:
    files = list(PACKAGE.rglob("*.py"))
    assert len(files) <= MODULES
    assert sum(path.read_text(encoding="utf-8").count("\n") for path in files) <= LINES
