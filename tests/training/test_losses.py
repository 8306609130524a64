"""What is minimised: cross-entropy, or adversarial training with it, whatever the shape of the logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.small import Small, config_of, data_of, small, small_run
from torch.nn import functional as F

from glassformer.data.batches import Batch
from glassformer.models.ensemble import members_of
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.training.loop import LossModule, TrainState, adversarial_backward, backward, perturbation

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
        adversarial_backward(LossModule(member, run.task), context, batch, 2.0, True)
        for p, expected in zip([p for p in member.parameters() if p.grad is not None], found, strict=True):
            assert torch.allclose(p.grad, expected, rtol=1e-3, atol=1e-6)  # pyright: ignore[reportArgumentType]


def test_a_batch_without_labels_adds_zero() -> None:
    run = small("classify")
    state, batch = run.new_state(), replace(run.batch(run.batches()[0]), n_tokens=0, n_labels=0)
    for add_gradient in (backward, adversarial_backward):
        assert add_gradient(state.train_module, run.context, batch, 1.0, True).item() == 0.0
        assert all(p.grad is None or not p.grad.any() for p in state.model.parameters())
