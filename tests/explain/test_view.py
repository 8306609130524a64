"""What is looked at of a run is fixed once: every number of an explanation is of the same label, word and weights.

Of an ensemble it is one member, with the answer of all as a note.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.explain.test_report import Page, tensor
from tests.explain.test_sweeps import with_snapshot
from tests.helpers.for_each import for_each
from tests.helpers.matrix import TEXTS, matrix_run, with_temperature
from tests.helpers.ngram_runs import ngram_run
from tests.helpers.small import CPU, config_of, data_of, random_run

from glassformer.errors import UsageError
from glassformer.explain import trace
from glassformer.explain.explanation import Explanation, TraceRequest, compute_decoding, explain
from glassformer.explain.page.manifest import run_info
from glassformer.explain.page.saved_page import saved_page_html
from glassformer.explain.watch import probe
from glassformer.run import Run

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
def test_snapshots_and_initial_weights_answer_for_one_label_or_word(task: str, tmp_path: Path) -> None:
    run, text = with_snapshot(task, tmp_path), TEXTS[task]
    e = explain(run, TraceRequest(text))
    answers = [probe(run, text, name) for name in ("model", "step-00000016")]
    named = explain(run, TraceRequest(text, checkpoint="step-00000016", label=shown(e)))
    assert [answer["headline"] for answer in answers] == [e.answer["headline"], named.answer["headline"]]
    e = explain(run, TraceRequest(text, label=OTHER[task]))
    torch.manual_seed(0)
    initial = explain(Run(run.path, run.task, run.task.build_model().eval(), run.device), e.request)
    target = e.predictions[0].top[0].id

    def log_prob(logits: np.ndarray) -> float:
        return float(torch.tensor(logits).double().log_softmax(dim=-1)[target])

    before, sweep = log_prob(initial["logits"]), e.sweep("parts")
    after = [log_prob(initial.what_if(*row.edits).trace["logits"].value.numpy()) for row in sweep.rows]
    assert sweep.untrained == pytest.approx(max(abs(one - before) for one in after), abs=1e-6)


def test_a_saved_page_has_the_head_of_each_label() -> None:
    run, text = matrix_run("multilabel"), TEXTS["multilabel"]
    first = explain(run, TraceRequest(text))
    second = explain(run, TraceRequest(text, label="good"), trace_id="t2")
    assert shown(first) != shown(second)
    tensors = Page(saved_page_html(first, other=second, seconds=0)[0]).data()["tensors"]
    assert "embedding.weight" not in tensors["t2"], "what both share is stored once"
    for e in (first, second):
        np.testing.assert_allclose(tensor(tensors[e.id]["head.weight"]), e["head.weight"], rtol=1e-3)


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


TEXT = "refunds xyzzy card"


@pytest.fixture(scope="module")
def run() -> Run:
    return ngram_run(members=3)


def test_a_member_is_traced_with_a_note_of_the_answer_of_all(run: Run) -> None:
    expected = run.predict(TEXT)
    probabilities = []
    for member, model in enumerate(run.model.members):
        e = run.explain(TEXT, member=member)
        with torch.no_grad():
            probabilities.append(model(**e.model_inputs)[0].softmax(-1))
        for candidate in e.predictions[0].top:
            assert math.exp(candidate.log_prob) == pytest.approx(float(probabilities[-1][candidate.id]), abs=1e-6)
        detail = f"{100 * expected['probability']:.1f}%"
        assert e.together == {"headline": expected["label"], "detail": detail}
        assert e.answer["headline"] == e.predictions[0].top[0].piece
        assert all(check.ok for check in e.checks)
        assert e.attribute("integrated_gradients").completeness.ok
    assert not torch.allclose(probabilities[0], probabilities[1], atol=1e-3)
    e = run.explain(TEXT, member=1)
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


@for_each("task", ["translate", "lm"])
def test_members_of_generating_models_are_traced(task: str) -> None:
    config = config_of(task)
    run = random_run(replace(config, model=replace(config.model, ensemble_size=2)), data_of(task), 1)
    text, options = TEXTS[task], {"max_new_tokens": 6, "temperature": 0.0}
    key = "translation" if task == "translate" else "text"
    for member, model in enumerate(run.model.members):
        e = run.explain(text, member=member, **options)
        assert e.subject.model is model and e.together is not None and all(check.ok for check in e.checks)
        assert e.together["headline"] == run.predict(text, **options)[key]
        assert e.answer["headline"] == Run(run.path, run.task, model, CPU).predict(text, **options)[key]
        assert compute_decoding(run, e.request)[1] == e.answer
    if task == "translate":
        forced = run.explain(text, target="abc")
        assert forced.answer["headline"] == forced.together["headline"] == "abc"
        assert forced.answer["detail"] != forced.together["detail"]
