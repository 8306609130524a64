"""The terms that the page explains are those of the glossary, as plain text."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "web" / "terms.py"))


def test_the_definitions_of_the_page_are_those_of_the_glossary() -> None:
    assert (ROOT / "web" / "src" / "terms.ts").read_text(encoding="utf-8") == SCRIPT["terms_ts"](), "run: make web"


def test_a_definition_is_plain_text() -> None:
    text = "one\n: A [mean](https://a.b) of `x`\n  and y ([Name](https://a.b), section 3). More.\n\nb, c\n: Else.\n"
    assert SCRIPT["definitions"](text) == {"one": "A mean of x and y. More.", "b, c": "Else."}
