"""Alignment at either step, and the choice among layers and steps: against erasing, one word and token at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.helpers.stand_in import untrained

from glassformer.errors import UsageError
from glassformer.explain.attribution import alignment as module
from glassformer.explain.attribution.alignment import (
    ErasureDrops,
    Reading,
    agreement,
    alignment,
    best_reading,
    chance_agreement,
    erasure_drops,
    readings_json,
)
from glassformer.explain.attribution.attribute import EraseRequest, erase
from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.explain.explanation_data import ExplanationData


def translated(text: str = "abc!defg", target: str = "abc", **request: Any) -> Explanation:
    return explain(untrained("translate", n_layers=2), TraceRequest(text, target=target, **request))


def test_either_step_is_read() -> None:
    e = translated()
    for layer in (0, 1):
        weights = e.tensor(f"decoder.{layer}.cross.weights").mean(axis=0)
        # Token t + 1 is input at step t + 1, and written at step t.
        assert np.allclose(alignment(e, layer, shifted=True), weights[1:], atol=1e-6)
        assert np.allclose(alignment(e, layer, shifted=False), weights[:-1], atol=1e-6)
    with pytest.raises(UsageError, match="layer 2"):
        alignment(e, 2)


@pytest.mark.parametrize("pad", [0, 3])
def test_one_pass_tells_what_erasing_each_word_costs_each_token(pad: int) -> None:
    e = translated(pad=pad)
    source, target = e.streams
    assert source.word_texts == ["abc", "!", "defg"]
    missed = erasure_drops(e)
    assert missed.drops.shape == (len(target) - 1, 3)
    assert [int(w) for w in missed.word_of] == source.words
    for i, falls in enumerate(missed.drops):
        if target.special[i + 1]:
            assert not falls.any()
            continue
        for word, fall in enumerate(falls):
            places = [k for k, w in enumerate(source.words) if w == word]
            erased = erase(e, EraseRequest({"source": places}, prediction=i))
            assert fall == pytest.approx(erased.original - erased.value, abs=1e-5)


def test_the_best_agrees_always_and_the_worst_never() -> None:
    e = translated()
    missed, source = erasure_drops(e), e.streams[0]
    best, worst = np.zeros((2, len(missed.drops), len(source)))
    for i, falls in enumerate(missed.drops):
        best[i, source.words.index(int(falls.argmax()))] = 1
        worst[i, source.words.index(int(falls.argmin()))] = 1
    assert agreement(best, missed) == (1.0, 1.0)
    assert agreement(worst, missed) == (0.0, 0.0)
    nothing = ErasureDrops(missed.word_of, np.zeros_like(missed.drops))
    assert math.isnan(agreement(best, nothing)[0])


@pytest.mark.parametrize(("layer", "shifted"), [(0, False), (0, True), (1, False), (1, True)])
def test_the_reading_that_looks_at_the_missed_words_is_chosen(
    monkeypatch: pytest.MonkeyPatch, layer: int, shifted: bool
) -> None:
    """One of four readings is made to look where erasing hurts, the others at [EOS]: it comes first."""
    e = translated()
    missed, real = erasure_drops(e), e.tensor
    n_target, n_source = len(e.streams[1]), len(e.streams[0])

    def planted(_: ExplanationData, id: str, slice: str = "") -> np.ndarray:
        weights = np.zeros((1, n_target, n_source), dtype=np.float32)
        weights[0, :, -1] = 1
        if id == f"decoder.{layer}.cross.weights":
            for i, falls in enumerate(missed.drops):
                place = e.streams[0].words.index(int(falls.argmax()))
                weights[0, i + shifted] = np.eye(n_source)[place]
        return weights if id.endswith("cross.weights") else real(id, slice)

    monkeypatch.setattr(module, "get_tensor", planted)
    assert e.readings()[0] == Reading(layer, shifted, 1.0)
    assert sorted((r.layer, r.shifted) for r in e.readings()) == [
        (0, False),
        (0, True),
        (1, False),
        (1, True),
    ]
    assert np.array_equal(alignment(e), alignment(e, layer, shifted=shifted))
    assert best_reading(e, 1 - layer).layer == 1 - layer
    assert best_reading(e, shifted=not shifted).shifted is not shifted


def test_where_nothing_is_missed_the_paper_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    e = translated()
    missed = erasure_drops(e)
    monkeypatch.setattr(module, "erasure_drops", lambda _: ErasureDrops(missed.word_of, 0 * missed.drops))
    told = readings_json(e.readings())
    assert told["best"] == {"layer": 0, "shifted": True}
    assert [one["agreement"] for one in told["readings"]] == [None] * 4


def test_of_many_words_some_are_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    e = translated("a!b!c!d!e")
    whole = erasure_drops(e)
    monkeypatch.setattr(module, "MAX_WORDS", 5)
    monkeypatch.setattr(module, "BATCH_POSITIONS", 1)
    some = erasure_drops(e)
    words = [0, 2, 4, 6, 8]
    assert np.allclose(some.drops, whole.drops[:, words], atol=1e-5)
    expected = [words.index(w) if w in words else -1 for w in e.streams[0].words]
    assert [int(w) for w in some.word_of] == expected


@pytest.mark.parametrize("name", ["classify", "lm"])
def test_only_translations_are_aligned(name: str) -> None:
    e = explain(untrained(name), TraceRequest("a b c"))
    with pytest.raises(UsageError, match="cross attention"):
        alignment(e)
    with pytest.raises(UsageError, match="cross attention"):
        e.readings()


def test_the_best_of_many_readings_is_told_beside_chance() -> None:
    """Two words and two tokens: of the two ways to deal them out, one agrees with the reading throughout."""
    missed = ErasureDrops(np.array([0, 1]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    straight, crossed = np.eye(2), np.eye(2)[::-1]
    assert chance_agreement([straight], missed) == pytest.approx(0.5, abs=0.07)
    assert chance_agreement([straight, crossed], missed) == 1.0, "one of two readings always agrees"
    assert math.isnan(chance_agreement([straight], ErasureDrops(missed.word_of, np.zeros((2, 2)))))
    e = translated()
    told, chances = readings_json(e.readings()), {reading.chance for reading in e.readings()}
    assert chances == {told["chance"]} and 0 < told["chance"] <= 1
