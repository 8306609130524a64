"""Tests of explanations of an ensemble: of one member, with the answer of all as a note."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.matrix import matrix_run
from tests.helpers.ngram_runs import ngram_run
from tests.helpers.serving import TEXTS
from tests.helpers.small import CPU, config_of, data_of, small_run

from glassformer.errors import UsageError
from glassformer.explain import trace
from glassformer.explain.explanation import TraceRequest, compute_decoding, explain
from glassformer.explain.page.manifest import run_info
from glassformer.run import Run

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
    small = small_run(replace(config, model=replace(config.model, ensemble_size=2)), data_of(task))
    torch.manual_seed(1)
    run = Run(Path("runs") / task, small.task, small.task.build_model().eval(), CPU)
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
