"""Tests of explanations of a classifier with character n-grams: shown, recorded and erased."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.ngram_runs import ngram_run
from tests.helpers.recompute import check_every_record

from glassformer.explain import trace
from glassformer.explain.attribution.methods import integrated_gradients
from glassformer.explain.attribution.value_function import AttributeRequest, make_value_function
from glassformer.explain.explanation import TraceRequest, explain
from glassformer.run import Run

TEXTS = ["refunds refunding card", "lost", "money xyzzy 😀 好吃", "", "Wonderful card " * 30]


@pytest.fixture(scope="module")
def run() -> Run:
    return ngram_run()


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("pad", [0, 3])
def test_explain_answers_as_predict(run: Run, text: str, pad: int) -> None:
    pad = 0 if len(text) > 100 else pad
    e, expected = explain(run, TraceRequest(text, pad=pad)), run.predict(text)
    for candidate in e.predictions[0].top:
        assert math.exp(candidate.log_prob) == pytest.approx(expected["probabilities"][candidate.piece], abs=1e-6)
    assert all(check.ok for check in e.checks)


def test_ngrams_change_the_logits(run: Run) -> None:
    """Two unknown words with one id have different predictions; otherwise the tests below would prove nothing."""
    a, b = (run.predict(text)["probabilities"]["good"] for text in ("refunding", "moneyed"))
    assert run.task.tokenizer.encode("refunding") == run.task.tokenizer.encode("moneyed")
    assert abs(a - b) > 1e-3


def test_add_ngrams_names_the_ngrams_of_each_token(run: Run) -> None:
    stream = run.explain("refunding 😀").streams[0]
    assert stream.ngrams is not None
    word, emoji = stream.ngrams
    assert {"<re", "fund", "ing>"} <= set(word)
    assert emoji == ["0xF0", "0x9F", "0x98", "0x80"]
    assert stream.unknown == [True, True] and stream.word_texts == ["refunding", "😀"]
    padded = explain(run, TraceRequest("card", pad=2)).streams[0]
    assert padded.ngrams is not None and [len(n) > 0 for n in padded.ngrams] == [True, False, False]


def test_explain_warns_that_unknown_words_are_read_by_ngrams(run: Run) -> None:
    assert run.explain("xyzzy card").warnings == [
        "1 of 2 tokens of the text is unknown to the model, but the model reads their n-grams"
    ]


@for_each("positions", ["sinusoidal", "learned", "rotary", "none"])
@for_each("std", [0.05, None])
def test_records_equal_their_recomputation(positions: str, std: float | None) -> None:
    run = ngram_run(positions=positions, embedding_init_std=std)
    e = run.explain("refunds xyzzy card")
    check_every_record(e, run.model)
    scaled = ["embedding.scaled"] if std is None else []
    placed = ["embedding.positions", "embedding.sum"] if positions in ("sinusoidal", "learned") else []
    spelled = ["embedding.ngram_ids", "embedding.ngrams", "embedding.with_ngrams"]
    assert list(e.records)[: 5 + len(scaled + placed)] == [
        "embedding.ids",
        "embedding.rows",
        *scaled,
        *spelled,
        *placed,
    ]
    assert e.records["encoder.0.self.norm"].inputs == ((placed or spelled)[-1],)
    assert e.records["embedding.with_ngrams"].inputs == ((scaled or ["embedding.rows"])[-1], "embedding.ngrams")
    assert {e.records[id].stack for id in [*spelled, *placed]} == {"text"}


def test_trace_of_unscaled_embeddings_has_no_scaled_step() -> None:
    run = ngram_run(positions="none")
    run.model.ngrams = None
    with trace(run.model) as t, torch.no_grad():
        run.model(torch.tensor([[5, 6]]))
    assert t["encoder.0.self.norm"].inputs == ("embedding.rows",)


def test_source_lines_of_ngram_steps(run: Run) -> None:
    records = run.explain("card").records
    marked = {id: record.source.marked for id, record in records.items() if record.source}
    assert "embedding_bag" in marked["embedding.ngrams"] and "+ added" in marked["embedding.with_ngrams"]
    assert "ngrams_of(" in marked["embedding.ngram_ids"] and "angle.sin()" in marked["embedding.positions"]


def test_trace_only_keeps_ngram_steps(run: Run) -> None:
    inputs = run.explain("card xyzzy").model_inputs
    for only in ("embedding.ngrams", "embedding.with_ngrams", "embedding.sum", "embedding.rows"):
        with trace(run.model, only) as t, torch.no_grad():
            run.model(**inputs)
        assert list(t) == [only]


def test_manifest_names_the_ngram_table(run: Run) -> None:
    e = run.explain("card xyzzy")
    assert [a["name"] for a in e.manifest()["params"]["ngrams.weight"]["axes"]] == ["ngram", "feature"]
    numbers = e.tensor("embedding.ngram_ids")[0]
    rows = e.tensor("ngrams.weight", "ngram:" + ".".join(str(n) for n in sorted(numbers[numbers > 0])))
    np.testing.assert_allclose(rows.mean(axis=0), e.tensor("embedding.ngrams")[0], atol=1e-6)


@for_each("mask_prob", [0.05, 0.0])
@for_each("method", ["erase", "integrated_gradients"])
def test_erase_removes_ngrams(method: str, mask_prob: float) -> None:
    run = ngram_run(word_mask_prob=mask_prob)
    t, e = run.task.tokenizer, run.explain("refunds xyzzy card")
    attribution = e.attribute(method)
    erased_id = t.mask_id if mask_prob else t.unk_id
    ngram_batch = e.model_inputs["ngram_batch"]

    def value(positions: list[int]) -> float:
        ids, which = e.model_inputs["ids"].clone(), ngram_batch.index.clone()
        ids[0, positions], which[0, positions] = erased_id, 0
        with torch.no_grad():
            logits = run.model(ids, None, replace(ngram_batch, index=which))[0]
        return float(logits[attribution.target.id] - logits[attribution.foil.id])

    assert attribution.value == pytest.approx(value([]), abs=1e-5)
    assert attribution.baseline_value == pytest.approx(value([0, 1, 2]), abs=1e-5)
    if method == "erase":
        drops = [value([]) - value([position]) for position in range(3)]
        assert attribution.scores["text"] == pytest.approx(drops, abs=1e-5)
        assert min(map(abs, drops)) > 1e-4
    else:
        assert attribution.completeness.ok
        assert sum(attribution.scores["text"]) == pytest.approx(
            attribution.value - attribution.baseline_value, rel=0.03
        )


def test_integrated_gradients_equal_captum_with_ngrams(run: Run) -> None:
    from captum.attr import IntegratedGradients

    e = run.explain("refunds xyzzy card")
    value_fn = make_value_function(e, AttributeRequest())
    ours, completeness = integrated_gradients(value_fn, tolerance=1e-4)
    assert completeness.relative < 1e-3
    erased, kept = (value_fn.embedded(np.full((1, 3), on))[0] for on in (True, False))
    assert not torch.equal(kept[0, 1], erased[0, 1])

    def f(vectors: torch.Tensor) -> torch.Tensor:
        return value_fn.quantity(value_fn.logits(value_fn.erased(np.full((len(vectors), 3), False)), [vectors]))

    theirs = IntegratedGradients(f).attribute(kept, erased, n_steps=1000, method="gausslegendre")
    np.testing.assert_allclose(ours, theirs.sum(-1)[0].detach().numpy(), atol=1e-3)
