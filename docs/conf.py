"""Sphinx configuration of the documentation. `make docs` builds it; warnings are errors, and nothing is fetched."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

import light_pages  # noqa: E402
import math_to_mathml  # noqa: E402
import notebooks  # noqa: E402
import reference_pages  # noqa: E402

import glassformer  # noqa: E402


def source_hash() -> str:
    """Return a hash of what cells run on. The cache of their outputs knows only the cells' own code."""
    files = [*(DOCS.parent / "src").rglob("*.py"), *(DOCS / "book").rglob("*.py"), DOCS.parent / "constraints.txt"]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()[:16]


project = "Glassformer"
author = "The Glassformer authors"
copyright = "The Glassformer authors, Apache-2.0"
release = version = glassformer.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build", "checks", "front", "images"]
html_theme = "furo"
html_title = "Glassformer"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False

myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]  # links to files of the repository, which a test resolves

nb_execution_mode = "cache"
nb_execution_cache_path = str(DOCS / "_build" / "cells" / source_hash())
nb_execution_raise_on_error = True
nb_execution_timeout = 900  # seconds: for a cell that hangs; a cell takes seconds, a minute on a busy machine
nb_merge_streams = True
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
copybutton_exclude = ".linenos, .gp, .go"


def setup(app: Any) -> None:
    """Write generated pages before the sources are read and notebooks at the end; draw formulas without JavaScript."""
    math_to_mathml.add_renderer(app)
    app.connect("builder-inited", notebooks.make_cache)
    app.connect("source-read", notebooks.add_download_link)
    app.connect("build-finished", notebooks.write_notebooks)
    app.connect("build-finished", light_pages.lighten_pages)
    app.connect("builder-inited", lambda _: reference_pages.write_pages(DOCS / "reference" / "generated"))
