"""The feed-forward block: the same at every position."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.for_each import for_each
from torch import nn
from torch.nn import functional as F

from glassformer.nn.layers import FeedForward, SwiGLU, activate


@for_each("activation", ["relu", "gelu"])
@for_each("bias", [True, False])
def test_two_linear_layers_and_the_activation_between(activation: str, bias: bool) -> None:
    block = FeedForward(6, 10, activation, bias)
    x = torch.randn(2, 3, 6)
    hidden = x @ block.up_proj.weight.T + (block.up_proj.bias if bias else 0)
    hidden = hidden.clamp(min=0) if activation == "relu" else hidden * (1 + torch.erf(hidden / 2**0.5)) / 2
    torch.testing.assert_close(block(x), hidden @ block.down_proj.weight.T + (block.down_proj.bias if bias else 0))
    assert sum(p.numel() for p in block.parameters()) == 2 * 6 * 10 + bias * (10 + 6)


def test_swiglu_is_a_gate() -> None:
    block = SwiGLU(6, 10, bias=False)
    x = torch.randn(2, 3, 6)
    gate = x @ block.gate_proj.weight.T
    expected = (gate * torch.sigmoid(gate) * (x @ block.up_proj.weight.T)) @ block.down_proj.weight.T
    torch.testing.assert_close(block(x), expected)
    assert sum(p.numel() for p in block.parameters()) == 3 * 6 * 10


@for_each("activation", ["relu", "gelu", "gelu-tanh", "silu", "swiglu"])
def test_every_position_alike(activation: str) -> None:
    block = SwiGLU(6, 10) if activation == "swiglu" else FeedForward(6, 10, activation)
    x = torch.randn(1, 5, 6)
    order = torch.tensor([4, 2, 0, 1, 3])
    torch.testing.assert_close(block(x)[:, order], block(x[:, order]))


@for_each("name", ["mish", "swiglu", nn.ReLU, F.relu])
def test_an_activation_that_is_missing_is_said_and_not_replaced(name: object) -> None:
    """A third one used to become GELU in silence."""
    with pytest.raises(ValueError, match=r"no activation .* `activate` in nn/layers.py has no case"):
        activate(name, torch.zeros(3))
