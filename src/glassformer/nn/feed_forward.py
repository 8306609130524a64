"""The position-wise feed-forward block: the same two (or three) linear layers at every position."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

Activation = Literal["relu", "gelu", "swiglu"]


class FeedForward(nn.Module):
    """W_out · activation(W_in · x) (paper, 3.3, with ReLU; GELU as in BERT and GPT)."""

    def __init__(
        self, d_model: int, d_ff: int, activation: Literal["relu", "gelu"] = "relu", bias: bool = True
    ):
        super().__init__()
        self.activation = activation
        self.w_in = nn.Linear(d_model, d_ff, bias=bias)
        self.w_out = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        hidden = self.w_in(x)
        return self.w_out(F.relu(hidden) if self.activation == "relu" else F.gelu(hidden))


class SwiGLU(nn.Module):
    """W_out · (silu(W_gate · x) ⊙ W_in · x) (Shazeer 2020): three matrices, so d_ff · 2/3 costs the same."""

    def __init__(self, d_model: int, d_ff: int, bias: bool = True):
        super().__init__()
        self.w_gate = nn.Linear(d_model, d_ff, bias=bias)
        self.w_in = nn.Linear(d_model, d_ff, bias=bias)
        self.w_out = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        return self.w_out(F.silu(self.w_gate(x)) * self.w_in(x))


def make_feed_forward(activation: Activation, d_model: int, d_ff: int, bias: bool = True) -> nn.Module:
    """The feed-forward block with that activation."""
    match activation:
        case "relu" | "gelu":
            return FeedForward(d_model, d_ff, activation, bias)
        case "swiglu":
            return SwiGLU(d_model, d_ff, bias)
