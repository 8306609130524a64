"""What is looked at of a run is fixed once: every number of an explanation is of the same label, word and weights."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.explain.test_sweeps import with_snapshot
from tests.helpers.for_each import for_each
from tests.helpers.matrix import TEXTS, matrix_run, with_temperature
from tests.helpers.small import data_of

from glassformer.errors import UsageError
from glassformer.explain.explanation import Explanation, TraceRequest, explain
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
