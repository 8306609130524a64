"""The feed-forward block: the same at every position."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.for_each import for_each
from torch import nn
from torch.nn import functional as F

from glassformer.config import ModelConfig
from glassformer.models import TextClassifier
from glassformer.nn.layers import FeedForward, SwiGLU, activate


@for_each("activation", ["relu", "gelu", "gelu-tanh", "silu"])
@for_each("bias", [True, False])
def test_two_linear_layers_and_the_activation_between(activation: str, bias: bool) -> None:
    block, x = FeedForward(6, 10, activation, bias), torch.randn(2, 3, 6)
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


@pytest.mark.row("1c")
@for_each("d_model", [4, 24])
def test_the_block_of_a_model_is_four_times_as_wide_as_the_model(d_model: int) -> None:
    """One of the sources writes 4·4, which is right at its own width of 4 alone."""
    model = TextClassifier(ModelConfig(n_layers=1, d_model=d_model, n_heads=2), 10, 2, 5)
    block = model.encoder.layers[0].feed_forward
    assert block.up_proj.out_features == block.down_proj.in_features == 4 * d_model


def test_swiglu_is_a_gate() -> None:
    block = SwiGLU(6, 10, bias=False)
    x = torch.randn(2, 3, 6)
    gate = x @ block.gate_proj.weight.T
    expected = (gate * torch.sigmoid(gate) * (x @ block.up_proj.weight.T)) @ block.down_proj.weight.T
    torch.testing.assert_close(block(x), expected)
    assert sum(p.numel() for p in block.parameters()) == 3 * 6 * 10


@pytest.mark.row("3a")
@for_each("name", ["mish", "swiglu", nn.ReLU, F.relu])
def test_an_activation_that_is_missing_is_said_and_not_replaced(name: object) -> None:
    with pytest.raises(ValueError, match=r"no activation .* `activate` in nn/layers.py has no case"):
        activate(name, torch.zeros(3))
