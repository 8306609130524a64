"""What the page gets of learning: gradients, what is refused, known answers, and the tensors of the last update."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.browser.models import ANSWERS, MODELS, TEXTS, subject_of
from tests.helpers.for_each import for_each
from tests.helpers.tiny_runs import Runs

from glassformer import load
from glassformer.errors import UsageError
from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.explain.learn.backward import is_gradient
from glassformer.explain.learn.learning import training_settings, update_of
from glassformer.explain.page.manifest import manifest, run_info
from glassformer.explain.page.saved_page import saved_page_html
from glassformer.explain.page.server import PageServer
from glassformer.explain.page.service import Service
from glassformer.run import Run

WEIGHT = "encoder.layers.0.self_attention.q_proj.weight"
TEXT, ANSWER = TEXTS["classify"], ANSWERS["classify"]


@cache
def run() -> Run:
    return subject_of(MODELS["classify, pre-norm"])


@cache
def learned(steps: int, optimizer: str | None = None) -> Explanation:
    return explain(run(), TraceRequest(TEXT, answer=ANSWER, learn_steps=steps, optimizer=optimizer))


def test_gradients_are_listed_apart_from_the_steps_of_the_forward_pass() -> None:
    sent = manifest(learned(1))
    assert [node["id"] for node in sent["nodes"]][-4:] == ["loss.probabilities", "loss.targets", "loss.each", "loss"]
    assert not any(is_gradient(node["id"]) for node in sent["nodes"])
    assert all(is_gradient(node["id"]) for node in sent["gradients"])
    assert [node["id"] for node in sent["gradients"]][:2] == ["loss.grad", "loss.each.grad"]
    plain = manifest(explain(run(), TEXT))
    assert plain["gradients"] == [] and plain["refused"] == {}
    assert sent["refused"]["edits"] == "a model learns without edits only"
    long = manifest(explain(subject_of(MODELS["classify, pre-norm"], max_len=200), "a b c " * 60))
    assert long["refused"]["learn"] == "learning takes up to 128 tokens, and this text has 180"
    assert long["refused"]["edits"].endswith("at most 128 tokens, and this one has 180")
    vector = explain(subject_of(("embed", {})), TEXTS["embed"])
    assert manifest(vector)["refused"]["learn"] == "a bare encoder has no answer to learn"


def test_the_page_of_an_answer_to_learn_opens_on_the_screen_learn() -> None:
    for start, screen in (([learned(0)], "learn"), ([], "flow"), ([explain(run(), "a b")], "flow")):
        with PageServer(run(), port=0, start=start) as server:
            assert server.address.partition("#/")[2].startswith(f"{screen}?access=")


@for_each(("optimizer", "kept"), [("adamw", {"exp_avg", "exp_avg_sq"}), ("sgd", set()), ("muon", {"momentum_buffer"})])
def test_the_last_update_of_a_parameter_can_be_read(optimizer: str, kept: set[str]) -> None:
    e, first, base = learned(2, optimizer), learned(1, optimizer), learned(2, optimizer).base
    assert base is not None and e.learning is not None
    parts = {f"{WEIGHT}.{name}{when}" for name in kept for when in ("", "_before")}
    assert set(update_of(e, WEIGHT)) == {WEIGHT, f"{WEIGHT}.before", f"{WEIGHT}.clipped_grad"} | parts
    after, before = e[WEIGHT], e.tensor(f"{WEIGHT}.before", "out:3")
    assert before.shape == after[3].shape and not np.array_equal(before, after[3])
    for name in kept:
        assert not np.array_equal(e[f"{WEIGHT}.{name}"], e[f"{WEIGHT}.{name}_before"])
        assert not first[f"{WEIGHT}.{name}_before"].any(), "before the first step there is no average"
        assert np.array_equal(first[f"{WEIGHT}.{name}"], e[f"{WEIGHT}.{name}_before"])
    assert np.array_equal(first[f"{WEIGHT}.before"], base[WEIGHT])
    [constants] = [group.constants for group in e.learning.groups if WEIGHT in group.params]
    before, gradient = (e[f"{WEIGHT}.{name}"] for name in ("before", "clipped_grad"))
    if optimizer == "sgd":
        np.testing.assert_allclose(after, before - constants["lr"] * gradient, atol=1e-7)
    if optimizer == "adamw":
        average = constants["beta1"] * e[f"{WEIGHT}.exp_avg_before"] + (1 - constants["beta1"]) * gradient
        np.testing.assert_allclose(e[f"{WEIGHT}.exp_avg"], average, atol=1e-7)
    assert update_of(base, WEIGHT) == []
    with pytest.raises(UsageError):
        base.tensor(f"{WEIGHT}.exp_avg")


def test_a_step_says_whether_the_answer_was_the_most_probable() -> None:
    facts, base = learned(30).learning, learned(30).base
    assert facts is not None and facts.learned is not None and base is not None
    assert facts.learned.right and facts.learned.steps[-1].right
    assert facts.learned.steps[0].right == (base.answer["headline"] == ANSWER)


def test_the_learning_rate_of_muon_keeps_its_ratio() -> None:
    config = run().task.config.train
    requested = TraceRequest("a", lr=config.lr * 10, optimizer="muon")
    settings = training_settings(run(), requested)
    assert settings.matrix_lr == pytest.approx(10 * config.matrix_lr) and settings.optimizer == "muon"
    assert training_settings(run(), replace(requested, lr=None)).matrix_lr == config.matrix_lr


def test_a_run_sends_how_it_was_trained_and_known_answers(runs: Runs) -> None:
    trained = load(runs.classify, device="cpu")
    sent, config = run_info(trained)["learn"], trained.task.config.train
    assert (sent["optimizer"], sent["lr"]) == (config.optimizer, config.lr)
    assert sent["examples"] and {one["answer"] for one in sent["examples"]} <= {"pos", "neg"}
    one = sent["examples"][0]
    after = explain(trained, TraceRequest(one["text"], answer=one["answer"], learn_steps=1)).learning
    assert after is not None and after.learned is not None and after.learned.others


def test_a_full_saved_page_says_what_it_lacks_of_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.explain.page.saved_page.UPDATES_BYTES", 20_000)
    _, dropped = saved_page_html(learned(1), seconds=1)
    assert any(sentence.startswith("Learn: the updates of ") for sentence in dropped)


def test_a_request_is_answered_from_what_is_kept() -> None:
    service, request = Service(run()), {"text": TEXT, "answer": "good", "learn_steps": 1}
    first = service.trace(request)
    assert service.trace(request)["id"] == first["id"]
    assert service.trace({"text": TEXT, "answer": "good"})["id"] == f"{first['id']}-before"
    assert service.tensor(first["id"], f"{WEIGHT}.before", "").shape == (16, 16)
