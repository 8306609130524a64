"""A classifier that reads pairs of words is explained with them: named, captured, recomputed, and erased."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from tests.helpers.recompute import check_every_record
from tests.helpers.spelling_runs import spelling_run

from glassformer.api import Run
from glassformer.explain.explanation import TraceRequest, explain

TEXT = "card cards card lost xyzzy card"


@pytest.fixture(scope="module")
def run() -> Run:
    run = spelling_run(bigrams=40)
    assert len(run.task.tokenizer.bigrams) > 5
    return run


@pytest.mark.parametrize("text", [TEXT, "card", "", "card " * 30])
@pytest.mark.parametrize("pad", [0, 3])
def test_what_is_explained_is_what_is_predicted(run: Run, text: str, pad: int) -> None:
    pad = 0 if len(text) > 100 else pad
    e, [expected] = explain(run, TraceRequest(text, pad=pad)), run.predict(text)
    for candidate in e.predictions[0].top:
        said = expected["probabilities"][candidate.piece]
        assert math.exp(candidate.log_prob) == pytest.approx(said, abs=1e-6)
    assert all(check.ok for check in e.checks)


def test_a_token_names_the_pair_that_it_ends(run: Run) -> None:
    stream = run.explain(TEXT).streams[0]
    listed = {tuple(run.task.tokenizer.pieces(pair)) for pair in run.task.tokenizer.bigrams}
    words = TEXT.split()
    expected = ["", *(f"{a} {b}" if (a, b) in listed else "" for a, b in pairwise(words))]
    assert stream.bigrams == expected and any(expected) and "" in expected[1:]
    assert stream.bigram_ids is not None
    assert [number > 0 for number in stream.bigram_ids] == [bool(name) for name in expected]


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "none"])
def test_every_record_is_what_its_operation_makes_of_its_inputs(positions: str) -> None:
    run = spelling_run(positions=positions, bigrams=40)
    e = run.explain(TEXT)
    check_every_record(e, run.model)
    assert e.records["embedding.bigrams"].value.abs().max() > 0.1
    assert e.records["embedding.bigrams"].inputs == ("embedding.pairs",)
    assert e.records["embedding.paired"].inputs == ("embedding.spelled", "embedding.bigrams")
    last = "embedding.sum" if positions in ("sinusoidal", "learned") else "embedding.paired"
    assert e.records["encoder.0.self.norm"].inputs == (last,)
    axes = e.manifest()["params"]["bigrams.weight"]["axes"]
    assert [axis["name"] for axis in axes] == ["bigram", "feature"]


def test_without_n_grams_pairs_are_added_to_the_row() -> None:
    run = spelling_run(bigrams=40)
    run.model.ngrams = None
    records = run.explain(TEXT).records
    assert records["embedding.paired"].inputs == ("embedding.rows", "embedding.bigrams")
    assert "embedding.spelled" not in records


@pytest.mark.parametrize("method", ["erase", "integrated_gradients"])
def test_an_erased_word_takes_its_pairs_with_it(method: str) -> None:
    run = spelling_run(bigrams=40, word_mask_prob=0.05)
    e, n = run.explain(TEXT), len(TEXT.split())
    told, spelling = e.attribute(method), e.model_inputs["spelling"]

    def value(places: list[int]) -> float:
        ids, which = e.model_inputs["ids"].clone(), spelling.which.clone()
        ids[0, places], which[0, places] = run.task.tokenizer.mask_id, 0
        with torch.no_grad():
            logits = run.model(ids, None, replace(spelling, which=which))[0]
        return float(logits[told.target.id] - logits[told.foil.id])

    assert told.value == pytest.approx(value([]), abs=1e-5)
    assert told.baseline_value == pytest.approx(value([*range(n)]), abs=1e-5)
    if method == "erase":
        falls = [value([]) - value([place]) for place in range(n)]
        assert told.scores["text"] == pytest.approx(falls, abs=1e-5)
    else:
        assert told.completeness.ok
        assert sum(told.scores["text"]) == pytest.approx(told.value - told.baseline_value, rel=0.03)
