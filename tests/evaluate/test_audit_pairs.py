"""Planted faults of sentence pairs are found where they are, and clean pairs are silent."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.audited import audit, of_kind, pairs

from glassformer.evaluate.audit.audit import audit_parts
from glassformer.evaluate.audit.findings import Part
from glassformer.evaluate.audit.pairs import copied, length_deviations, other_language


@pytest.mark.parametrize("seed", [0, 1])
def test_clean_pairs_are_silent(seed: int) -> None:
    report = audit(*pairs(seed=seed), "target")
    assert report.findings == [] and report.not_made == {}
    assert list(report.counts) == ["copied-source", "wrong-language", "length"]


def test_pairs_of_an_earlier_part_are_listed() -> None:
    source, target = pairs(200)
    parts = [
        Part("train", "a", source[:150], target[:150], range(1, 151), "b"),
        Part("test", "c", [*source[150:], source[4], source[9]], [*target[150:], target[4], ""], range(1, 53), "d"),
    ]
    [found] = of_kind(audit_parts(parts, "target"), "split-overlap")
    assert (found.file, found.line, found.other_file, found.other_line, found.score) == ("c", 51, "a", 5, 1.0)


def test_copies_are_found_at_the_target_and_not_again_as_another_language() -> None:
    source, target = pairs()
    target[5] = source[5].upper()
    target[9] = " ".join([*source[9].split()[1:], "xyz"])
    report = audit(source, target, "target")
    found = of_kind(report, "copied-source")
    assert sorted(f.line for f in found) == [7, 11] and {f.file for f in found} == {"t.txt"}
    assert found[0].score == 1.0 and found[0].text == source[5] and found[0].target == target[5]
    assert of_kind(report, "wrong-language") == []


def test_names_and_numbers_are_no_copies() -> None:
    assert copied(["New York", "12 34 56 78", "a b c"], ["New York", "12 34 56 78", "a b c"]).tolist() == [0, 0, 1]


def test_data_whose_targets_repeat_their_sources_is_meant_so() -> None:
    """As in the correction of spelling: nothing is listed, and why is said."""
    source, _ = pairs()
    report = audit(source, [" ".join(reversed(text.split())) for text in source], "target")
    assert "are like their sources" in report.not_made["copied-source"]
    assert "look alike" in report.not_made["wrong-language"]
    assert not of_kind(report, "copied-source") and not of_kind(report, "wrong-language")


def test_the_other_language_is_found_on_the_side_it_is_on() -> None:
    source, target = pairs()
    target[30] = source[400]
    source[80], target[80] = target[80], source[80]
    found = of_kind(audit(source, target, "target"), "wrong-language")
    assert sorted((f.file, f.line) for f in found) == [("a.csv", 82), ("t.txt", 32), ("t.txt", 82)]


def test_odd_lengths_are_found_and_empty_sides_left_to_the_check() -> None:
    source, target = pairs()
    target[50] = target[50].split()[0]
    target[51] = " ".join([target[51]] * 4)
    target[52] = ""
    found = of_kind(audit(source, target, "target"), "length")
    assert sorted((f.line, f.numbers["z"] > 0) for f in found) == [(52, False), (53, True)]


def test_what_needs_more_pairs_says_so() -> None:
    report = audit(*pairs(10), "target")
    assert set(report.not_made) == {"wrong-language", "length"}
    assert "30 pairs are needed" in report.not_made["length"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), min_size=100, max_size=130))
def test_any_pairs_are_audited(rows: list[tuple[str, str]]) -> None:
    source, target = map(list, zip(*rows, strict=True))
    first, second = audit(source, target, "target"), audit(source, target, "target")
    assert first.to_json() == second.to_json()
    assert all(2 <= finding.line <= len(rows) + 1 for finding in first.findings)


def test_scripts_without_spaces() -> None:
    """Characters are the words of Chinese and Japanese."""
    source, target = pairs()
    signs = {word: chr(0x4E00 + 37 * i) for i, word in enumerate(sorted({w for text in target for w in text.split()}))}
    chinese = ["".join(signs[word] for word in text.split()) for text in target]
    assert audit(source, chinese, "target").findings == []


def test_functions_alone_give_reasons() -> None:
    assert isinstance(other_language(["a"], ["b"]), str) and isinstance(length_deviations(["a"], ["b"]), str)
