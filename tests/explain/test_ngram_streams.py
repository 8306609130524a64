"""Explanations of models that read n-grams of characters, bigrams of words, or hashed n-grams of tokens."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.ngram_runs import ngram_run
from tests.helpers.recompute import check_every_record
from tests.helpers.small import CPU, config_of, data_of

from glassformer.explain import trace
from glassformer.explain.attribution.methods import integrated_gradients
from glassformer.explain.attribution.value_function import AttributeRequest, make_value_function
from glassformer.explain.explanation import TraceRequest, explain
from glassformer.run import Run
from glassformer.tasks import TASKS

TEXTS = {"ngrams": "refunds xyzzy card", "bigrams": "card cards card lost xyzzy card", "hashed": "abc ba"}
BIGRAMS = {"bigrams": 40}


@cache
def run_of(kind: str, **changes: Any) -> Run:
    """Return a run with random weights, those of the n-grams as large as the others."""
    if kind != "hashed":
        return ngram_run(**(BIGRAMS if kind == "bigrams" else {}), **changes)
    config = config_of("lm", word_mask_prob=0.0)
    small = {"n_layers": 2, "d_model": 16, "d_ff": 24, "dropout": 0.0, "max_ngram": 4}
    config = replace(config, model=replace(config.model, **(small | changes)))
    task = TASKS["lm"].from_data(config, data_of("lm"))
    torch.manual_seed(2)
    network = task.build_model()
    with torch.no_grad():
        for name, p in network.named_parameters():
            p.normal_() if "grams" in name else p.mul_(2.0) if p.ndim > 1 else p.add_(0.3 * torch.randn_like(p))
    return Run(Path("runs/ngrams"), task, network.eval(), CPU)


@for_each(
    ("kind", "texts"),
    [
        ("ngrams", ["refunds refunding card", "lost", "money xyzzy 😀 好吃", "", "Wonderful card " * 30]),
        ("bigrams", [TEXTS["bigrams"], "card", "", "card " * 30]),
        ("hashed", [TEXTS["hashed"], "a", "", "xyz", "abcdefg " * 9]),
    ],
)
def test_explain_answers_as_predict(kind: str, texts: list[str]) -> None:
    run = run_of(kind)
    for text in texts:
        if kind == "hashed":
            e = run.explain(text, max_new_tokens=6, decode_seed=3)
            n = e.decode.settings.max_new_tokens  # fewer where the context is full
            assert e.answer["headline"] == run.predict(text, max_new_tokens=n, decode_seed=3)["text"]
        else:
            e, expected = explain(run, TraceRequest(text, pad=3 * (len(text) < 100))), run.predict(text)
            for candidate in e.predictions[0].top:
                share = expected["probabilities"][candidate.piece]
                assert math.exp(candidate.log_prob) == pytest.approx(share, abs=1e-6)
        assert all(check.ok for check in e.checks)


def test_ngrams_change_the_logits() -> None:
    """Two unknown words with one id have different predictions; otherwise the tests below would prove nothing."""
    run = run_of("ngrams")
    a, b = (run.predict(text)["probabilities"]["good"] for text in ("refunding", "moneyed"))
    assert run.task.tokenizer.encode("refunding") == run.task.tokenizer.encode("moneyed")
    assert abs(a - b) > 1e-3


def test_each_token_has_the_names_of_its_ngrams() -> None:
    run = run_of("ngrams")
    [stream] = run.explain("refunding 😀").streams
    word, emoji = stream.ngrams
    assert {"<re", "fund", "ing>"} <= set(word) and emoji == ["0xF0", "0x9F", "0x98", "0x80"]
    assert stream.unknown == [True, True] and stream.word_texts == ["refunding", "😀"]
    [padded] = explain(run, TraceRequest("card", pad=2)).streams
    assert [len(n) > 0 for n in padded.ngrams] == [True, False, False]
    assert run.explain("xyzzy card").warnings == [
        "1 of 2 tokens of the text is unknown to the model, but the model reads their n-grams"
    ]


def test_each_token_has_the_name_of_its_bigram() -> None:
    run = run_of("bigrams")
    [stream], tokenizer = run.explain(TEXTS["bigrams"]).streams, run.task.tokenizer
    listed = {tuple(tokenizer.tokens(pair)) for pair in tokenizer.bigrams}
    expected = ["", *(f"{a} {b}" if (a, b) in listed else "" for a, b in pairwise(TEXTS["bigrams"].split()))]
    assert stream.bigrams == expected and any(expected) and "" in expected[1:]
    assert [number > 0 for number in stream.bigram_ids] == [bool(name) for name in expected]


def test_each_token_has_the_names_of_its_hashed_ngrams() -> None:
    [stream] = explain(run_of("hashed"), TraceRequest("abc ba", pad=2, decode={"max_new_tokens": 1})).streams
    pieces = stream.pieces
    assert stream.ngrams[:3] == [[], [pieces[0] + pieces[1]], [pieces[1] + pieces[2], "abc"]]
    assert stream.ngrams[5] == ["".join(pieces[6 - n : 6]) for n in (2, 3, 4)]
    assert stream.ngrams[-2:] == [[], []]  # padding
    named = [sum(number > 0 for number in row) for row in stream.ngram_ids]
    assert named == [len(names) for names in stream.ngrams]


@for_each("std", [0.05, None])
@for_each("positions", ["sinusoidal", "learned", "rotary", "none"])
@for_each("kind", TEXTS)
def test_records_equal_their_recomputation(kind: str, positions: str, std: float | None) -> None:
    run = run_of(kind, positions=positions, embedding_init_std=std)
    e = run.explain(TEXTS[kind])
    check_every_record(e, run.model)
    scaled = ["embedding.scaled"] if std is None else []
    placed = ["embedding.positions", "embedding.sum"] if positions in ("sinusoidal", "learned") else []
    spelled = ["embedding.ngram_ids", "embedding.ngrams", "embedding.with_ngrams"]
    paired = ["embedding.bigram_ids", "embedding.bigrams", "embedding.with_bigrams"] if kind == "bigrams" else []
    steps = ["embedding.ids", "embedding.rows", *scaled, *spelled, *paired, *placed]
    assert list(e.records)[: len(steps)] == steps
    norm = e.records[f"{'decoder' if kind == 'hashed' else 'encoder'}.0.self.norm"]
    assert norm.inputs == ((placed or paired or spelled)[-1],)
    assert e.records["embedding.with_ngrams"].inputs == ((scaled or ["embedding.rows"])[-1], "embedding.ngrams")
    if paired:
        assert e.records["embedding.bigrams"].value.abs().max() > 0.1
        assert e.records["embedding.bigrams"].inputs == ("embedding.bigram_ids",)
        assert e.records["embedding.with_bigrams"].inputs == ("embedding.with_ngrams", "embedding.bigrams")
    assert {e.records[id].stack for id in steps} == {"text"}
    for name in {"ngram", "bigram"} if paired else {"ngram"}:
        assert [a["name"] for a in e.manifest()["params"][f"{name}s.weight"]["axes"]] == [name, "feature"]


def test_a_step_that_is_not_computed_is_not_read() -> None:
    run = ngram_run(bigrams=40)
    run.model.ngrams = None
    records = run.explain(TEXTS["bigrams"]).records
    assert records["embedding.with_bigrams"].inputs == ("embedding.rows", "embedding.bigrams")
    assert "embedding.with_ngrams" not in records
    run = ngram_run(positions="none")
    run.model.ngrams = None
    with trace(run.model) as t, torch.no_grad():
        run.model(torch.tensor([[5, 6]]))
    assert t["encoder.0.self.norm"].inputs == ("embedding.rows",)


def test_source_lines_of_ngram_steps() -> None:
    records = run_of("ngrams").explain("card").records
    marked = {id: record.source.marked for id, record in records.items() if record.source}
    assert "embedding_bag" in marked["embedding.ngrams"] and "+ added" in marked["embedding.with_ngrams"]
    assert "ngrams_of(" in marked["embedding.ngram_ids"] and "angle.sin()" in marked["embedding.positions"]
    hashed = run_of("hashed").explain("abc").records
    assert "self.n_rows + 1" in hashed["embedding.ngram_ids"].source.marked


def test_trace_only_keeps_ngram_steps() -> None:
    run = run_of("ngrams")
    inputs = run.explain("card xyzzy").model_inputs
    for only in ("embedding.ngrams", "embedding.with_ngrams", "embedding.sum", "embedding.rows"):
        with trace(run.model, only) as t, torch.no_grad():
            run.model(**inputs)
        assert list(t) == [only]


def test_rows_of_the_table_are_those_that_are_read() -> None:
    e = run_of("ngrams").explain("card xyzzy")
    numbers = e.tensor("embedding.ngram_ids")[0]
    rows = e.tensor("ngrams.weight", "ngram:" + ".".join(str(n) for n in sorted(numbers[numbers > 0])))
    np.testing.assert_allclose(rows.mean(axis=0), e.tensor("embedding.ngrams")[0], atol=1e-6)


@for_each("method", ["erase", "integrated_gradients"])
@for_each(("kind", "mask_prob"), [("ngrams", 0.05), ("ngrams", 0.0), ("bigrams", 0.05), ("hashed", 0.0)])
def test_an_erased_word_has_no_ngrams(kind: str, mask_prob: float, method: str) -> None:
    hashed = kind == "hashed"
    run = run_of(kind) if hashed else run_of(kind, word_mask_prob=mask_prob)
    e = run.explain("ab cd e", max_new_tokens=1) if hashed else run.explain(TEXTS[kind])
    found, function, t = e.attribute(method), make_value_function(e, AttributeRequest()), run.task.tokenizer
    [words], ngrams = function.words.values(), e.model_inputs.get("ngram_batch")
    erasable = [position for position, word in enumerate(words) if word >= 0]
    erased_id = function.erase_id if hashed else t.mask_id if mask_prob else t.unk_id

    def value(positions: list[int]) -> float:
        ids = function.ids[0].clone()
        ids[0, positions] = erased_id
        more = ()
        if ngrams is not None:
            which = ngrams.index.clone()
            which[0, positions] = 0
            more = (None, replace(ngrams, index=which))
        with torch.no_grad():
            logits = run.model(ids, *more)[0]
        log_probs = logits[-1].log_softmax(-1) if hashed else logits
        return float(log_probs[found.target.id]) - (float(log_probs[found.foil.id]) if found.foil else 0.0)

    assert len(erasable) >= 3 and found.value == pytest.approx(value([]), abs=1e-5)
    assert found.baseline_value == pytest.approx(value(erasable), abs=1e-5)
    if method == "integrated_gradients":
        assert found.completeness.ok
        assert sum(found.scores["text"]) == pytest.approx(found.value - found.baseline_value, rel=0.03)
    elif not hashed:
        drops = [value([]) - value([position]) for position in erasable]
        assert found.scores["text"] == pytest.approx(drops, abs=1e-5)
        assert kind == "bigrams" or min(map(abs, drops)) > 1e-4
    if hashed:
        gone = torch.full_like(function.ids[0], function.erase_id)
        lookup = run.model.ngrams.lookup_ids
        assert lookup(function.ids[0], 4).any() and not lookup(gone, 4).any()


def test_integrated_gradients_equal_captum_with_ngrams() -> None:
    from captum.attr import IntegratedGradients

    e = run_of("ngrams").explain(TEXTS["ngrams"])
    value_fn = make_value_function(e, AttributeRequest())
    ours, completeness = integrated_gradients(value_fn, tolerance=1e-4)
    assert completeness.relative < 1e-3
    erased, kept = (value_fn.embedded(np.full((1, 3), on))[0] for on in (True, False))
    assert not torch.equal(kept[0, 1], erased[0, 1])

    def f(vectors: torch.Tensor) -> torch.Tensor:
        return value_fn.quantity(value_fn.logits(value_fn.erased(np.full((len(vectors), 3), False)), [vectors]))

    theirs = IntegratedGradients(f).attribute(kept, erased, n_steps=1000, method="gausslegendre")
    np.testing.assert_allclose(ours, theirs.sum(-1)[0].detach().numpy(), atol=1e-3)
