"""Learning one answer: the optimizer's steps are those of the training loop, and nothing of the run changes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.matrix import ANSWERS, LONG, TEXTS, matrix_run
from tests.helpers.small import CPU, config_of, data_of
from tests.helpers.tiny_runs import Runs

import glassformer
from glassformer.cli.main import main
from glassformer.data.splits import Split, TextData
from glassformer.errors import CheckpointError, UsageError
from glassformer.explain.learn.learning import Learner, encode_answer, own_answer, training_settings
from glassformer.explain.one_label import looked_at
from glassformer.explain.request import TraceRequest
from glassformer.models.ensemble import members_of
from glassformer.run import Run
from glassformer.tasks import TASKS
from glassformer.training.loop import RunContext, TrainState, optimizer_step

OPTIMIZERS = ("sgd", "adam", "adamw", "muon")


@for_each(
    "task, optimizer", [(task, optimizer) for task in ("classify", "translate", "regress") for optimizer in OPTIMIZERS]
)
def test_steps_are_those_of_the_training_loop(task: str, optimizer: str) -> None:
    """Three steps give the same weights and states, to the bit, as the loop's own step on a batch of this text."""
    config = config_of(task, optimizer=optimizer, ema_decay=0.0, word_mask_prob=0.0, word_unknown_prob=0.0)
    config = replace(config, train=replace(config.train, adversarial=0.0), model=replace(config.model, dropout=0.0))
    built = TASKS[task].from_data(config, data_of(task))
    torch.manual_seed(2)
    model = built.build_model()
    run = Run(Path("runs") / task, built, model.eval(), CPU)
    text, answer = TEXTS[task], ANSWERS[task]
    encoded = encode_answer(run, TraceRequest(text), answer)
    learner = Learner(looked_at(run, TraceRequest(text)), encoded, training_settings(run, TraceRequest(text)))

    one = Split([text], [answer], "one")
    corpus = built.encode(one, training=True)
    context = RunContext(TextData(one, one, one), built, corpus, corpus, CPU)
    looped = built.build_model()
    looped.load_state_dict(model.state_dict())
    state = TrainState(looped, built)
    for _ in range(3):
        learner.step()
        batch = built.make_batch(corpus, np.array([0]))
        loss, norm = optimizer_step(state, context, [batch], config.train.lr)[:2]
        assert learner.steps[-1].grad_norm == norm
        assert learner.steps[-1].loss == pytest.approx(loss, rel=1e-6)  # the loop divides in double precision
        learned = dict(learner.model.named_parameters())
        for name, p in looped.named_parameters():
            assert torch.equal(p, learned[name]), name
            for key, value in state.optimizer.state.get(p, {}).items():
                assert torch.equal(value, learner.optimizer.state[learned[name]][key]), (name, key)


@for_each("optimizer", OPTIMIZERS)
def test_the_update_follows_the_formula_of_its_optimizer(optimizer: str) -> None:
    """From the tensors and constants that are shown, in double precision, to the weights after the step."""
    run = matrix_run("classify")
    e = run.learn(TEXTS["classify"], "bad", steps=3, optimizer=optimizer, lr=0.01)
    assert e.learning is not None and e.base is not None
    for group in e.learning.groups:
        for name in group.params:
            if f"{name}.grad" in e.base.records:
                _check_update(e, name, group.optimizer, group.constants)


def _check_update(e: Any, name: str, optimizer: str, c: dict[str, float]) -> None:
    def part(which: str) -> np.ndarray:
        return e[f"{name}.{which}"].astype(np.float64)

    before, gradient, after = part("before"), part("clipped_grad"), e[name].astype(np.float64)
    if optimizer in ("adam", "adamw"):
        t = 3
        if optimizer == "adam":
            gradient = gradient + c["weight_decay"] * before
        mean, square = part("exp_avg") / (1 - c["beta1"] ** t), part("exp_avg_sq") / (1 - c["beta2"] ** t)
        kept = before * (1 - c["lr"] * c["weight_decay"]) if optimizer == "adamw" else before
        expected = kept - c["lr"] * mean / (np.sqrt(square) + c["eps"])
    elif optimizer == "sgd":
        momentum = part("momentum_buffer") if c["momentum"] else gradient
        expected = before - c["lr"] * momentum
    else:
        average = part("momentum_buffer")
        x = gradient * (1 - c["momentum"]) + average * c["momentum"]
        tall = x.shape[0] > x.shape[1]
        x = x.T if tall else x
        x = x / max(np.linalg.norm(x), 1e-7)
        for _ in range(5):
            gram = x @ x.T
            x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
        x = x.T if tall else x
        scale = np.sqrt(max(1.0, before.shape[0] / before.shape[1]))
        expected = before * (1 - c["lr"] * c["weight_decay"]) - c["lr"] * scale * x
    largest = max(np.abs(after - before).max(), 1e-12)
    assert np.abs(after - expected).max() < 1e-3 * largest + 1e-7 * np.abs(before).max(), name


@for_each("task, members", [(task, members) for task in TEXTS for members in (1, 2)])
def test_learning_lowers_the_loss_and_leaves_the_run_as_it_is(task: str, members: int) -> None:
    run = matrix_run(task, members)
    weights = {name: p.clone() for name, p in run.model.named_parameters()}
    flags = {name: p.requires_grad for name, p in run.model.named_parameters()}
    options = {"lr": 1e-2, "optimizer": "adamw", "member": members - 1}
    e = run.learn(TEXTS[task], ANSWERS[task], steps=5, **options)
    assert e.base is not None and e.learning is not None and e.learning.learned is not None
    assert e.learning.learned.loss < e.learning.loss
    assert e.learning.learned.steps[0].loss == pytest.approx(e.learning.loss, rel=1e-5)
    assert all(check.ok for check in (*e.checks, *e.base.checks))
    assert any("other members" in what for what in e.learning.left_out) == (members > 1)
    for name, p in run.model.named_parameters():
        assert torch.equal(p, weights[name]) and p.grad is None and p.requires_grad == flags[name]
    again = run.learn(TEXTS[task], ANSWERS[task], member=members - 1)
    for id in e.base.records:
        assert np.array_equal(again[id], e.base[id]), id
    json.dumps(e.manifest())


@for_each(
    "task, text, answer, options, words",
    [
        ("classify", "a b", "neither", {}, "'neither' is not a class of this model"),
        ("classify", "a b", " ", {}, "the answer to learn is empty"),
        ("classify", LONG["classify"], "good", {}, "and this text has 512"),
        ("lm", LONG["lm"], "abc", {}, "and this text has 376"),
        ("lm", "ab", "a" * 600, {}, "prompt and answer have 602 tokens, and 512 are read at once"),
        ("classify", "a b", "good", {"lr": -1.0}, "lr"),
        ("classify", "a b", "good", {"optimizer": "lion"}, "optimizer"),
        ("classify", "a b", "good", {"steps": 101}, "learn_steps must be a whole number in [0, 100]; got 101"),
        ("translate", "ab", "Ω", {}, "tokens that are not in the vocabulary"),
        ("translate", "ab", "ab" * 80, {}, "tokens; at most 127 can be learned at once"),
        ("lm", "ab", "a" * 200, {}, "learning takes up to 128 tokens, and this text has 201"),
        ("pretrain", "a b c", "g", {}, "holds no [MASK]"),
        ("regress", "a b", "good", {}, "the answer to learn is a number, and 'good' is not a number"),
        ("regress", "a b", "1,5", {}, "write it with a decimal point and without a comma"),
        ("regress", "a b", "1e300", {}, "more than 1e+06 standard deviations from the mean"),
        ("pretrain", "a [MASK] b", "gg", {}, "the answer has 2 tokens, and the text 1 [MASK]"),
    ],
)
def test_what_cannot_be_learned_is_refused(task: str, text: str, answer: str, options: Any, words: str) -> None:
    with pytest.raises(UsageError) as raised:
        matrix_run(task).learn(text, answer, **options)
    assert words in str(raised.value)


@for_each("answer", ["12.5", " -3 ", "1e2"])
def test_the_loss_of_a_number_is_its_squared_error(answer: str) -> None:
    run = matrix_run("regress")
    mean, sd = run.task.decision.scale
    e = run.learn(TEXTS["regress"], answer, steps=40, lr=0.02, optimizer="adamw")
    assert e.base is not None and e.learning is not None and e.learning.learned is not None
    wanted = (float(answer) - mean) / sd
    assert e.learning.target == pytest.approx(wanted) and e.learning.labels == []
    for one, loss in ((e.base, e.learning.loss), (e, e.learning.learned.loss)):
        number = float(one.answer["headline"].replace("−", "-"))
        assert loss == pytest.approx(((number - float(answer)) / sd) ** 2, rel=1e-3)
        assert float(one["loss.error"][0]) ** 2 == pytest.approx(loss, rel=1e-4)
    assert e.learning.learned.right == (abs(float(e["loss.error"][0])) <= 0.1)
    assert float(e.base["logits.grad"][0]) == pytest.approx(2 * float(e.base["loss.error"][0]), rel=1e-6)


@for_each("members", [1, 2])
def test_the_answer_of_a_language_model_is_the_text_that_it_learns(members: int) -> None:
    run = matrix_run("lm", members)
    e = run.learn(TEXTS["lm"], ANSWERS["lm"], steps=5, lr=0.01, optimizer="adamw", member=members - 1)
    assert e.base is not None and e.learning is not None
    n = sum(label is not None for label in e.learning.labels)
    for one in (e.base, e):
        assert one.answer["headline"] == ANSWERS["lm"] and "truncated" not in one.answer["detail"]
        assert one.answer["detail"].endswith(f"over {n} token{'s' * (n > 1)}") and len(one.generated) == n
        scored = [p.actual.log_prob for p in (one.predictions[i] for i in one.generated) if p.actual is not None]
        assert one.decode.hypotheses[0].log_prob == pytest.approx(sum(scored), abs=1e-4)
    assert e.decode.hypotheses[0].log_prob > e.base.decode.hypotheses[0].log_prob
    assert e.base.decode.hypotheses[0].log_prob == pytest.approx(-n * _without_smoothing(e.base), rel=1e-4)
    own = own_answer(e.base)
    assert own == run.explain(TEXTS["lm"], member=members - 1).answer


def _without_smoothing(e: Any) -> float:
    rows = [(row, label) for row, label in enumerate(e.learning.labels) if label is not None]
    return float(np.mean([-np.log(e["loss.probabilities"][row, label]) for row, label in rows]))


@for_each("task", TEXTS)
def test_an_ensemble_answers_with_the_member_that_learned(task: str) -> None:
    e = matrix_run(task, 2).learn(TEXTS[task], ANSWERS[task], steps=30, lr=0.02, optimizer="adamw", member=1)
    assert e.base is not None and e.together is not None and e.base.together is not None
    before, after = e.base.together.answer, e.together.answer
    assert before["detail"] != after["detail"]
    assert any(after["headline"] in one and after["detail"] in one for one in e.warnings)
    assert e.subject.together is not None
    members = e.subject.together.model.members
    first, of_run = (next(model.parameters()) for model in (members[0], members_of(e.run.model)[0]))
    assert members[1] is e.subject.model and first is of_run
    assert e.run.model.members[1] is not e.subject.model  # type: ignore[union-attr,index]


def test_a_loss_that_is_not_finite_ends_the_steps() -> None:
    run = matrix_run("classify")
    request = TraceRequest("a b")
    view = looked_at(run, request)
    learner = Learner(view, encode_answer(view, request, "good"), training_settings(run, request))
    with torch.no_grad():
        learner.model.get_parameter("head.weight").fill_(float("nan"))
    with pytest.raises(UsageError, match="after 0 steps the loss is nan"):
        learner.step()


@for_each("name, text, answer", [("classify", "a good film", "neg"), ("translate", "number 3", "Nummer 7")])
def test_what_was_learned_is_kept_as_a_run(
    name: str, text: str, answer: str, runs: Runs, tmp_path_factory: pytest.TempPathFactory
) -> None:
    out, folder = tmp_path_factory.mktemp("kept") / "run", getattr(runs, name)
    run = glassformer.load(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    e = run.learn(text, answer, steps=30, optimizer="adamw", lr=0.02)
    assert e.keep(out) == out
    kept = glassformer.load(out)
    weights = {name.removeprefix("members.0."): p for name, p in kept.model.named_parameters()}
    assert all(torch.equal(p, weights[n]) for n, p in e.subject.model.named_parameters())
    assert kept.predict(text)["label" if name == "classify" else "translation"] == answer
    assert e.learning is not None and e.learning.learned is not None and e.learning.learned.others
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for again, words in ((e, "is not empty"), (run.learn(text, answer), "no step of learning was taken")):
        with pytest.raises(UsageError, match=words):
            again.keep(out)
    for inside in ("model/in", "snapshots/step-00000099", "nested"):
        with pytest.raises(UsageError, match="lies in the folder of the run that learned"):
            e.keep(folder / inside)
    (link := out.parent / "link").symlink_to(out.parent)
    with pytest.raises(UsageError, match="is a link"):
        e.keep(link)


def test_a_kept_run_knows_data_and_optimizer_and_cannot_be_resumed(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, text = glassformer.load(runs.classify), "a good film"
    out = run.learn(text, "neg", steps=2, optimizer="sgd", lr=0.1).keep(tmp_path / "kept")
    kept = glassformer.load(out)
    assert kept.config == run.config
    assert kept.evaluate("valid")["n"] == run.evaluate("valid")["n"]
    again, first = kept.learn(text, "pos", steps=1), run.learn(text, "pos", steps=1)
    assert again.learning is not None and first.learning is not None
    assert again.learning.groups == first.learning.groups
    twice = again.keep(tmp_path / "twice")
    assert glassformer.load(twice).config == run.config
    card = (out / "model" / "README.md").read_text(encoding="utf-8")
    assert "Member 0 of the 3 models of" in card
    assert "after 2 steps of sgd with learning rate 0.1" in card and "the schedule of the learning rate" in card
    record = json.loads((out / "learned.json").read_text(encoding="utf-8"))
    assert (record["text"], record["answer"], record["steps"], record["optimizer"]) == (text, "neg", 2, "sgd")
    assert sorted(path.name for path in out.iterdir()) == ["data.json", "learned.json", "model"]
    for command, words in (
        (["train", "--resume", str(out)], "has no log of its own: train from it with --init-from"),
        (["compare", str(out), str(out)], "has no log of its own: train from it with --init-from"),
        (["watch", str(out)], "holds a model without its training"),
        (["predict", str(tmp_path / "kepp"), "x"], "did you mean 'kept'?"),
    ):
        assert main(command) in (2, 4)
        assert words in "".join(capsys.readouterr())
    (out / "learned.json").write_text('{"config": {"task": 3}}', encoding="utf-8")
    with pytest.raises(CheckpointError, match="does not say how the model was trained"):
        glassformer.load(out)


def test_the_command_prints_and_keeps(runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(runs.classify)
    smoothing = glassformer.load(runs.classify).task.config.train.label_smoothing
    flags = ["--steps", "2", "--keep", str(tmp_path / "kept"), "--json"]
    assert main(["learn", run, "a good film", "neg", *flags]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["answer"] == "neg" and len(printed["learned"]["steps"]) == 2
    assert printed["gradients"]["embedding.weight"] > 0
    assert glassformer.load(tmp_path / "kept").predict("a good film")["label"] in ("neg", "pos")
    page = tmp_path / "page.html"
    assert main(["learn", run, "a zzyzx film", "neg", "--steps", "2", "--json", "-o", str(page)]) == 0
    assert '"learn_steps":2' in page.read_text(encoding="utf-8").replace(": ", ":")
    assert any("unknown to the model" in sentence for sentence in json.loads(capsys.readouterr().out)["warnings"])
    assert main(["learn", run, "a zzyzx film", "neg", "--steps", "2"]) == 0
    printed = capsys.readouterr().out
    assert ("with label smoothing of" in printed) == (smoothing > 0)
    for words in (
        "unknown to the model",
        "models together",
        "the schedule of the learning rate",
        "clipped",
        "loss_after",
    ):
        assert words in printed
    text = ["learn", str(runs.translate), "number 3", "Nummer 7", "--steps", "1"]
    assert main(text) == 0
    assert capsys.readouterr().out.count("; by itself the model writes ") == 2
    for flags, words in (
        (["--edit", "encoder.0.self.out=0"], "learn has no flag --edit"),
        (["--keep", "x"], "add --steps"),
        (["--steps", "101"], "--steps must be a whole number in [0, 100]; got 101"),
    ):
        assert main(["learn", run, "a film", "neg", *flags]) == 2
        assert words in "".join(capsys.readouterr())
