"""What is looked at of a run is fixed once: every number is of the same member, label, word, mask and weights."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.browser.models import subject_of
from tests.explain.test_sweeps import with_snapshot
from tests.helpers.for_each import for_each
from tests.helpers.matrix import TEXTS, matrix_run, with_temperature
from tests.helpers.ngram_runs import ngram_run
from tests.helpers.small import CPU, data_of

from glassformer.errors import UsageError
from glassformer.explain import trace
from glassformer.explain.explanation import Explanation, TraceRequest, compute_decoding, explain
from glassformer.explain.page.manifest import run_info
from glassformer.explain.watch import probe
from glassformer.run import Run

TEXT = "refunds xyzzy card"
KEYS = {"classify": "label", "translate": "translation", "lm": "text", "pretrain": "filled"}


@pytest.fixture(scope="module")
def run() -> Run:
    return ngram_run(members=3)


@for_each("task", KEYS)
def test_a_member_answers_as_it_does_alone_with_a_note_of_the_answer_of_all(task: str) -> None:
    run, text = matrix_run(task, 2), TEXTS[task]
    options = {"max_new_tokens": 6, "temperature": 0.0} if task in ("translate", "lm") else {}
    both = [run.explain(text, member=member, **options) for member in (0, 1)]
    assert both[0].predictions != both[1].predictions
    for e, model in zip(both, run.model.members, strict=True):
        assert e.subject.model is model and all(check.ok for check in e.checks)
        assert e.together is not None and e.together["headline"] == run.predict(text, **options)[KEYS[task]]
        alone = Run(run.path, run.task, model, CPU).explain(text, **options)
        assert (e.answer, e.predictions) == (alone.answer, alone.predictions)
        assert compute_decoding(run, e.request)[1] == e.answer
    if task == "translate":
        forced = run.explain(text, target="abc")
        assert forced.answer["headline"] == forced.together["headline"] == "abc"
        assert forced.answer["detail"] != forced.together["detail"]


def test_the_note_is_with_the_answer_everywhere(run: Run) -> None:
    expected = run.predict(TEXT)
    e = run.explain(TEXT, member=1)
    assert e.together == {"headline": expected["label"], "detail": f"{100 * expected['probability']:.1f}%"}
    own, all_ = ("{headline} ({detail})".format(**answer) for answer in (e.answer, e.together))
    sentence = f"all 3 models together answer {all_}; member 1, shown here, answers {own}"
    manifest = e.manifest()
    assert sentence in e.warnings and sentence in manifest["warnings"] and sentence in repr(e)
    assert manifest["together"] == e.together and manifest["model"]["n_members"] == 3
    assert manifest["answer"] == e.answer != e.together and manifest["request"]["member"] == 1
    n_params = sum(p.numel() for p in run.model.members[1].parameters())
    assert manifest["model"]["n_params"] == n_params == run_info(run)["model"]["n_params"] / 3


def test_an_edit_says_which_member_it_is_of(run: Run) -> None:
    edit = "encoder.0.self.head0=0"
    for member in (0, 2):
        result = run.explain(TEXT, member=member).what_if(edit)
        assert result.member == result.to_json()["member"] == member
        assert f": member {member} alone answers {result.answer_before!r} → " in repr(result)
        [answer] = run.predict([TEXT], edits=[edit], member=member)
        assert (answer["member"], answer["label"]) == (member, result.answer_after)
    alone = ngram_run()
    result = alone.explain(TEXT).what_if(edit)
    assert result.member is None and "member" not in repr(result)
    assert "member" not in alone.predict(TEXT, edits=[edit]) and "member" not in run.predict(TEXT)
    number = matrix_run("regress").explain("a b good").what_if(edit)
    assert repr(number).endswith(f"→ {number.answer_after!r}>"), "which has no predictions"


def test_a_single_model_has_no_note_and_no_other_member(run: Run) -> None:
    first, single = run.explain(TEXT), ngram_run().explain(TEXT)
    assert first.subject.model is run.model.members[0] and "member" not in first.request.to_json()
    assert single.together is None and single.manifest()["together"] is None
    for one, kind in ((run, "an ensemble of 3"), (single.run, "a single model")):
        with pytest.raises(UsageError, match=f"there is no member 3: this run is {kind}"):
            one.explain(TEXT, member=3)


def test_a_trace_of_an_ensemble_names_its_members(run: Run) -> None:
    inputs = run.explain(TEXT).model_inputs
    with trace(run.model) as t, torch.no_grad():
        run.model(**inputs)
    assert t["members.2.embedding.ngrams"].params == {"weight": "members.2.ngrams.weight"}
    assert t["members.2.embedding.ngrams"].inputs == ("members.2.embedding.ngram_ids",)
    second = t["members.1.encoder.0.self.weights"]
    assert (second.stack, second.layer, second.block) == ("encoder", 0, "self")
    assert t["members.1.logits"].stack == "head" and t["members.1.embedding.sum"].stack == "text"
    assert t["members.1.pooled"].inputs == ("members.1.encoder.norm",)
    alone = explain(run, TraceRequest(TEXT, member=1))
    assert len(t) == 3 * len(alone.records)
    for id, record in alone.records.items():
        assert torch.equal(t[f"members.1.{id}"].value, record.value)
    (check,) = t.checks
    assert check.ok


OTHER = {"multilabel": "good", "tag": "4"}
"""A label, and a word, that is not the one that is chosen."""
each_task = pytest.mark.parametrize("task", list(OTHER))


def shown(e: Explanation) -> str:
    assert e.labels is not None
    return e.labels.each[e.labels.shown].name


@for_each(("threshold", "note"), [(0.2, "is answered from 20.0% on"), (0.5, ""), (1.0, "is answered from 100.0% on")])
def test_a_label_is_answered_as_predict_does_from_its_threshold_on(threshold: float, note: str) -> None:
    run = matrix_run("multilabel")
    task = copy.copy(run.task)
    task.decision = replace(run.task.decision, thresholds=[threshold] * len(run.task.label_names or []))
    run = Run(run.path, task, run.model, run.device)
    e = explain(run, TraceRequest(TEXTS["multilabel"]))
    assert e.answer["detail"].partition("; ")[2] == (f"{shown(e)} {note}" if note else "")
    answered = shown(e) in run.predict(TEXTS["multilabel"])["labels"]
    assert e.answer["headline"] == ("" if answered else "not ") + shown(e)


@each_task
def test_snapshots_answer_for_one_label_or_word(task: str, tmp_path: Path) -> None:
    run, text = with_snapshot(task, tmp_path), TEXTS[task]
    e = explain(run, TraceRequest(text))
    answers = [probe(run, text, name) for name in ("model", "step-00000016")]
    named = explain(run, TraceRequest(text, checkpoint="step-00000016", label=shown(e)))
    assert [answer["headline"] for answer in answers] == [e.answer["headline"], named.answer["headline"]]


@each_task
def test_means_are_of_the_whole_model(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.explain.edits.apply.load_run_data", lambda *_, **__: data_of(task))
    e = explain(matrix_run(task), TraceRequest(TEXTS[task]))
    assert e.what_if("encoder.0.self.context[head:0]=mean").unchanged == []
    with pytest.raises(UsageError, match="no reference text reaches this step"):
        e.what_if("head=mean" if task == "multilabel" else "pooled=mean")


@for_each(
    ("task", "edit"), [("multilabel", "head=5"), ("multilabel", "logits[class:1]=5"), ("tag", "logits[class:1]=5")]
)
def test_the_head_of_one_answer_is_not_edited_for_all(task: str, edit: str) -> None:
    """There a name stands for one label or word, here it would stand for each."""
    run = matrix_run(task)
    assert explain(run, TraceRequest(TEXTS[task])).what_if(edit).unchanged == []
    with pytest.raises(UsageError, match="is of one label or word here"):
        run.predict(TEXTS[task], edits=[edit])


def test_a_long_first_text_of_pairs_is_checked_whole() -> None:
    run = matrix_run("pairs")
    answer = run.predict("ab " * 60 + "[SEP] good b a", edits=["encoder.0.self.out=0"])
    assert answer["label"] in run.task.label_names


def test_the_fitted_temperature_is_of_the_finished_model_alone() -> None:
    run = with_temperature(matrix_run("classify"))
    assert run.explain(TEXTS["classify"]).manifest()["temperature"] == 2.5
    assert run.learn(TEXTS["classify"], "good").manifest()["temperature"] is None
    assert matrix_run("translate").explain(TEXTS["translate"]).manifest()["temperature"] is None


FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "pre-norm": ({"pre_norm": True}, {}),
    "post-norm": ({"pre_norm": False, "norm": "rms", "tie_embeddings": False}, {}),
    "n-grams": ({"positions": "rotary"}, {"ngrams": 60, "tokenizer": "word"}),
}
MASKED = "a b [MASK] c, [MASK] d"


@cache
def masked_run(form: str) -> Run:
    model, text = FORMS[form]
    return subject_of(("pretrain", model), **text)


@for_each("form", FORMS)
def test_the_answer_is_that_of_prediction_edited_or_not(form: str) -> None:
    run = masked_run(form)
    e, [answer] = explain(run, MASKED), run.predict([MASKED])
    assert e.answer["headline"] == answer["filled"]
    shares = [f"{guess[0]['token']} {100 * guess[0]['probability']:.1f}%" for guess in answer["guesses"]]
    assert e.answer["detail"] == ", ".join(shares)
    assert [e.streams[0].pieces[i] for i in e.generated] == ["[MASK]", "[MASK]"]
    assert all(check.ok for check in e.checks)
    for edit in ("encoder.0.self.out=0", "mlm_hidden=0"):
        [edited] = run.predict([MASKED], edits=[edit])
        assert edited["filled"] == e.what_if(edit).answer_after


@for_each("form", FORMS)
def test_the_steps_of_the_head_are_recorded_and_can_be_edited(form: str) -> None:
    run = masked_run(form)
    e = explain(run, MASKED)
    head = [id for id in e.records if e.records[id].stack == "head"]
    assert head == ["mlm_transform", "mlm_hidden", "mlm_norm", "logits"]
    [token], second = run.task.tokenizer.encode("d"), run.predict(MASKED)["guesses"][1][0]["token"]
    filled = e.what_if(f"logits[token:{e.generated[0]};vocab:{token}]=100").answer_after
    assert filled == MASKED.replace("[MASK]", "d", 1).replace("[MASK]", second)
    zeros = e.what_if("mlm_hidden=0").trace
    norm = run.model.mlm_norm
    torch.testing.assert_close(zeros["mlm_norm"].value, norm(torch.zeros_like(e.records["mlm_hidden"].value)))


def test_a_text_without_masks_predicts_each_of_its_tokens() -> None:
    e = explain(masked_run("pre-norm"), "a b c")
    assert e.answer == {"headline": "a b c", "detail": "no [MASK]"}
    assert e.generated == list(range(len(e.streams[0])))
    assert any("holds no [MASK]" in warning for warning in e.warnings)
    assert [p.actual.id for p in e.predictions if p.actual] == e.streams[0].ids


@for_each("text", ["", "[MASK]", "[MASK][MASK]", " [MASK] ", "[PAD] [MASK] 日本", "a " * 40 + "[MASK] b"])
def test_odd_texts_are_explained_and_filled_in(text: str) -> None:
    run = masked_run("n-grams")
    e = explain(run, text)
    assert e.answer["headline"] == run.predict(text)["filled"]
    stream = e.streams[0]
    for piece, span, special in zip(stream.pieces, stream.spans, stream.special, strict=True):
        assert special == (span is None)
        assert span is None or "[MASK]" not in text[slice(*span)], piece
    assert e.manifest()["decode"]["masked"] == [i for i, piece in enumerate(stream.pieces) if piece == "[MASK]"]
