"""A notebook that is downloaded from the site finds the files of the book, or says where to get them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import notebooks

ROOT = Path(__file__).parents[2]


def cells_of(code: str) -> list[dict[str, Any]]:
    """Return the cells of a cleaned notebook that has a title, two cells of code and a solution."""
    sources = [("markdown", "# Title\n"), ("code", code), ("code", "from tools import fails\n")]
    cells = [{"id": str(i), "cell_type": kind, "source": [text]} for i, (kind, text) in enumerate(sources)]
    return notebooks.cleaned({"cells": cells})["cells"]


def run(folder: Path, code: str, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the first cell of a notebook, then some code, in a folder."""
    found = "".join(cells_of("from exercises import heads\n")[1]["source"])
    command = [sys.executable, *flags, "-c", f"{found}\n{code}"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_cell_that_finds_the_book_comes_before_the_first_code_that_needs_it() -> None:
    cells = cells_of("import torch\nfrom exercises import heads\n")
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code", "code", "code"]
    assert "".join(cells[1]["source"]) == notebooks.FIND_BOOK.rstrip()
    alone = [{"cell_type": "code", "source": ["import torch\n"]}]
    assert len(notebooks.cleaned({"cells": alone})["cells"]) == 1


def test_cells_before_it_need_torch_alone_and_pictures_of_the_page_are_left_out() -> None:
    codes = ["from drawings import draw_mask", "import torch", "from one_page_bridge import to_library", "import runs"]
    cells: list[dict[str, Any]] = [{"cell_type": "code", "metadata": {}, "source": [code]} for code in codes]
    cells[0]["metadata"] = {"tags": ["remove-input", "page-only"]}
    sources = ["".join(cell["source"]) for cell in notebooks.cleaned({"cells": cells})["cells"]]
    assert sources == [codes[1], notebooks.FIND_BOOK.rstrip(), *codes[2:]]


def test_it_finds_the_book_of_a_package_installed_from_a_clone(tmp_path: Path) -> None:
    code = "import importlib.util\nprint(importlib.util.find_spec('exercises').origin)"
    done = run(tmp_path, code, "-S", PYTHONPATH=str(ROOT / "src"))
    assert Path(done.stdout.strip()) == ROOT / "docs" / "book" / "exercises" / "__init__.py", done.stderr


def test_it_says_where_to_get_them_otherwise(tmp_path: Path) -> None:
    done = run(tmp_path, "", "-S", PYTHONPATH="")
    assert "needs the package glassformer" in done.stderr and "pip install" in done.stderr
    (tmp_path / "a" / "b" / "glassformer").mkdir(parents=True)
    (tmp_path / "a" / "b" / "glassformer" / "__init__.py").touch()
    done = run(tmp_path, "", "-S", PYTHONPATH=str(tmp_path / "a" / "b"))
    assert "docs/book" in done.stderr and "clone the repository" in done.stderr
