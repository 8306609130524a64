"""The one table of steps: what is recorded is in it, what the page knows is made from it."""

from __future__ import annotations

from glassformer.explain.capture.sites import AXES, SITES
from glassformer.explain.page.typescript import PAGE, types_ts


def test_what_the_page_is_told_is_what_python_says() -> None:
    """`types.ts`, the form of every answer."""
    assert (PAGE / "types.ts").read_text(encoding="utf-8") == types_ts(), "run: make web"


def test_every_axis_has_its_name() -> None:
    assert {axis for site in SITES.values() for axis in site.axes} <= AXES.keys()
