"""The training loop: exact resume, one division of the loss, budgets, NaN, patience; and what is minimised:
cross-entropy, or adversarial training with it, whatever the shape of the logits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.small import Small, config_of, data_of, small, small_run, state_sha256, steps_of, without_dropout
from torch.nn import functional as F

from glassformer.data.batches import Batch
from glassformer.decode.search import Hypothesis
from glassformer.errors import DivergedError
from glassformer.models.ensemble import members_of
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.runs import records
from glassformer.runs.model_folder import load_checkpoint, save_checkpoint
from glassformer.runs.records import StepMetrics
from glassformer.tasks.translate import Translate
from glassformer.training import finalize, loop
from glassformer.training.loop import TrainState, adversarial_backward, perturbation, word_dropout


def sha(state: TrainState) -> str:
    """The hash of everything but the wall clock."""
    return state_sha256(state.tensors(), asdict(state.progress) | {"seconds": 0})


def log_of(reports: list[StepMetrics]) -> list[tuple]:
    """What must be equal in two logs: everything but speed and time."""
    same = ("step", "epoch", "loss", "lr", "grad_norm", "padding", "valid", "update_ratios", "clipped")
    return [tuple(getattr(report, name) for name in same) for report in reports]


@pytest.mark.parametrize(
    ("task", "optimizer"), [("classify", "adamw"), ("translate", "adamw"), ("lm", "adamw"), ("lm", "muon")]
)
def test_resumed_is_uninterrupted_at_every_step(
    task: str, optimizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop after any update (epoch ends and validations included), resume from disk: the same bits, the same log."""
    monkeypatch.setattr(records, "UPDATES_EVERY", 4)  # the share that was clipped since counts over a checkpoint
    run = small(task, accumulate=2 if task == "classify" else 1, optimizer=optimizer, max_grad_norm=1e-6)
    whole, expected = run.new_state(), list[str]()  # the state after every update of an uninterrupted run
    reports = steps_of(whole, run.context, act=lambda _: expected.append(sha(whole)))
    epochs = [int(r.epoch) for r in reports]
    assert epochs[0] == 0 and max(epochs) >= 1, "the run must cross an epoch boundary"
    assert any(r.valid for r in reports[:-1])
    for k in range(1, len(expected)):
        first = run.new_state()
        run.run(first, most=k)
        assert sha(first) == expected[k - 1]
        path = save_checkpoint(tmp_path, k, first.tensors(), asdict(first.progress), keep=100)
        torch.manual_seed(999)  # whatever happened in between must not matter
        resumed = run.new_state()
        tensors, progress = load_checkpoint(path)
        resumed.load(tensors, loop.Progress(**progress))
        rest = run.run(resumed)
        assert sha(resumed) == expected[-1], f"resumed at {k}"
        assert log_of(rest) == log_of(reports[k:])


def test_accumulated_batches_equal_one_large_batch() -> None:
    """Two batches of unequal lengths, summed and divided once, give the gradient of their union."""
    run = small("translate")
    index = run.batches()[0]
    found = []
    for group in ([index], [index[: len(index) // 3], index[len(index) // 3 :]]):
        state = run.new_state()
        without_dropout(state.model)
        found.append(run.update(state, [run.batch(i) for i in group], 0.0))
    (loss, norm), (other_loss, other_norm) = found
    assert loss == pytest.approx(other_loss, rel=1e-5) and norm == pytest.approx(other_norm, rel=1e-4)


def test_nan_stops_before_the_update_and_names_the_examples() -> None:
    run = small("classify")
    state = run.new_state()
    run.run(state, most=2)
    before = {name: p.detach().clone() for name, p in state.model.named_parameters()}
    loss_sum = run.task.loss_sum
    run.task.loss_sum = lambda *a: loss_sum(*a) * float("nan")
    with pytest.raises(DivergedError, match=r"step 3 \(epoch 0, batch 2, examples \d+") as caught:
        run.run(state)
    assert caught.value.exit_code == 5
    after = dict(state.model.named_parameters())
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert state.progress.step == 2


def test_budgets_end_the_run_with_a_validation() -> None:
    for budget in ({"epochs": 1.5}, {"epochs": None, "steps": 7}):
        run = small("classify", **budget)
        last = run.run(run.new_state())[-1]
        assert last.valid is not None and last.progress == 1.0
        assert last.step == 7 if "steps" in budget else 1.5 <= last.epoch < 1.5 + 2 / len(run.batches(1))


def test_patience_stops_on_the_metric(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "glassformer")
    run = small("classify", epochs=50, lr=0.0, patience=3, ema_decay=0.0)
    state = run.new_state()
    reports = run.run(state)
    assert state.progress.finished == "patience"
    assert sum(r.valid is not None for r in reports) == 4  # the first is the best, three are not better
    assert f"ends at step {reports[-1].step}: 3 validations without a better one" in caplog.text


def test_masking_words_spares_special_tokens() -> None:
    run = small("translate")
    batch = run.batch(run.batches()[0])
    tokenizer, mask_id = run.task.tokenizer, run.task.tokenizer.mask_id
    masked = word_dropout(batch, tokenizer, 0.5, 0.0)
    special = batch.ids <= mask_id
    assert torch.equal(masked.ids[special], batch.ids[special])
    share = (masked.ids != batch.ids)[~special].float().mean().item()
    assert 0.3 < share < 0.7
    assert word_dropout(batch, tokenizer, 0.0, 0.0) is batch
    unknown = word_dropout(batch, tokenizer, 0.0, 0.5)
    changed = unknown.ids != batch.ids
    assert (unknown.ids[changed] == tokenizer.unk_id).all() and not changed[special].any() and changed.any()


def test_training_scores_compare_each_pair_with_its_own_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoding for training drops pairs that are too long or empty; the scores must not shift by them."""

    def reverse(task: Translate, model: object, sources: list[list[int]], *_: object) -> list[list[Hypothesis]]:
        return [[Hypothesis(ids[-2::-1], 0.0, 0.0, finished=True)] for ids in sources]  # without the end token

    monkeypatch.setattr(Translate, "_translate", reverse)
    data = data_of("translate", 12)
    sources, targets = list(data.train.text), list(data.train.answers)
    sources[0], targets[0], sources[4] = "a" * 40, "b" * 40, ""
    data = replace(data, train=replace(data.train, text=sources, answer=targets))
    run = small_run(config_of("translate", score_train=True, epochs=1), data)
    assert len(run.context.train) == 10
    valid = run.run(run.new_state())[-1].valid
    assert valid is not None and valid["train_exact_match"] == 10 / 12


def test_little_data_is_not_validated_after_every_few_updates() -> None:
    run = small("classify", epochs=4, validate_min_steps=12)
    reports = run.run(run.new_state())
    at = [r.step for r in reports if r.valid]
    assert at[-1] == len(reports)
    assert all(b - a >= 12 for a, b in zip([0, *at], at[:-1], strict=False)), at


def test_equal_metrics_are_decided_by_the_loss() -> None:
    """A metric that stays at zero while the loss falls is progress: patience must not run out."""
    run = small("translate", epochs=12, patience=2)
    run.task.metric = "exact_match"
    validate = run.task.validate
    run.task.validate = lambda *a: validate(*a) | {"exact_match": 0.0}
    state = run.new_state()
    reports = run.run(state)
    assert state.progress.finished == "budget" and reports[-1].epoch == 12
    assert state.progress.best_step > reports[0].step


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_random_states_of_accelerators_are_saved_and_restored(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is pretended, with one generator that counts how often it was drawn from."""
    drawn = torch.tensor([3], dtype=torch.uint8)
    state = small("classify").new_state()
    module, here = {"cuda": (torch.cuda, torch.cuda), "mps": (torch.mps, torch.backends.mps)}[device]
    monkeypatch.setattr(here, "is_available", lambda: True)
    monkeypatch.setattr(module, "get_rng_state", lambda: drawn.clone())
    monkeypatch.setattr(module, "set_rng_state", lambda other: (drawn.copy_(other), None)[1])
    tensors, expected = state.tensors(), torch.rand(4)
    assert tensors[f"rng:{device}"].tolist() == [3]
    drawn.fill_(9)
    state.load(tensors, state.progress)
    assert drawn.tolist() == [3] and torch.equal(torch.rand(4), expected)
    drawn.fill_(5)
    del tensors[f"rng:{device}"]  # of a machine that had none
    state.load(tensors, state.progress)
    assert drawn.tolist() == [5]


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd", "muon"])
def test_overfit_batch_has_no_weight_decay(optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def updated(state: finalize.TrainState, run: loop.RunContext, *_: object) -> tuple[float, float]:
        seen.append((run.config, run.task.config, {group["weight_decay"] for group in state.optimizer.param_groups}))
        return 0.0, 0.0

    monkeypatch.setattr(finalize, "optimizer_step", updated)
    given = small("classify", optimizer=optimizer, label_smoothing=0.1, weight_decay=0.3)
    assert finalize.overfit_batch(given.context) == 0.0
    [(of_run, of_task, decays)] = seen
    assert decays == {0.0} and of_run == of_task and of_run.train.label_smoothing == 0.0


TASKS = ["classify", "translate", "lm", "pretrain"]


def losses_of(run: Small, state: TrainState, batch: Batch, adversarial: float) -> list[float]:
    """The loss of the text, and that at the perturbed embeddings; gradients are added to those of the weights."""
    losses: list[float] = []
    hook = state.train_module.register_forward_hook(lambda *call: losses.append(call[-1].item()))
    context = run.context.with_config(replace(run.config, train=replace(run.config.train, adversarial=adversarial)))
    reported = adversarial_backward(state.train_module, context, batch, 1.0, True)
    hook.remove()
    assert reported.item() == losses[0] and len(losses) == 2
    return losses


def test_a_step_uphill_is_as_long_as_asked_and_padding_takes_no_part() -> None:
    x, slope = torch.randn(2, 5, 3), torch.randn(2, 5, 3)
    slope[1, 2:] = 0.0
    step = perturbation(x, slope, 0.1)
    assert step[0].norm().item() == pytest.approx(0.1 * x[0].norm().item(), rel=1e-5)
    assert step[1].norm().item() == pytest.approx(0.1 * x[1, :2].norm().item(), rel=1e-5)
    assert torch.equal(step[1, 2:], torch.zeros(3, 3))
    assert F.cosine_similarity(step.flatten(1), slope.flatten(1)).tolist() == pytest.approx([1.0, 1.0])
    assert torch.equal(perturbation(x, torch.zeros_like(x), 0.1), torch.zeros_like(x))


@for_each("task", TASKS)
def test_the_gradient_is_that_of_the_paper_written_out(task: str) -> None:
    """With dropout, which differs between the two passes; nothing is left behind in the model."""
    run = small(task, label_smoothing=0.1)
    state, batch = run.new_state(), run.batch(run.batches()[0])
    weights = [p for p in state.model.parameters() if p.requires_grad]
    vectors: list[torch.Tensor] = []
    tables = [module for module in state.model.modules() if isinstance(module, TokenEmbedding)]

    def loss_with(change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        hooks = [table.register_forward_hook(lambda *call: change(call[-1])) for table in tables]
        loss = run.task.loss_sum(state.model, batch, 0.1)
        for hook in hooks:
            hook.remove()
        return loss

    torch.manual_seed(3)
    loss = loss_with(lambda x: vectors.append(x) or x)
    slopes = torch.autograd.grad(loss, vectors, retain_graph=True)
    steps = iter([perturbation(x.detach(), slope, 0.1) for x, slope in zip(vectors, slopes, strict=True)])
    above = loss_with(lambda x: x + next(steps))
    expected = torch.autograd.grad((loss + above) / 2, weights, allow_unused=True)

    torch.manual_seed(3)
    assert losses_of(run, state, batch, 0.1) == pytest.approx([loss.item(), above.item()], rel=1e-6)
    for weight, gradient in zip(weights, expected, strict=True):
        assert (weight.grad is None) == (gradient is None)
        if weight.grad is not None and gradient is not None:
            assert torch.allclose(weight.grad, gradient, rtol=1e-4, atol=1e-6)
    torch.manual_seed(3)
    assert torch.equal(run.task.loss_sum(state.model, batch, 0.1), loss)


def test_members_of_an_ensemble_are_each_led_uphill() -> None:
    config = config_of("classify", adversarial=0.1)
    run = small_run(replace(config, model=replace(config.model, dropout=0.0, ensemble_size=2)), data_of("classify"))
    state, batch = run.new_state(), run.batch(run.batches()[0])
    context, members = run.context, members_of(state.model)
    loss, above = losses_of(run, state, batch, 0.1)
    alone = [run.task.loss_sum(member, batch).item() for member in members]
    assert above > loss == pytest.approx(sum(alone) / 2, rel=1e-5)
    for member in members:  # its gradient is half of what it is alone
        found = [p.grad.clone() for p in member.parameters() if p.grad is not None]
        member.zero_grad()
        adversarial_backward(loop.LossModule(member, run.task), context, batch, 2.0, True)
        for p, expected in zip([p for p in member.parameters() if p.grad is not None], found, strict=True):
            assert torch.allclose(p.grad, expected, rtol=1e-3, atol=1e-6)  # pyright: ignore[reportArgumentType]


def test_a_batch_without_labels_adds_zero() -> None:
    run = small("classify")
    state, batch = run.new_state(), replace(run.batch(run.batches()[0]), n_tokens=0, n_labels=0)
    for add_gradient in (loop.backward, adversarial_backward):
        assert add_gradient(state.train_module, run.context, batch, 1.0, True).item() == 0.0
        assert all(p.grad is None or not p.grad.any() for p in state.model.parameters())
