"""What is minimised: cross-entropy, or adversarial training beside it, whatever the shape of the logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.helpers.small import config_of, data_of, small, small_run
from torch.nn import functional as F

from glassformer.config.recipes import override
from glassformer.errors import UsageError
from glassformer.nn.dropout import Dropout
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.training.losses import PrecomputedGrad, loss_from_config, perturbation

TASKS = ["classify", "translate", "lm", "pretrain"]


def without_dropout(model: torch.nn.Module) -> torch.nn.Module:
    for module in model.modules():
        if isinstance(module, Dropout):
            module.p = 0.0
    return model


def test_the_log_reports_the_cross_entropy_alone() -> None:
    losses = []
    for length in (0.0, 0.5):
        run = small("classify", adversarial=length)
        state = run.new_state()
        without_dropout(state.model)
        losses.append(run.update(state, [run.batch(run.batches()[0])], 0.0)[0])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_a_step_uphill_is_as_long_as_asked_and_padding_takes_no_part() -> None:
    x, slope = torch.randn(2, 5, 3), torch.randn(2, 5, 3)
    slope[1, 2:] = 0.0
    step = perturbation(x, slope, 0.1)
    assert step[0].norm().item() == pytest.approx(0.1 * x[0].norm().item(), rel=1e-5)
    assert step[1].norm().item() == pytest.approx(0.1 * x[1, :2].norm().item(), rel=1e-5)
    assert torch.equal(step[1, 2:], torch.zeros(3, 3))
    assert F.cosine_similarity(step.flatten(1), slope.flatten(1)).tolist() == pytest.approx([1.0, 1.0])
    assert torch.equal(perturbation(x, torch.zeros_like(x), 0.1), torch.zeros_like(x))


@pytest.mark.parametrize("task", TASKS)
def test_the_step_uphill_raises_the_loss_and_none_changes_nothing(task: str) -> None:
    run = small(task, label_smoothing=0.1)
    state, batch = run.new_state(), run.batch(run.batches()[0])
    model = without_dropout(state.model)
    plain = run.task.loss_sum(model, batch, 0.1)
    rises = []
    for length in (1e-6, 0.03, 0.1):
        train = replace(run.config.train, adversarial=length)
        minimised, loss = loss_from_config(train)(run.task, model, batch)
        assert loss.item() == pytest.approx(plain.item(), rel=1e-5)
        rises.append((minimised - loss).item() / loss.item())
    assert abs(rises[0]) < 1e-5 < 1e-4 < rises[1] < rises[2]
    assert torch.equal(run.task.loss_sum(model, batch, 0.1), plain)  # nothing is left behind in the model


@pytest.mark.parametrize("task", TASKS)
def test_the_gradient_is_that_of_both_losses_with_the_step_held_fixed(task: str) -> None:
    """Twice through one graph: the second time must find what the first one found."""
    run = small(task)
    state, batch = run.new_state(), run.batch(run.batches()[0])
    model = without_dropout(state.model)
    weights = [p for p in model.parameters() if p.requires_grad]
    twice, _ = loss_from_config(replace(run.config.train, adversarial=1e-6))(run.task, model, batch)
    found = torch.autograd.grad(twice, weights)
    plain = torch.autograd.grad(run.task.loss_sum(model, batch), weights)
    for a, b in zip(found, plain, strict=True):
        assert torch.allclose(a, b, rtol=1e-3, atol=1e-6 + 1e-3 * b.abs().max().item())


@pytest.mark.parametrize("task", TASKS)
def test_the_gradient_is_that_of_the_paper_written_out(task: str) -> None:
    """With dropout, and the loss of the text as it is differentiated again and not remembered."""
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
    minimised, reported = loss_from_config(replace(run.config.train, adversarial=0.1))(run.task, state.model, batch)
    minimised.backward()
    assert minimised.item() == pytest.approx((loss + above).item() / 2, rel=1e-6)
    assert reported.item() == pytest.approx(loss.item(), rel=1e-6)
    for weight, gradient in zip(weights, expected, strict=True):
        assert (weight.grad is None) == (gradient is None)
        if weight.grad is not None and gradient is not None:
            assert torch.allclose(weight.grad, gradient, rtol=1e-4, atol=1e-6)


def test_a_gradient_that_two_weights_share_is_scaled_once() -> None:
    first, second = (torch.zeros(3, requires_grad=True) for _ in range(2))
    slope = torch.tensor([1.0, 2.0, 3.0])
    known = PrecomputedGrad.apply(torch.tensor(5.0), [slope, slope], first, second)
    assert known.item() == 5.0
    (known * 0.5).backward()
    assert first.grad is not None and second.grad is not None
    assert first.grad.tolist() == second.grad.tolist() == [0.5, 1.0, 1.5]


def test_what_is_computed_again_can_be_computed_twice() -> None:
    """Layers that keep nothing (`recompute`) are asked for the slope, and then for the gradient."""
    found = []
    for recompute in (False, True):
        run = small("translate", adversarial=0.1, activation_checkpointing=recompute)
        state, batch = run.new_state(), run.batch(run.batches()[0])
        model = without_dropout(state.model)
        minimised, _ = loss_from_config(run.config.train)(run.task, model, batch)
        minimised.backward()
        found.append([p.grad for p in model.parameters()])
    for a, b in zip(*found, strict=True):
        assert a is not None and b is not None and torch.allclose(a, b, rtol=1e-4, atol=1e-6)


def test_members_of_an_ensemble_are_each_led_uphill() -> None:
    config = config_of("classify", adversarial=0.1)
    run = small_run(replace(config, model=replace(config.model, dropout=0.0, ensemble_size=2)), data_of("classify"))
    state, batch = run.new_state(), run.batch(run.batches()[0])
    minimised, loss = loss_from_config(run.config.train)(run.task, state.model, batch)
    assert minimised > loss
    assert loss.item() == pytest.approx(run.task.loss_sum(state.model, batch).item(), rel=1e-5)


@pytest.mark.parametrize("other", [{"compile": True}])
def test_what_adversarial_training_cannot_share_is_refused(other: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="adversarial"):
        override(config_of("classify", adversarial=0.1, **other), {})
