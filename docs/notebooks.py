"""Offer each executed chapter as a notebook: with outputs, with the stub of its exercise, and without the solution.

Packages of the extra `docs` are imported where they are used, so that the tests of the cells need none of them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

BOOK = Path(__file__).parent / "book"
SOLUTION = re.compile(r"<details>\s*<summary>Solution</summary>.*?</details>", re.DOTALL)
LINK = re.compile(r"\]\(([\w./-]+)\.md(#[\w-]+)?\)")
FRAME = re.compile(r'<iframe class="step-frame".*?</iframe>', re.DOTALL)
OF_THE_BOOK = re.compile(
    r"^(?:from|import) (?:diagrams|drawings|exercises|one_page_bridge|runs|sentences|step_frame|tools)\b", re.MULTILINE
)
FIND_BOOK = """\
# This chapter imports files of the book (exercises, tools), which no package contains.
import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("exercises") is None:
    package = importlib.util.find_spec("glassformer")
    book = Path(package.origin).parents[2] / "docs" / "book" if package else Path("docs/book")
    if not (book / "exercises").is_dir():  # it is there where the package is installed from a clone
        raise ModuleNotFoundError(
            f"this notebook needs the package glassformer and the files of docs/book, and {sys.executable} has not "
            "both: clone the repository, and there python -m pip install -c constraints.txt -e . (or use the "
            "notebooks of `make classroom`)"
        )
    sys.path.insert(0, str(book))
"""
"""The cell before the first that imports files of the book: it finds them or says where to get them."""
PAGE_ONLY = "page-only"
"""Tag of cells that a notebook leaves out: pictures of a chapter whose own code needs torch alone."""
ONE_PAGE = re.compile(r"^:tags: \[one-page\]\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""The cells of the chapter `one-page` that are together a file to copy."""
MINUTES = re.compile(r"^(\*About \d+ minutes\..*?\*)$", re.MULTILINE | re.DOTALL)


def make_cache(app: Any) -> None:
    """Make the cache of the cells' outputs; a handler of Sphinx's event `builder-inited`.

    Processes that read chapters side by side would each make its tables, and the second would fail.
    """
    from jupyter_cache import get_cache

    get_cache(app.config.nb_execution_cache_path).list_cache_records()


def add_download_link(app: Any, name: str, source: list[str]) -> None:
    """Add a link to the notebook below the minutes of a chapter; a handler of Sphinx's event `source-read`."""
    if "file_format: mystnb" in source[0]:
        link = f'<a href="{Path(name).name}.ipynb" download>Download this chapter as a notebook</a>'
        source[0] = MINUTES.sub(rf"\1\n\n{link}", source[0], count=1)


def write_notebooks(app: Any, error: Exception | None) -> None:
    """Write the notebooks into the folder of their pages; a handler of Sphinx's event `build-finished`."""
    if error is not None or app.builder.name != "html":
        return
    import nbformat
    from jupyter_cache import get_cache

    out = Path(app.outdir)
    (out / "book" / "one_page.py").write_text(one_page(), encoding="utf-8")
    cache = get_cache(app.config.nb_execution_cache_path)
    for path in sorted((out.parent / "jupyter_execute" / "book").glob("*.ipynb")):
        try:
            _, executed = cache.merge_match_into_notebook(nbformat.read(path, as_version=4))
        except KeyError:  # a chapter that was not executed
            continue
        notebook = cleaned(json.loads(nbformat.writes(executed)))
        (out / "book" / path.name).write_text(json.dumps(notebook, indent=1) + "\n", encoding="utf-8")


def one_page() -> str:
    """Return the whole Transformer as one file, from the cells of its chapter."""
    return "\n\n".join(ONE_PAGE.findall((BOOK / "one-page.md").read_text(encoding="utf-8")))


def cleaned(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return a notebook without solutions and frames, with links to the pages, and without the builder's own marks."""
    cells, found = [], False
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if PAGE_ONLY in cell.get("metadata", {}).get("tags", []):
            continue
        if cell["cell_type"] == "markdown":
            text = SOLUTION.sub("", re.sub(r"^<a href=[^>]*ipynb[^>]*>.*?</a>\n*", "", text, flags=re.MULTILINE))
            text = LINK.sub(r"](\1.html\2)", text).strip()
            if not text:
                continue
        for output in cell.get("outputs", []):
            if shown := output.get("data", {}).get("text/html"):
                output["data"]["text/html"] = FRAME.sub("", "".join(shown))
        kept = {key: value for key, value in cell.items() if key != "id"}
        if cell["cell_type"] == "code" and OF_THE_BOOK.search(text) and not found:
            cells.append(code_cell(FIND_BOOK))
            found = True
        cells.append(kept | {"source": text.splitlines(keepends=True)})
    kernel = {"name": "python3", "display_name": "Python 3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 4}


def code_cell(text: str) -> dict[str, Any]:
    """Return a cell that was not run yet; its source is folded in the notebook, as on the page."""
    metadata = {"jupyter": {"source_hidden": True}}
    source = text.rstrip().splitlines(keepends=True)
    return {"cell_type": "code", "execution_count": None, "metadata": metadata, "outputs": [], "source": source}
