"""The one table of steps: what is recorded is in it, what the page knows is made from it."""

from __future__ import annotations

from glassformer.explain.capture.sites import AXES, SITES
from glassformer.explain.page.typescript import PAGE, types_ts


def test_what_the_page_is_told_is_what_python_says() -> None:
    """`types.ts`, the form of every answer."""
    assert (PAGE / "types.ts").read_text(encoding="utf-8") == types_ts(), "run: make web"


def test_every_axis_has_its_name() -> None:
    axes = {axis for site in SITES.values() for axis in site.axes}
    assert axes - {"memory"} <= AXES.keys()  # memory: the tokens of another stream


def test_steps_are_made_of_steps_or_of_what_their_part_knows() -> None:
    names = {key.partition(":")[0] for key in SITES}
    known = {"x", "memory", "before", "added", "branch", "table_ids", "end", "padding"} | {f"last_{c}" for c in "qkv"}
    mask_and_positions = {"mask", "positions"}
    for key, site in SITES.items():
        assert set(site.inputs) <= names | known | mask_and_positions, key


def test_an_edit_acts_on_what_is_on_the_way() -> None:
    """What is taken again beside the forward pass, or is no tensor of it, cannot be replaced."""
    alongside = {key for key, site in SITES.items() if not site.editable}
    assert alongside == {
        "input",
        "ids",
        "rows",
        "scaled",
        "ngram_ids",
        "ngram_ids:hashed",
        "bigram_ids",
        "with_ngrams",
        "with_bigrams",
        "segment_ids",
        "with_segments",
        "q_heads",
        "k_heads",
    }
    assert {"rows:last", "scaled:last", "with_ngrams:last", "with_bigrams:last", "sum"} <= SITES.keys() - alongside
