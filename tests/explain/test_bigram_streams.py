"""Tests of explanations of a classifier with word bigrams: named, recorded, recomputed and erased."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.ngram_runs import ngram_run
from tests.helpers.recompute import check_every_record

from glassformer.explain.explanation import TraceRequest, explain
from glassformer.run import Run

TEXT = "card cards card lost xyzzy card"


@pytest.fixture(scope="module")
def run() -> Run:
    run = ngram_run(bigrams=40)
    assert len(run.task.tokenizer.bigrams) > 5
    return run


@pytest.mark.parametrize("text", [TEXT, "card", "", "card " * 30])
@pytest.mark.parametrize("pad", [0, 3])
def test_explain_answers_as_predict(run: Run, text: str, pad: int) -> None:
    pad = 0 if len(text) > 100 else pad
    e, expected = explain(run, TraceRequest(text, pad=pad)), run.predict(text)
    for candidate in e.predictions[0].top:
        probability = expected["probabilities"][candidate.piece]
        assert math.exp(candidate.log_prob) == pytest.approx(probability, abs=1e-6)
    assert all(check.ok for check in e.checks)


def test_add_bigrams_names_the_bigram_of_each_token(run: Run) -> None:
    stream = run.explain(TEXT).streams[0]
    listed = {tuple(run.task.tokenizer.tokens(pair)) for pair in run.task.tokenizer.bigrams}
    words = TEXT.split()
    expected = ["", *(f"{a} {b}" if (a, b) in listed else "" for a, b in pairwise(words))]
    assert stream.bigrams == expected and any(expected) and "" in expected[1:]
    assert stream.bigram_ids is not None
    assert [number > 0 for number in stream.bigram_ids] == [bool(name) for name in expected]


@for_each("positions", ["sinusoidal", "learned", "rotary", "none"])
def test_records_equal_their_recomputation(positions: str) -> None:
    run = ngram_run(positions=positions, bigrams=40)
    e = run.explain(TEXT)
    check_every_record(e, run.model)
    assert e.records["embedding.bigrams"].value.abs().max() > 0.1
    assert e.records["embedding.bigrams"].inputs == ("embedding.bigram_ids",)
    assert e.records["embedding.with_bigrams"].inputs == ("embedding.with_ngrams", "embedding.bigrams")
    last = "embedding.sum" if positions in ("sinusoidal", "learned") else "embedding.with_bigrams"
    assert e.records["encoder.0.self.norm"].inputs == (last,)
    axes = e.manifest()["params"]["bigrams.weight"]["axes"]
    assert [axis["name"] for axis in axes] == ["bigram", "feature"]


def test_trace_adds_bigrams_without_ngrams() -> None:
    run = ngram_run(bigrams=40)
    run.model.ngrams = None
    records = run.explain(TEXT).records
    assert records["embedding.with_bigrams"].inputs == ("embedding.rows", "embedding.bigrams")
    assert "embedding.with_ngrams" not in records


@for_each("method", ["erase", "integrated_gradients"])
def test_erase_removes_bigrams(method: str) -> None:
    run = ngram_run(bigrams=40, word_mask_prob=0.05)
    e, n = run.explain(TEXT), len(TEXT.split())
    attribution, ngram_batch = e.attribute(method), e.model_inputs["ngram_batch"]

    def value(positions: list[int]) -> float:
        ids, which = e.model_inputs["ids"].clone(), ngram_batch.index.clone()
        ids[0, positions], which[0, positions] = run.task.tokenizer.mask_id, 0
        with torch.no_grad():
            logits = run.model(ids, None, replace(ngram_batch, index=which))[0]
        return float(logits[attribution.target.id] - logits[attribution.foil.id])

    assert attribution.value == pytest.approx(value([]), abs=1e-5)
    assert attribution.baseline_value == pytest.approx(value([*range(n)]), abs=1e-5)
    if method == "erase":
        drops = [value([]) - value([position]) for position in range(n)]
        assert attribution.scores["text"] == pytest.approx(drops, abs=1e-5)
    else:
        assert attribution.completeness.ok
        assert sum(attribution.scores["text"]) == pytest.approx(
            attribution.value - attribution.baseline_value, rel=0.03
        )
