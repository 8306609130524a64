"""Tests of alignment readings: each step and layer, and the choice that agrees best with erasing words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.helpers.for_each import for_each
from tests.helpers.inference import untrained

from glassformer.errors import UsageError
from glassformer.explain.attribution import alignment as module
from glassformer.explain.attribution.alignment import (
    ErasureDrops,
    Reading,
    agreement,
    chance_agreement,
    erasure_drops,
    readings_json,
)
from glassformer.explain.attribution.attribute import EraseRequest, erase
from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.explain.record_store import RecordStore


def translated(text: str = "abc!defg", target: str = "abc", **request: Any) -> Explanation:
    return explain(untrained("translate", n_layers=2), TraceRequest(text, target=target, **request))


@for_each("pad", [0, 3])
def test_erasure_drops_equal_those_of_erasing_each_word(pad: int) -> None:
    e = translated(pad=pad)
    source, target = e.streams
    assert source.word_texts == ["abc", "!", "defg"]
    drops = erasure_drops(e)
    assert drops.drops.shape == (len(target) - 1, 3)
    assert [int(w) for w in drops.word_of] == source.words
    for i, row_drops in enumerate(drops.drops):
        if target.special[i + 1]:
            assert not row_drops.any()
            continue
        for word, fall in enumerate(row_drops):
            positions = [k for k, w in enumerate(source.words) if w == word]
            erased = erase(e, EraseRequest({"source": positions}, prediction=i))
            assert fall == pytest.approx(erased.original - erased.value, abs=1e-5)


def test_agreement_is_one_for_the_costliest_words_and_zero_for_others() -> None:
    e = translated()
    drops, source = erasure_drops(e), e.streams[0]
    best, worst = np.zeros((2, len(drops.drops), len(source)))
    for i, row_drops in enumerate(drops.drops):
        best[i, source.words.index(int(row_drops.argmax()))] = 1
        worst[i, source.words.index(int(row_drops.argmin()))] = 1
    assert agreement(best, drops) == (1.0, 1.0)
    assert agreement(worst, drops) == (0.0, 0.0)


@pytest.mark.parametrize(("layer", "shifted"), [(0, False), (0, True), (1, False), (1, True)])
def test_readings_put_the_one_that_agrees_best_first(
    monkeypatch: pytest.MonkeyPatch, layer: int, shifted: bool
) -> None:
    """One of four readings attends to the costliest words, the others to [EOS]."""
    e = translated()
    drops, real = erasure_drops(e), RecordStore.tensor
    n_target, n_source = len(e.streams[1]), len(e.streams[0])

    def planted(_: RecordStore, id: str, slice: str = "") -> np.ndarray:
        weights = np.zeros((1, n_target, n_source), dtype=np.float32)
        weights[0, :, -1] = 1
        if id == f"decoder.{layer}.cross.weights":
            for i, row_drops in enumerate(drops.drops):
                index = e.streams[0].words.index(int(row_drops.argmax()))
                weights[0, i + shifted] = np.eye(n_source)[index]
        return weights if id.endswith("cross.weights") else real(e.records, id, slice)

    monkeypatch.setattr(RecordStore, "tensor", planted)
    assert e.readings()[0] == Reading(layer, shifted, 1.0)
    assert sorted((r.layer, r.shifted) for r in e.readings()) == [(0, False), (0, True), (1, False), (1, True)]


def test_readings_default_to_the_paper_without_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    e = translated()
    drops = erasure_drops(e)
    monkeypatch.setattr(module, "erasure_drops", lambda _: ErasureDrops(drops.word_of, 0 * drops.drops))
    data = readings_json(e.readings())
    assert data["best"] == {"layer": 0, "shifted": True, "agreement": None} and data["chance"] is None
    assert [reading["agreement"] for reading in data["readings"]] == [None] * 4


def test_erasure_drops_samples_words_of_a_long_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    e = translated("a!b!c!d!e")
    whole = erasure_drops(e)
    monkeypatch.setattr(module, "MAX_WORDS", 5)
    monkeypatch.setattr(module, "BATCH_POSITIONS", 1)
    some = erasure_drops(e)
    words = [0, 2, 4, 6, 8]
    assert np.allclose(some.drops, whole.drops[:, words], atol=1e-5)
    expected = [words.index(w) if w in words else -1 for w in e.streams[0].words]
    assert [int(w) for w in some.word_of] == expected


@for_each("name", ["classify", "lm"])
def test_alignment_rejects_other_tasks(name: str) -> None:
    e = explain(untrained(name), TraceRequest("a b c"))
    with pytest.raises(UsageError, match="cross attention"):
        e.readings()


def test_chance_agreement_grows_with_the_number_of_readings() -> None:
    """Two words and two tokens: one of the two permutations agrees with the reading."""
    drops = ErasureDrops(np.array([0, 1]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    straight, crossed = np.eye(2), np.eye(2)[::-1]
    assert chance_agreement([straight], drops) == pytest.approx(0.5, abs=0.07)
    assert chance_agreement([straight, crossed], drops) == 1.0, "one of two readings always agrees"
    e = translated()
    data, chances = readings_json(e.readings()), {reading.chance for reading in e.readings()}
    assert chances == {data["chance"]} and 0 < data["chance"] <= 1
