"""Every chapter's cells run in their order, and keep the rules of the book.

`make docs` runs them as notebooks, and those that take a trained run only there and in `make test-all`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tools
import torch

BOOK = Path(__file__).parents[2] / "docs" / "book"
CHAPTERS = [path for path in sorted(BOOK.glob("*.md")) if "file_format: mystnb" in path.read_text(encoding="utf-8")]
CELL = re.compile(r"^```{code-cell} python\n((?::\S[^\n]*\n)*)(.*?)^```$", re.MULTILINE | re.DOTALL)


def takes_a_trained_run(path: Path) -> bool:
    """Return whether a chapter looks into a run."""
    return bool(re.search(r"^import runs$", path.read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.slow
@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_the_cells_run(path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`make docs` executes the cells, too, and fails with them."""
    if not takes_a_trained_run(path):
        monkeypatch.setattr(tools, "StepFrame", lambda *arguments, **more: None)  # it trains a model
    names: dict[str, object] = {"__name__": "__main__"}
    state = torch.get_rng_state()
    for _, code in CELL.findall(path.read_text(encoding="utf-8")):
        exec(compile(code, path.name, "exec"), names)
    torch.set_rng_state(state)
    output = capsys.readouterr().out
    assert "not yet: the function raises NotImplementedError" in output or path.stem == "reading"


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_has_its_parts_and_short_cells(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    cells = [code for _, code in CELL.findall(text)]
    assert all(len(code.splitlines()) <= 25 for code in cells)
    assert [line for code in cells for line in code.splitlines() if len(line) > 88] == []
    assert re.search(r"^\*About \d+ minutes\.", text, re.MULTILINE)
    exercise = "Exercises" if path.stem == "reading" else "Exercise"
    assert all(f"\n## {heading}\n" in text for heading in (exercise, "You can now"))
    assert "\nNext in the code: `" in text
    assert not re.search(r"\b(simply|just|obviously)\b", text, re.IGNORECASE)


def test_the_lessons_for_teachers_have_every_chapter() -> None:
    lessons = (BOOK.parent / "how-to" / "teach.md").read_text(encoding="utf-8")
    missing = {path.stem for path in CHAPTERS} - set(re.findall(r"\.\./book/([\w-]+)\.md", lessons))
    assert missing <= {"reading"}
