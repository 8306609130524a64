"""What the page gets of learning: gradients, what is refused, known answers, and the tensors of the last update."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.browser.models import ANSWERS, MODELS, TEXTS, subject_of
from tests.helpers.tiny_runs import Runs, shared_runs

from glassformer import load
from glassformer.errors import UsageError
from glassformer.explain.explanation import Explanation, explain
from glassformer.explain.learn.backward import is_gradient
from glassformer.explain.learn.learning import training_settings, update_of
from glassformer.explain.page.manifest import manifest, run_info
from glassformer.explain.page.saved_page import saved_page_html
from glassformer.explain.page.server import PageServer
from glassformer.explain.page.service import Service
from glassformer.explain.request import TraceRequest

NAME = "classify, pre-norm"
WEIGHT = "encoder.layers.0.self_attention.q_proj.weight"


@cache
def learned(steps: int, optimizer: str | None = None) -> Explanation:
    task = MODELS[NAME][0]
    request = TraceRequest(TEXTS[task], answer=ANSWERS[task], learn_steps=steps, optimizer=optimizer)
    return explain(subject_of(MODELS[NAME]), request)


def test_gradients_are_listed_apart_from_the_steps_of_the_forward_pass() -> None:
    sent = manifest(learned(1))
    assert [node["id"] for node in sent["nodes"]][-4:] == ["loss.probabilities", "loss.targets", "loss.each", "loss"]
    assert not any(is_gradient(node["id"]) for node in sent["nodes"])
    assert all(is_gradient(node["id"]) for node in sent["gradients"])
    assert [node["id"] for node in sent["gradients"]][:2] == ["loss.grad", "loss.each.grad"]
    plain = manifest(explain(subject_of(MODELS[NAME]), TEXTS["classify"]))
    assert plain["gradients"] == [] and plain["refused"] == {}
    assert sent["refused"]["edits"] == "a model learns without edits only"


def test_the_page_of_an_answer_to_learn_opens_on_the_screen_learn() -> None:
    for start, screen in (([learned(0)], "learn"), ([], "flow"), ([explain(subject_of(MODELS[NAME]), "a b")], "flow")):
        with PageServer(subject_of(MODELS[NAME]), port=0, start=start) as server:
            assert server.address.partition("#/")[2].startswith(f"{screen}?access=")


def test_what_is_refused_is_known_before() -> None:
    long = explain(subject_of(MODELS[NAME], max_len=200), "a b c " * 60)
    count = "180"
    assert manifest(long)["refused"]["learn"] == f"learning takes up to 128 tokens, and this text has {count}"
    assert manifest(long)["refused"]["edits"].endswith(f"at most 128 tokens, and this one has {count}")
    vector = explain(subject_of(("embed", {})), TEXTS["embed"])
    assert manifest(vector)["refused"]["learn"] == "a bare encoder has no answer to learn"


@pytest.mark.parametrize(
    ("optimizer", "kept"), [("adamw", {"exp_avg", "exp_avg_sq"}), ("sgd", set()), ("muon", {"momentum_buffer"})]
)
def test_the_last_update_of_a_parameter_can_be_read(optimizer: str, kept: set[str]) -> None:
    e = learned(2, optimizer)
    parts = {f"{WEIGHT}.{name}{when}" for name in kept for when in ("", "_before")}
    assert set(update_of(e, WEIGHT)) == {WEIGHT, f"{WEIGHT}.before", f"{WEIGHT}.clipped_grad"} | parts
    after, before = e[WEIGHT], e.tensor(f"{WEIGHT}.before", "out:3")
    assert before.shape == after[3].shape and not np.array_equal(before, after[3])
    for name in kept:
        assert not np.array_equal(e[f"{WEIGHT}.{name}"], e[f"{WEIGHT}.{name}_before"])
        first = learned(1, optimizer)
        assert not first[f"{WEIGHT}.{name}_before"].any(), "before the first step there is no average"
        assert np.array_equal(first[f"{WEIGHT}.{name}"], e[f"{WEIGHT}.{name}_before"])
    assert e.base is not None and update_of(e.base, WEIGHT) == []
    with pytest.raises(UsageError):
        e.base.tensor(f"{WEIGHT}.exp_avg")


def test_a_step_says_whether_the_answer_was_the_most_probable() -> None:
    facts = learned(30).learning
    assert facts is not None and facts.learned is not None
    assert facts.learned.right and facts.learned.steps[-1].right
    e = learned(30).base
    assert e is not None and facts.learned.steps[0].right == (e.answer["headline"] == ANSWERS["classify"])


def test_the_learning_rate_of_muon_keeps_its_ratio() -> None:
    subject = subject_of(MODELS[NAME])
    config = subject.task.config.train
    requested = TraceRequest("a", lr=config.lr * 10, optimizer="muon")
    settings = training_settings(subject, requested)
    assert settings.muon.matrix_lr == pytest.approx(10 * config.muon.matrix_lr) and settings.optimizer == "muon"
    assert training_settings(subject, replace(requested, lr=None)).muon == config.muon


def test_a_run_sends_how_it_was_trained_and_known_answers(tmp_path_factory: pytest.TempPathFactory) -> None:
    runs: Runs = shared_runs(tmp_path_factory)
    run = load(runs.classify, device="cpu")
    sent = run_info(run)["learn"]
    assert sent["optimizer"] == run.task.config.train.optimizer and sent["lr"] == run.task.config.train.lr
    assert sent["examples"] and {one["answer"] for one in sent["examples"]} <= {"pos", "neg"}
    one = sent["examples"][0]
    after = explain(run, TraceRequest(one["text"], answer=one["answer"], learn_steps=1)).learning
    assert after is not None and after.learned is not None and after.learned.others


def test_a_full_saved_page_says_what_it_lacks_of_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.explain.page.saved_page.UPDATES_BYTES", 20_000)
    _, dropped = saved_page_html(learned(1), seconds=1)
    assert any(sentence.startswith("Learn: the updates of ") for sentence in dropped)


def test_a_request_is_answered_from_what_is_kept() -> None:
    service = Service(subject_of(MODELS[NAME]))
    request = {"text": TEXTS["classify"], "answer": "good", "learn_steps": 1}
    first = service.trace(request)
    assert service.trace(request)["id"] == first["id"]
    before = service.trace({"text": TEXTS["classify"], "answer": "good"})
    assert before["id"] == f"{first['id']}-before"
    assert service.tensor(first["id"], f"{WEIGHT}.before", "").shape == (16, 16)
