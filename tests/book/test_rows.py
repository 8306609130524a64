"""Each row of what the sources teach and get wrong is at its place in the book, and a test is marked with it."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from pathlib import Path

import pytest
import reference_pages

from glassformer.config.recipes import recipe_text

ROOT = Path(__file__).parents[2]
BOOK = ROOT / "docs" / "book"
RECORDS = BOOK / "results"
ROWS = tomllib.loads((BOOK / "rows.toml").read_text(encoding="utf-8"))
IDS = [*ROWS["taught"], *ROWS["wrong"]]
PLACES = [*ROWS["taught"].values(), *ROWS["wrong"].values(), *ROWS["more"], *ROWS["also"]]


def recipe_hash(name: str) -> str:
    """Return a hash of a shipped recipe."""
    return hashlib.sha256(recipe_text(name).encode()).hexdigest()[:16]


def test_each_row_has_a_heading_in_the_book() -> None:
    missing = []
    for row in PLACES:
        text = (BOOK / f"{row['page']}.md").read_text(encoding="utf-8")
        if f"\n## {row['heading']}\n" not in text:
            missing.append(f"{row['page']}.md has no heading {row['heading']!r}")
    assert missing == []


def test_what_a_row_names_stands_under_its_heading() -> None:
    """A page that a row sends its reader to has the words, not the heading alone."""
    for words, page, heading in (
        ("GELU", "block", "Feed-forward: each token alone"),
        ("nn.Dropout(", "block", "Dropout: zeros in training, nothing afterwards"),
        ("nn.Conv1d(", "block", "Which inputs does an output see?"),
        ("draw_normalized(", "block", "The norm: over the features of a token"),
        ("draw_translator(", "reading", "A map"),
        ("draw_decoder_layer(", "decoder", "Three sublayers"),
        ("WMT 2014", "sizes", "The paper's models"),
        ("bounded", "positions", "What a position must satisfy"),
        ("sigmoid", "positions", "What a position must satisfy"),
        ("draw_counting(", "positions", "A picture of positions"),
        ("draw_turns(", "positions", "Sines and cosines"),
        ("wavelength", "positions", "Sines and cosines"),
        ("draw_rotations(", "positions", "Rotary positions"),
        ("*Queries Q, rotated*", "positions", "Rotary positions"),
        ("torch.bmm(", "attention", "Several texts at once"),
        ("draw_rotations(", "attention", "Attention as a search"),
        ("read_sentences(", "text", "A real data set"),
        ("encoder.md#a-stack-of-layers", "reading", "Why it works"),
        ("diagrams.draw_normalized(", "one-page", "Layer norm"),
        ("diagrams.draw_curves(", "one-page", "Feed-forward with GELU"),
        ("diagrams.draw_encoder_layer(", "one-page", "Layers: residuals, norms, dropout"),
        ("diagrams.draw_decoder_layer(", "one-page", "Layers: residuals, norms, dropout"),
        ("same vector", "positions", "What a position must satisfy"),
        ("last linear", "heads", "Split and combine"),
    ):
        text = (BOOK / f"{page}.md").read_text(encoding="utf-8")
        assert words in text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert {row["id"] for row in ROWS["also"]} <= set(ROWS["taught"])


def test_each_row_has_a_test() -> None:
    marked = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for arguments in re.findall(r"^@pytest\.mark\.row\((.*)\)$", path.read_text(encoding="utf-8"), re.MULTILINE):
            marked |= set(re.findall(r'"([^"]+)"', arguments))
    assert marked == set(IDS)


def test_the_rows_are_those_of_the_sources() -> None:
    """Five sources; numbers are counted from 1 and letters from a, without gaps."""
    for source in ROWS["sources"]:
        numbers = [int(id.partition(".")[2]) for id in ROWS["taught"] if id.startswith(f"{source}.")]
        letters = [id[1:] for id in ROWS["wrong"] if id.startswith(source)]
        assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) >= 3
        assert letters == list("abcdef"[: len(letters)]) and len(letters) >= 3


@pytest.mark.row("2.5")
@pytest.mark.parametrize("path", sorted(RECORDS.glob("*.json")), ids=lambda path: path.stem)
def test_a_recorded_run_is_of_the_recipe_as_it_is_now(path: Path) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["recipe_sha256"] == recipe_hash(record["recipe"]), f"of another recipe: {record['command']}"
    assert record["runs"] and all(run["validations"] for run in record["runs"])
    for run in record["runs"]:
        low, high = run["headline"]["ci95"]
        assert low < run["headline"]["value"] < high


def test_the_trainings_that_a_chapter_watched_are_of_the_recipe_as_it_is_now() -> None:
    record = json.loads((RECORDS / "plain" / "watch.json").read_text(encoding="utf-8"))
    assert record["recipe_sha256"] == recipe_hash(record["recipe"])
    for run in record["runs"]:
        assert all(len(shares) == len(run["snapshots"]) and shares[-1] > 0.9 for shares in run["measures"].values())


def test_links_to_the_errors_of_the_sources_lead_to_a_heading() -> None:
    """The page is generated, so that the test of links cannot read it."""
    headings = re.findall(r"^#+ (.*)$", reference_pages.errata(), re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    linked = {path.stem: re.findall(r"errata\.md#([\w-]+)", path.read_text("utf-8")) for path in BOOK.glob("*.md")}
    first = ("text", "attention", "positions", "scale", "masks", "heads")
    for chapter in (*first, "block", "encoder", "learning", "decoder", "translation", "inside", "diagnosis"):
        assert linked[chapter], f"{chapter}.md names mistakes without their source"
    assert {slug for found in linked.values() for slug in found} <= slugs
