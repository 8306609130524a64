"""Tests of explanations of a language model with hashed token n-grams: named, recorded, recomputed and erased."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.recompute import check_every_record
from tests.helpers.small import CPU, config_of, data_of

from glassformer.explain.attribution.value_function import AttributeRequest, make_value_function
from glassformer.explain.explanation import TraceRequest, explain
from glassformer.run import Run
from glassformer.tasks import TASKS

TEXT = "abc ba"


def hashed_ngram_run(**model: object) -> Run:
    """Return a run with random weights, those of the n-grams as large as the others."""
    config = config_of("lm", word_mask_prob=0.0)
    small = {"n_layers": 2, "d_model": 16, "d_ff": 24, "dropout": 0.0, "max_ngram": 4}
    config = replace(config, model=replace(config.model, **(small | model)))
    task = TASKS["lm"].from_data(config, data_of("lm"))
    torch.manual_seed(2)
    network = task.build_model()
    with torch.no_grad():
        for name, p in network.named_parameters():
            p.normal_() if "grams" in name else p.mul_(2.0) if p.ndim > 1 else p.add_(0.3 * torch.randn_like(p))
    return Run(Path("runs/ngrams"), task, network.eval(), CPU)


@pytest.fixture(scope="module")
def run() -> Run:
    return hashed_ngram_run()


@pytest.mark.parametrize("text", [TEXT, "a", "", "xyz", "abcdefg " * 9])
def test_explain_answers_as_predict(run: Run, text: str) -> None:
    e = run.explain(text, max_new_tokens=6, decode_seed=3)
    n = e.decode.settings.max_new_tokens  # fewer where the context is full
    expected = run.predict(text, max_new_tokens=n, decode_seed=3)
    assert e.answer["headline"] == expected["text"]
    assert all(check.ok for check in e.checks)


def test_hashed_ngrams_change_the_logits(run: Run) -> None:
    """Otherwise the tests below would prove nothing."""
    inputs = run.explain(TEXT, max_new_tokens=1).model_inputs
    plain = hashed_ngram_run()
    plain.model.ngrams = None
    with torch.no_grad():
        assert (run.model(**inputs) - plain.model(**inputs)).abs().max() > 0.1


def test_add_hashed_ngrams_names_the_ngrams_of_each_token(run: Run) -> None:
    stream = explain(run, TraceRequest(TEXT, pad=2, decode={"max_new_tokens": 1})).streams[0]
    assert stream.ngrams is not None and stream.ngram_ids is not None
    pieces = stream.pieces
    assert stream.ngrams[:3] == [[], [pieces[0] + pieces[1]], [pieces[1] + pieces[2], "abc"]]
    assert stream.ngrams[5] == ["".join(pieces[6 - n : 6]) for n in (2, 3, 4)]
    assert stream.ngrams[-2:] == [[], []]  # padding
    named = [sum(number > 0 for number in row) for row in stream.ngram_ids]
    assert named == [len(names) for names in stream.ngrams]


@for_each("positions", ["sinusoidal", "learned", "rotary", "none"])
@for_each("std", [0.05, None])
def test_records_equal_their_recomputation(positions: str, std: float | None) -> None:
    run = hashed_ngram_run(positions=positions, embedding_init_std=std)
    e = run.explain(TEXT)
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
    assert "self.n_rows + 1" in e.records["embedding.ngram_ids"].source.marked
    assert e.records["decoder.0.self.norm"].inputs == ((placed or spelled)[-1],)
    assert [a["name"] for a in e.manifest()["params"]["ngrams.weight"]["axes"]] == ["ngram", "feature"]


@pytest.mark.parametrize("method", ["erase", "integrated_gradients"])
def test_erase_removes_hashed_ngrams(run: Run, method: str) -> None:
    e = run.explain("ab cd e", max_new_tokens=1)
    attribution, value_fn = e.attribute(method), make_value_function(e, AttributeRequest())
    [ids] = value_fn.ids
    erasable = [position for position, word in enumerate(value_fn.words["text"]) if word >= 0]
    assert len(erasable) > 4
    gone = torch.full_like(ids, value_fn.erase_id)
    assert run.model.ngrams.lookup_ids(ids, 4).any() and not run.model.ngrams.lookup_ids(gone, 4).any()

    def value(positions: list[int]) -> float:
        seen = ids.clone()
        seen[0, positions] = value_fn.erase_id
        with torch.no_grad():
            log_probs = run.model(seen)[0, -1].log_softmax(-1)
        foil = 0.0 if attribution.foil is None else float(log_probs[attribution.foil.id])
        return float(log_probs[attribution.target.id]) - foil

    assert attribution.value == pytest.approx(value([]), abs=1e-5)
    assert attribution.baseline_value == pytest.approx(value(erasable), abs=1e-5)
    if method == "integrated_gradients":
        assert attribution.completeness.ok
        assert sum(attribution.scores["text"]) == pytest.approx(
            attribution.value - attribution.baseline_value, rel=0.03
        )
