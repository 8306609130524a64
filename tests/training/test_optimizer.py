"""Each optimizer applies its settings, and weight decay to matrices only."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from glassformer.config import AdamConfig, AdamWConfig, SGDConfig, TrainConfig
from glassformer.training.optimizer import make_optimizer


def take_steps(config: TrainConfig, n: int = 1) -> tuple[nn.Sequential, nn.Sequential]:
    """Return a model before and after n steps with gradients of one."""
    torch.manual_seed(0)
    before, after = (nn.Sequential(nn.Embedding(4, 3), nn.Linear(3, 3)) for _ in range(2))
    after.load_state_dict(before.state_dict())
    optimizer = make_optimizer(after, config)
    for _ in range(n):
        for parameter in after.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    return before, after


def test_sgd_has_no_momentum_by_default() -> None:
    before, after = take_steps(TrainConfig(optimizer="sgd", lr=0.1), n=3)
    for old, new in zip(before.parameters(), after.parameters(), strict=True):
        torch.testing.assert_close(new, old - 0.3)


def test_sgd_momentum_adds_the_previous_step() -> None:
    before, after = take_steps(TrainConfig(optimizer="sgd", lr=0.1, sgd=SGDConfig(momentum=0.5)), n=2)
    for old, new in zip(before.parameters(), after.parameters(), strict=True):
        torch.testing.assert_close(new, old - 0.1 - 0.15)


@pytest.mark.parametrize(
    "config",
    [
        TrainConfig(optimizer="adamw", lr=0.1, adamw=AdamWConfig(weight_decay=0.5)),
        TrainConfig(optimizer="sgd", lr=0.1, sgd=SGDConfig(weight_decay=0.5)),
    ],
    ids=["adamw", "sgd"],
)
def test_weight_decay_applies_to_matrices_only(config: TrainConfig) -> None:
    before, after = take_steps(config)
    for (name, old), (_, new) in zip(before.named_parameters(), after.named_parameters(), strict=True):
        decayed = 0.05 * old if name == "1.weight" else torch.zeros(())
        torch.testing.assert_close(new, old - decayed - 0.1, msg=name)


def test_adam_equals_adamw_without_decay() -> None:
    betas = {"beta1": 0.8, "beta2": 0.9, "eps": 1e-6}
    _, adam = take_steps(TrainConfig(optimizer="adam", adam=AdamConfig(**betas)), n=3)
    _, adamw = take_steps(TrainConfig(adamw=AdamWConfig(**betas, weight_decay=0.0)), n=3)
    for one, other in zip(adam.parameters(), adamw.parameters(), strict=True):
        assert torch.equal(one, other)
