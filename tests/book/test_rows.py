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


def test_each_row_has_a_heading_in_the_book() -> None:
    for row in PLACES:
        text = (BOOK / f"{row['page']}.md").read_text(encoding="utf-8")
        assert f"\n## {row['heading']}\n" in text, f"{row['page']}.md has no heading {row['heading']!r}"


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


def recipe_hash(name: str) -> str:
    """Return a hash of a shipped recipe."""
    return hashlib.sha256(recipe_text(name).encode()).hexdigest()[:16]


@pytest.mark.row("2.5")
@pytest.mark.parametrize("path", sorted(RECORDS.glob("*.json")), ids=lambda path: path.stem)
def test_a_recorded_run_is_of_the_recipe_as_it_is_now(path: Path) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["recipe_sha256"] == recipe_hash(record["recipe"]), f"of another recipe: {record['command']}"
    assert record["runs"] and all(run["validations"] for run in record["runs"])
    for run in record["runs"]:
        low, high = run["headline"]["ci95"]
        assert low < run["headline"]["value"] < high
    watched = json.loads((RECORDS / "plain" / "watch.json").read_text(encoding="utf-8"))
    assert watched["recipe_sha256"] == recipe_hash(watched["recipe"])


def test_links_to_the_errors_of_the_sources_lead_to_a_heading() -> None:
    """The page is generated, so that the test of links cannot read it."""
    headings = re.findall(r"^#+ (.*)$", reference_pages.errata(), re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    linked = {path.stem: re.findall(r"errata\.md#([\w-]+)", path.read_text("utf-8")) for path in BOOK.glob("*.md")}
    named = {row["page"] for row in ROWS["wrong"].values()}
    assert [page for page in named if not linked[page]] == [], "mistakes without their source"
    assert {slug for found in linked.values() for slug in found} <= slugs
