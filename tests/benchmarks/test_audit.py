"""The table of injected faults: what the how-to says of it holds, and injected faults are what they should be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.audit import (
    FLIPPED,
    OTHER_ANSWERS,
    OUT,
    TABLES,
    broken,
    flipped,
    measure_labels,
    measure_pairs,
    scored,
    with_wrong_sets,
    with_wrong_tags,
)
from tests.helpers.audited import labelled, pairs

TABLE: dict[str, Any] = json.loads(OUT.read_text(encoding="utf-8"))
GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "audit-your-data.md"


def test_the_table_has_every_set_on_seeds_that_nothing_was_chosen_on() -> None:
    assert TABLE["labels by words"].keys() == {*TABLES, "imdb"} and TABLE["labels by vectors"].keys() == {*TABLES}
    rows = [row for kind in TABLE.values() for row in kind.values()]
    assert all(len(row["seeds"]) >= 3 and 0 not in row["seeds"] for row in rows)


@pytest.mark.parametrize("judge", ["labels by words", "labels by vectors"])
def test_flipped_labels_of_a_set_that_can_be_learned_are_listed(judge: str) -> None:
    for name in ("banking77", "clinc150"):
        faults = TABLE[judge][name]["faults"]
        assert faults["recall"] > 0.75 and faults["precision"] > 0.9
        assert TABLE[judge][name]["clean"]["listed"] < 0.01 * faults["injected"] / FLIPPED


def test_where_nothing_can_be_learned_little_is_listed() -> None:
    for judge in ("labels by words", "labels by vectors"):
        row = TABLE[judge]["irony"]
        assert row["clean"]["listed"] < 0.03 * row["faults"]["injected"] / FLIPPED


def test_faults_of_pairs_are_listed() -> None:
    faults = TABLE["pairs"]["multi30k"]["faults"]
    for kind in ("copied-source", "wrong-language"):
        assert faults[kind]["recall"] > 0.95 and faults[kind]["precision"] > 0.95, kind
    assert faults["length"]["recall"] > 0.7 and faults["length"]["precision"] > 0.8


def test_the_guide_has_the_numbers_of_the_table() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    for name in (*TABLES, "imdb"):
        cells = [TABLE[judge].get(name, {}).get("faults") for judge in ("labels by words", "labels by vectors")]
        shown = [f"{100 * c['recall']:.0f}% / {100 * c['precision']:.0f}%" if c else "–" for c in cells]
        listed = TABLE["labels by words"][name]["clean"]["listed"]
        assert f"| {name} | {' | '.join(shown)} | {listed:,} |" in text, (name, shown, listed)
    for kind, c in TABLE["pairs"]["multi30k"]["faults"].items():
        clean = TABLE["pairs"]["multi30k"]["clean"]["listed"][kind]
        assert f"| {kind} | {100 * c['recall']:.0f}% / {100 * c['precision']:.0f}% | {clean:,} |" in text, (
            kind,
            c,
            clean,
        )


def test_errors_of_other_answers_are_listed_as_the_guide_says() -> None:
    table, text = TABLE[OTHER_ANSWERS], GUIDE.read_text(encoding="utf-8")
    assert {name.split(",")[0] for name in table} == {"clinc150", "multi30k"}
    for row in table.values():
        c, clean = row["faults"], row["clean"]["listed"]
        assert f" | {100 * c['recall']:.0f}% / {100 * c['precision']:.0f}% | {clean:,} |" in text
        assert f"| {c['injected']:.0f} " in text


def test_sets_and_tags_are_changed_where_it_is_said() -> None:
    answers = [f"{'abc'[i % 3]}\n{'xyz'[i % 3]}" for i in range(300)]
    sets, changed = with_wrong_sets(answers, 1)
    assert {i for i, (a, b) in enumerate(zip(answers, sets, strict=True)) if a != b} == changed and len(changed) == 30
    tags, words = with_wrong_tags(["O\nB-x\nO"] * 200, 1)
    differ = {
        (i, k) for i, each in enumerate(tags) for k, tag in enumerate(each.split("\n")) if tag != ("O", "B-x", "O")[k]
    }
    assert differ == words and len(words) == 20


def test_flipped_labels_differ_where_they_should() -> None:
    _, labels = labelled(200)
    found, injected = flipped(labels, 1)
    assert {i for i, (a, b) in enumerate(zip(labels, found, strict=True)) if a != b} == injected
    assert len(injected) == 10 and flipped(labels, 1) == (found, injected) and flipped(labels, 2)[1] != injected


def test_injected_faults_of_pairs_are_apart() -> None:
    source, target = [f"a b c {i}" for i in range(14_000)], [f"x y z {i}" for i in range(14_000)]
    _, tgt, injected = broken(source, target, 1)
    rows = [i for each in injected.values() for i in each]
    assert len(rows) == len(set(rows))
    assert all(tgt[i].startswith("a ") or tgt[i].startswith("???") for i in injected["copied-source"])
    assert all(tgt[i] == "x y" for i in injected["length"])


def test_a_small_set_is_measured() -> None:
    found = measure_labels(*labelled(300), None, 1)
    assert found["recall"] > 0.8 and found["precision"] > 0.8
    assert measure_labels(*labelled(300), None, None)["listed"] == 0
    assert measure_pairs(*pairs(300), None)["listed"] == dict.fromkeys(("copied-source", "wrong-language", "length"), 0)
    assert scored({1, 2}, {2, 3}) == {"injected": 2, "listed": 2, "recall": 0.5, "precision": 0.5}
