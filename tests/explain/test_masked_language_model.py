"""Explanations of masked language models: the text is filled in as in prediction, and every step is recorded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.browser.models import subject_of
from tests.helpers.for_each import for_each

from glassformer.errors import UsageError
from glassformer.explain.explanation import explain
from glassformer.explain.page.manifest import manifest
from glassformer.run import Run

FORMS: dict[str, dict[str, Any]] = {
    "pre-norm": {"model": {"pre_norm": True}},
    "post-norm": {"model": {"pre_norm": False, "norm": "rms", "tie_embeddings": False}},
    "n-grams": {"model": {"positions": "rotary"}, "ngrams": 60, "tokenizer": "word"},
}
TEXT = "a b [MASK] c, [MASK] d"


def run_of(form: str) -> Run:
    settings = dict(FORMS[form])
    return subject_of(("pretrain", settings.pop("model")), **settings)


@for_each("form", FORMS)
def test_the_answer_is_that_of_prediction_edited_or_not(form: str) -> None:
    run = run_of(form)
    e, [answer] = explain(run, TEXT), run.predict([TEXT])
    assert e.answer["headline"] == answer["filled"]
    shares = [f"{guess[0]['token']} {100 * guess[0]['probability']:.1f}%" for guess in answer["guesses"]]
    assert e.answer["detail"] == ", ".join(shares)
    assert [e.streams[0].pieces[i] for i in e.generated] == ["[MASK]", "[MASK]"]
    assert all(check.ok for check in e.checks)
    for edit in ("encoder.0.self.out=0", "mlm_hidden=0"):
        [edited] = run.predict([TEXT], edits=[edit])
        assert edited["filled"] == e.what_if(edit).answer_after


@for_each("form", FORMS)
def test_the_steps_of_the_head_are_recorded_and_can_be_edited(form: str) -> None:
    run = run_of(form)
    e = explain(run, TEXT)
    head = [id for id in e.records if e.records[id].stack == "head"]
    assert head == ["mlm_transform", "mlm_hidden", "mlm_norm", "logits"]
    torch.testing.assert_close(e.records["logits"].value, run.model(**e.model_inputs)[0], atol=1e-4, rtol=1e-5)
    [token], second = run.task.tokenizer.encode("d"), run.predict(TEXT)["guesses"][1][0]["token"]
    filled = e.what_if(f"logits[token:{e.generated[0]};vocab:{token}]=100").answer_after
    assert filled == TEXT.replace("[MASK]", "d", 1).replace("[MASK]", second)
    zeros = e.what_if("mlm_hidden=0").trace
    norm = run.model.mlm_norm
    torch.testing.assert_close(zeros["mlm_norm"].value, norm(torch.zeros_like(e.records["mlm_hidden"].value)))
    with pytest.raises(UsageError, match="no sum of parts"):
        e.sweep("contributions")


def test_a_text_without_masks_predicts_each_of_its_tokens() -> None:
    e = explain(run_of("pre-norm"), "a b c")
    assert e.answer == {"headline": "a b c", "detail": "no [MASK]"}
    assert e.generated == list(range(len(e.streams[0])))
    assert any("holds no [MASK]" in warning for warning in e.warnings)
    assert [p.actual.id for p in e.predictions if p.actual] == e.streams[0].ids


@for_each("text", ["", "[MASK]", "[MASK][MASK]", " [MASK] ", "[PAD] [MASK] 日本", "a " * 40 + "[MASK] b"])
def test_odd_texts_are_explained_and_filled_in(text: str) -> None:
    run = run_of("n-grams")
    e = explain(run, text)
    assert e.answer["headline"] == run.predict(text)["filled"]
    stream = e.streams[0]
    for piece, span, special in zip(stream.pieces, stream.spans, stream.special, strict=True):
        assert special == (span is None)
        assert span is None or "[MASK]" not in text[slice(*span)], piece
    assert manifest(e)["decode"]["masked"] == [i for i, piece in enumerate(stream.pieces) if piece == "[MASK]"]
