"""Learning one answer: the optimizer's steps are those of the training loop, and nothing of the run changes.

What the page gets of it: gradients, what is refused, known answers, and the tensors of the last update. Gradients step
by step against autograd, in double precision, over all parts of a model.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.browser.models import subject_of
from tests.helpers.for_each import for_each
from tests.helpers.matrix import ANSWERS, LONG, TEXTS, matrix_run
from tests.helpers.small import CPU, small, without_dropout
from tests.helpers.tiny_runs import Runs
from torch import Tensor, nn
from torch.nn import functional as F

import glassformer
from glassformer.config import ModelConfig
from glassformer.data.splits import Split
from glassformer.errors import CheckpointError, UsageError
from glassformer.explain.capture.exact_inference import exact_forward
from glassformer.explain.capture.sites import SITES, Step
from glassformer.explain.capture.slices import get_parameter
from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.explain.inputs import rows_of
from glassformer.explain.learn.backward import GRADIENT, backward_pass, is_gradient, loss_steps
from glassformer.explain.learn.learning import Learner, encode_answer, own_answer, training_settings, update_of
from glassformer.explain.one_label import looked_at
from glassformer.explain.page.manifest import manifest, run_info
from glassformer.explain.page.server import PageServer
from glassformer.explain.page.service import Service
from glassformer.explain.trace import record
from glassformer.models import LanguageModel, MaskedLanguageModel, TextClassifier, Translator
from glassformer.models.ensemble import members_of
from glassformer.nn.cross_entropy import IGNORE_INDEX
from glassformer.nn.layers import RMSNorm
from glassformer.nn.ngram_embeddings import NgramBatch
from glassformer.nn.operations import OPERATIONS, row_of
from glassformer.nn.steps import step
from glassformer.run import Run

WEIGHT = "encoder.layers.0.self_attention.q_proj.weight"


@cache
def learn(task: str, steps: int = 0, members: int = 1, answer: str = "", **options: Any) -> Explanation:
    """Return what the last member learned, with large steps."""
    options = {"lr": 0.02, "optimizer": "adamw"} | options
    run = matrix_run(task, members)
    return run.learn(TEXTS[task], answer or ANSWERS[task], steps=steps, member=members - 1, **options)


def parts(e: Explanation) -> tuple[Explanation, Any, Any]:
    """Return what was before, what was to be learned and what was learned."""
    assert e.base is not None and e.learning is not None
    return e.base, e.learning, e.learning.learned


@for_each("task", ["classify", "translate", "regress"])
@for_each("optimizer", ["sgd", "adam", "adamw", "muon"])
def test_steps_are_those_of_the_training_loop(task: str, optimizer: str) -> None:
    """Three steps give the same weights and states, to the bit, as the loop's own step on a batch of this text."""
    off = {"ema_decay": 0.0, "word_mask_prob": 0.0, "word_unknown_prob": 0.0, "adversarial": 0.0}
    loop = small(task, optimizer=optimizer, **off)
    state = loop.new_state()
    run = Run(Path("runs") / task, loop.task, copy.deepcopy(without_dropout(state.model)).eval(), CPU)
    request, text, answer = TraceRequest(TEXTS[task]), TEXTS[task], ANSWERS[task]
    learner = Learner(looked_at(run, request), encode_answer(run, request, answer), training_settings(run, request))
    corpus = loop.task.encode(Split([text], [answer], "one"), training=True)
    for _ in range(3):
        learner.step()
        batch = loop.task.make_batch(corpus, np.array([0]))
        loss, norm = loop.update(state, [batch], loop.config.train.lr)
        assert learner.steps[-1].grad_norm == norm
        assert learner.steps[-1].loss == pytest.approx(loss, rel=1e-6)  # the loop divides in double precision
        learned = dict(learner.model.named_parameters())
        for name, p in state.model.named_parameters():
            assert torch.equal(p, learned[name]), name
            for key, value in state.optimizer.state.get(p, {}).items():
                assert torch.equal(value, learner.optimizer.state[learned[name]][key]), (name, key)


@for_each("task", TEXTS)
@for_each("members", [1, 2])
def test_learning_lowers_the_loss_and_leaves_the_run_as_it_is(task: str, members: int) -> None:
    run = matrix_run(task, members)
    weights = {name: p.clone() for name, p in run.model.named_parameters()}
    flags = {name: p.requires_grad for name, p in run.model.named_parameters()}
    e = learn(task, 5, members, lr=0.01)
    base, facts, learned = parts(e)
    assert learned.loss < facts.loss == pytest.approx(learned.steps[0].loss, rel=1e-5)
    assert all(check.ok for check in (*e.checks, *base.checks))
    assert any("other members" in what for what in facts.left_out) == (members > 1)
    for name, p in run.model.named_parameters():
        assert torch.equal(p, weights[name]) and p.grad is None and p.requires_grad == flags[name]
    again = learn(task, 0, members, lr=None, optimizer=None)
    for id in base.records:
        assert np.array_equal(again[id], base[id]), id
    json.dumps(e.manifest())


@for_each(
    "task, text, answer, options, words",
    [
        ("classify", "a b", "neither", {}, "'neither' is not a class of this model"),
        ("classify", "a b", " ", {}, "the answer to learn is empty"),
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
    mean, sd = matrix_run("regress").task.decision.scale
    e = learn("regress", 40, answer=answer)
    base, facts, learned = parts(e)
    assert facts.target == pytest.approx((float(answer) - mean) / sd) and facts.labels == []
    for one, loss in ((base, facts.loss), (e, learned.loss)):
        number = float(one.answer["headline"].replace("−", "-"))
        assert loss == pytest.approx(((number - float(answer)) / sd) ** 2, rel=1e-3)
        assert float(one["loss.error"][0]) ** 2 == pytest.approx(loss, rel=1e-4)
    assert learned.right == (abs(float(e["loss.error"][0])) <= 0.1)
    assert float(base["logits.grad"][0]) == pytest.approx(2 * float(base["loss.error"][0]), rel=1e-6)


@for_each("members", [1, 2])
def test_the_answer_of_a_language_model_is_the_text_that_it_learns(members: int) -> None:
    e = learn("lm", 5, members, lr=0.01)
    base, facts, _ = parts(e)
    rows = [(row, label) for row, label in enumerate(facts.labels) if label is not None]
    n = len(rows)
    for one in (base, e):
        assert one.answer["headline"] == ANSWERS["lm"] and "truncated" not in one.answer["detail"]
        assert one.answer["detail"].endswith(f"over {n} token{'s' * (n > 1)}") and len(one.generated) == n
        scored = [p.actual.log_prob for p in (one.predictions[i] for i in one.generated) if p.actual is not None]
        assert one.decode.hypotheses[0].log_prob == pytest.approx(sum(scored), abs=1e-4)
    assert e.decode.hypotheses[0].log_prob > base.decode.hypotheses[0].log_prob
    without_smoothing = sum(np.log(base["loss.probabilities"][row, label]) for row, label in rows)
    assert base.decode.hypotheses[0].log_prob == pytest.approx(float(without_smoothing), rel=1e-4)
    assert own_answer(base) == e.run.explain(TEXTS["lm"], member=members - 1).answer


@for_each("task", TEXTS)
def test_an_ensemble_answers_with_the_member_that_learned(task: str) -> None:
    e = learn(task, 30, members=2)
    assert e.base is not None and e.together is not None and e.base.together is not None
    before, after = e.base.together, e.together
    assert before["detail"] != after["detail"]
    assert any(after["headline"] in one and after["detail"] in one for one in e.warnings)
    assert e.subject.together is not None
    members, of_run = e.subject.together.model.members, members_of(e.run.model)
    assert members[1] is e.subject.model is not of_run[1]
    assert next(members[0].parameters()) is next(of_run[0].parameters())


def test_a_loss_that_is_not_finite_ends_the_steps() -> None:
    run, request = matrix_run("classify"), TraceRequest("a b")
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
    assert parts(e)[2].others
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (link := out.parent / "link").symlink_to(out.parent)
    inside = "lies in the folder of the run that learned"
    for again, path, words in (
        (e, out, "is not empty"),
        (run.learn(text, answer), out, "no step of learning was taken"),
        (e, folder / "model/in", inside),
        (e, folder / "snapshots/step-00000099", inside),
        (e, link, "is a link"),
    ):
        with pytest.raises(UsageError, match=words):
            again.keep(path)


def test_a_kept_run_knows_data_and_optimizer_and_cannot_be_resumed(runs: Runs, tmp_path: Path, cli: Callable) -> None:
    run, text = glassformer.load(runs.classify), "a good film"
    out = run.learn(text, "neg", steps=2, optimizer="sgd", lr=0.1).keep(tmp_path / "kept")
    kept = glassformer.load(out)
    assert kept.config == run.config
    assert kept.evaluate("valid")["n"] == run.evaluate("valid")["n"]
    again, first = kept.learn(text, "pos", steps=1), run.learn(text, "pos", steps=1)
    assert parts(again)[1].groups == parts(first)[1].groups
    assert glassformer.load(again.keep(tmp_path / "twice")).config == run.config
    assert "after 2 steps on one text" in (out / "model" / "README.md").read_text(encoding="utf-8")
    record = json.loads((out / "learned.json").read_text(encoding="utf-8"))
    assert (record["text"], record["answer"], record["steps"], record["optimizer"]) == (text, "neg", 2, "sgd")
    assert (record["member"], record["members"], record["lr"]) == (0, 3, 0.1)
    assert any(one.startswith("the schedule of the learning rate") for one in record["left_out"])
    assert sorted(path.name for path in out.iterdir()) == ["data.json", "learned.json", "model"]
    no_log = "has no log of its own: train from it with --init-from"
    for command, words in (
        (["train", "--resume", out], no_log),
        (["compare", out, out], no_log),
        (["watch", out], "holds a model without its training"),
        (["predict", tmp_path / "kepp", "x"], "did you mean 'kept'?"),
    ):
        refused = cli(*command)
        assert refused.code in (2, 4) and words in refused.err
    (out / "learned.json").write_text('{"config": {"task": 3}}', encoding="utf-8")
    with pytest.raises(CheckpointError, match="does not say how the model was trained"):
        glassformer.load(out)


def test_the_command_prints_and_keeps(runs: Runs, tmp_path: Path, cli: Callable) -> None:
    page, kept = tmp_path / "page.html", tmp_path / "kept"
    printed = json.loads(cli("learn", runs.classify, "a film", "neg", "--steps", 2, "--keep", kept, "--json").out)
    assert printed["answer"] == "neg" and len(printed["learned"]["steps"]) == 2
    assert printed["gradients"]["embedding.weight"] > 0
    assert glassformer.load(kept).predict("a good film")["label"] in ("neg", "pos")
    learned = cli("learn", runs.classify, "a zzyzx film", "neg", "--steps", 2, "-o", page).ok
    assert '"learn_steps":2' in page.read_text(encoding="utf-8").replace(": ", ":")
    learned = cli("learn", runs.classify, "a zzyzx film", "neg", "--steps", 2)
    for words in ("unknown to the model", "models together", "the schedule of the learning rate", "loss_after"):
        assert words in learned.out + learned.err
    translated = cli("learn", runs.translate, "number 3", "Nummer 7", "--steps", 1)
    assert translated.out.count("; by itself the model writes ") == 2
    for flags, words in (
        (["--edit", "encoder.0.self.out=0"], "learn has no flag --edit"),
        (["--keep", "x"], "add --steps"),
    ):
        refused = cli("learn", runs.classify, "a film", "neg", *flags)
        assert refused.code == 2 and words in refused.err


def test_gradients_are_listed_apart_from_the_steps_of_the_forward_pass() -> None:
    sent = manifest(learn("classify", 1))
    assert [node["id"] for node in sent["nodes"]][-4:] == ["loss.probabilities", "loss.targets", "loss.each", "loss"]
    assert not any(is_gradient(node["id"]) for node in sent["nodes"])
    assert all(is_gradient(node["id"]) for node in sent["gradients"])
    assert [node["id"] for node in sent["gradients"]][:2] == ["loss.grad", "loss.each.grad"]
    plain = manifest(matrix_run("classify").explain(TEXTS["classify"]))
    assert plain["gradients"] == [] and plain["refused"] == {}
    assert sent["refused"]["edits"] == "a model learns without edits only"
    vector = explain(subject_of(("embed", {})), "a film was good")
    assert manifest(vector)["refused"]["learn"] == "a bare encoder has no answer to learn"


def test_the_page_of_an_answer_to_learn_opens_on_the_screen_learn() -> None:
    run = matrix_run("classify")
    for start, screen in (([learn("classify")], "learn"), ([], "flow"), ([run.explain("a b")], "flow")):
        with PageServer(run, port=0, start=start) as server:
            assert server.address.partition("#/")[2].startswith(f"{screen}?access=")


@for_each(("optimizer", "kept"), [("adamw", {"exp_avg", "exp_avg_sq"}), ("sgd", set()), ("muon", {"momentum_buffer"})])
def test_the_last_update_of_a_parameter_can_be_read(optimizer: str, kept: set[str]) -> None:
    e, first = (learn("classify", steps, optimizer=optimizer) for steps in (2, 1))
    base, facts, _ = parts(e)
    averages = {f"{WEIGHT}.{name}{when}" for name in kept for when in ("", "_before")}
    assert set(update_of(e, WEIGHT)) == {WEIGHT, f"{WEIGHT}.before", f"{WEIGHT}.clipped_grad"} | averages
    after, before = e[WEIGHT], e.tensor(f"{WEIGHT}.before", "out:3")
    assert before.shape == after[3].shape and not np.array_equal(before, after[3])
    for name in kept:
        assert not np.array_equal(e[f"{WEIGHT}.{name}"], e[f"{WEIGHT}.{name}_before"])
        assert not first[f"{WEIGHT}.{name}_before"].any(), "before the first step there is no average"
        assert np.array_equal(first[f"{WEIGHT}.{name}"], e[f"{WEIGHT}.{name}_before"])
    assert np.array_equal(first[f"{WEIGHT}.before"], base[WEIGHT])
    [constants] = [group.constants for group in facts.groups if WEIGHT in group.params]
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
    base, _, learned = parts(learn("classify", 30))
    assert learned.right and learned.steps[-1].right
    assert learned.steps[0].right == (base.answer["headline"] == ANSWERS["classify"])


def test_the_learning_rate_of_muon_keeps_its_ratio() -> None:
    run = matrix_run("classify")
    config, requested = run.task.config.train, TraceRequest("a", lr=run.task.config.train.lr * 10, optimizer="muon")
    settings = training_settings(run, requested)
    assert settings.matrix_lr == pytest.approx(10 * config.matrix_lr) and settings.optimizer == "muon"
    assert training_settings(run, replace(requested, lr=None)).matrix_lr == config.matrix_lr


def test_a_run_sends_how_it_was_trained_and_known_answers(runs: Runs) -> None:
    trained = glassformer.load(runs.classify, device="cpu")
    sent, config = run_info(trained)["learn"], trained.task.config.train
    assert (sent["optimizer"], sent["lr"]) == (config.optimizer, config.lr)
    assert sent["examples"] and {one["answer"] for one in sent["examples"]} <= {"pos", "neg"}
    one = sent["examples"][0]
    after = explain(trained, TraceRequest(one["text"], answer=one["answer"], learn_steps=1)).learning
    assert after is not None and after.learned is not None and after.learned.others


def test_a_request_is_answered_from_what_is_kept() -> None:
    service = Service(matrix_run("classify"))
    request = {"text": TEXTS["classify"], "answer": "good", "learn_steps": 1}
    first = service.trace(request)
    assert service.trace(request)["id"] == first["id"]
    assert service.trace(request | {"learn_steps": 0})["id"] == f"{first['id']}-before"
    assert service.tensor(first["id"], f"{WEIGHT}.before", "").shape == (16, 16)


V, L, S = 11, 5, 6
SMOOTHING = 0.1
BASE = ModelConfig(n_layers=2, d_model=8, n_heads=2, d_ff=12, dropout=0.0)
NGRAMS = NgramBatch(torch.tensor([[1, 2, 1, 3, 0]]), torch.tensor([[0, 0], [1, 2], [3, 0], [2, 2]]))
IDS, SOURCE = torch.tensor([[4, 7, 4, 9, 10]]), torch.tensor([[3, 5, 8, 5, 0, 0]])
REAL = torch.tensor([[True, True, True, True, False]])


def _random(model: nn.Module) -> nn.Module:
    """Return the model in double precision with random norms and biases, which begin as ones and zeros."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, p in model.double().named_parameters():
            p.add_(torch.randn(p.shape, generator=generator, dtype=p.dtype) * 0.3)
            if "bigrams" in name or "ngrams" in name:
                p[0] = 0
    for module in model.modules():
        if isinstance(module, RMSNorm):
            module.forward = partial(_rms_norm, module)
    return model.eval()


def _rms_norm(norm: RMSNorm, x: Tensor) -> Tensor:
    """Return what `RMSNorm` does, whose mean square is always in fp32, in the precision of x."""
    y = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + norm.eps) * norm.weight
    return step(norm, "norm", y, x, op="rms_norm", eps=norm.eps)


WITH_NGRAMS = {"ids": IDS, "padding_mask": REAL, "ngram_batch": NGRAMS}
PAIR = {"src": SOURCE, "tgt_in": IDS, "src_padding_mask": SOURCE != 0}
FAMILIES: dict[str, Callable[[ModelConfig], Any]] = {
    "classifier": lambda config: (TextClassifier(config, V, 3, L, 4, [(4, 7), (4, 9)]), WITH_NGRAMS, [1]),
    "masked": lambda config: (
        MaskedLanguageModel(config, V, L),
        {"ids": IDS, "padding_mask": REAL},
        [None, 6, None, 2, None],
    ),
    "language model": lambda config: (LanguageModel(config, V, L), {"ids": IDS}, [None, 4, 9, 10, 1]),
    "translator": lambda config: (Translator(config, V, S), PAIR, [7, 4, 9, 10, 2]),
}
"""Of each family a model, its inputs and its labels."""
PARTS: list[dict[str, Any]] = [
    {},
    {"activation": "gelu", "norm": "rms", "bias": False},
    {"activation": "gelu-tanh", "embedding_norm": True, "n_segments": 2},
    {"activation": "silu", "tie_embeddings": False, "output_bias": True},
    {"activation": "swiglu", "norm": "rms", "embedding_init_std": 0.05},
]
"""Every activation and norm, tied and untied, with and without biases, an embedding norm, a scale of embeddings."""


def _cases() -> Iterator[tuple[str, dict[str, Any]]]:
    positions = itertools.cycle(["sinusoidal", "learned", "rotary", "none"])
    for family, pre_norm, parts in itertools.product(FAMILIES, (True, False), PARTS):
        changes = {**parts, "pre_norm": pre_norm}
        if family not in ("classifier", "masked"):
            changes.pop("n_segments", None)
        yield family, {**changes, "positions": next(positions)}

    for pooling, pooler in zip(["mean", "max", "mean+max", "first"], ["none", "tanh", "relu", "tanh"], strict=True):
        yield "classifier", {"pooling": pooling, "pooler": pooler}


def _backward(model: nn.Module, inputs: dict[str, Any], labels: list[int | None]) -> dict[str, Step]:
    records = record(model, inputs)
    steps = {id: records[id] for id in records}
    steps |= loss_steps(steps["logits"], labels, SMOOTHING)
    return steps | backward_pass(steps, lambda name: get_parameter(model, name).detach(), records.params)


def _loss(model: nn.Module, inputs: dict[str, Any], labels: list[int | None]) -> Tensor:
    """Return the loss by torch alone."""
    rows = rows_of(exact_forward(model, **inputs)[0])
    y = torch.tensor([IGNORE_INDEX if label is None else label for label in labels])
    return F.cross_entropy(rows, y, ignore_index=IGNORE_INDEX, label_smoothing=SMOOTHING)


@for_each("family, changes", _cases())
def test_gradients_are_those_of_autograd(family: str, changes: dict[str, Any]) -> None:
    """Every parameter's to 1e-9 of the largest, and with it that of each step which it is computed from."""
    torch.manual_seed(0)
    model, inputs, labels = FAMILIES[family](replace(BASE, **changes))
    backward, loss = _backward(_random(model), inputs, labels), _loss(model, inputs, labels)
    assert abs(backward["loss"].value.item() - loss.item()) < 1e-12
    named = dict(model.named_parameters())
    for name, gradient in zip(named, torch.autograd.grad(loss, list(named.values()), allow_unused=True), strict=True):
        own = backward.get(f"{name}{GRADIENT}")
        if gradient is None:
            assert own is None, name
            continue
        assert own is not None, name
        assert own.shape == gradient.shape
        assert float((own.value - gradient).abs().max()) <= 1e-9 * float(gradient.abs().max().clamp(min=1e-6)), name


def test_every_operation_passes_back_to_all_it_takes_but_ids_and_masks() -> None:
    without = {"ids", "mask", "targets"}
    for name, row in OPERATIONS.items():
        assert set(row.arguments) - without == row.gradients.keys(), name
        for argument in row.gradients:
            assert set(row_of(f"{name}.{argument}").arguments) <= {*row.arguments, "y", "g"}
    recorded = {site.op for site in SITES.values()} - {"input"}
    assert recorded <= {name.partition(":")[0] for name in OPERATIONS}


def test_a_tied_table_gets_both_contributions() -> None:
    """The table that is embedding and output projection gets the sum of two gradients, each a step of its own."""
    model, inputs, labels = FAMILIES["language model"](BASE)
    backward = _backward(_random(model), inputs, labels)
    total = backward["embedding.weight.grad"]
    assert total.op == "sum" and len(total.inputs) == 2
    parts = [backward[id] for id in total.inputs]
    assert sorted(part.op for part in parts) == ["linear.weight", "lookup.weight"]
    assert torch.equal(total.value, parts[0].value + parts[1].value)


def test_the_forward_steps_stay_as_they_are() -> None:
    """The backward pass changes no number of the forward pass and leaves no gradient in the model."""
    model, inputs, labels = FAMILIES["translator"](BASE)
    model = _random(model)
    weights = copy.deepcopy(model.state_dict())
    plain = record(model, inputs)
    backward = _backward(model, inputs, labels)
    for id in plain:
        assert torch.equal(plain[id].value, backward[id].value), id
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
