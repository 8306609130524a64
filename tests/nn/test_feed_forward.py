"""The feed-forward block: the same at every position."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.for_each import for_each
from torch import nn
from torch.nn import functional as F

from glassformer.nn.layers import FeedForward, SwiGLU, activate


@for_each("activation", ["relu", "gelu", "gelu-tanh", "silu"])
@for_each("bias", [True, False])
def test_two_linear_layers_and_the_activation_between(activation: str, bias: bool) -> None:
    block = FeedForward(6, 10, activation, bias)
    x = torch.randn(2, 3, 6)
    hidden = x @ block.up_proj.weight.T + (block.up_proj.bias if bias else 0)
    t = torch.tanh((2 / torch.pi) ** 0.5 * (hidden + 0.044715 * hidden**3))
    hidden = {
        "relu": hidden.clamp(min=0),
        "gelu": hidden * (1 + torch.erf(hidden / 2**0.5)) / 2,
        "gelu-tanh": hidden * (1 + t) / 2,
        "silu": hidden / (1 + (-hidden).exp()),
    }[activation]
    torch.testing.assert_close(block(x), hidden @ block.down_proj.weight.T + (block.down_proj.bias if bias else 0))
    assert sum(p.numel() for p in block.parameters()) == 2 * 6 * 10 + bias * (10 + 6)


def test_swiglu_is_a_gate() -> None:
    block = SwiGLU(6, 10, bias=False)
    x = torch.randn(2, 3, 6)
    gate = x @ block.gate_proj.weight.T
    expected = (gate * torch.sigmoid(gate) * (x @ block.up_proj.weight.T)) @ block.down_proj.weight.T
    torch.testing.assert_close(block(x), expected)
    assert sum(p.numel() for p in block.parameters()) == 3 * 6 * 10


@for_each("name", ["mish", "swiglu", nn.ReLU, F.relu])
def test_an_activation_that_is_missing_is_said_and_not_replaced(name: object) -> None:
    """A third one used to become GELU in silence."""
    with pytest.raises(ValueError, match=r"no activation .* `activate` in nn/layers.py has no case"):
        activate(name, torch.zeros(3))
