"""The position-wise feed-forward block: the same two (or three) linear layers at every position."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

Activation = Literal["relu", "gelu", "swiglu"]


def activate(name: object, hidden: Float[Tensor, "... F"]) -> Float[Tensor, "... F"]:
    """Apply the activation of that name element by element.

    Raises:
        ValueError: there is none of that name (or a class or function came where a name is expected).
    """
    match name:
        case "relu":
            return F.relu(hidden)
        case "gelu":
            return F.gelu(hidden)
        case _:
            raise ValueError(f"there is no activation {name!r}: `activate` in nn/feed_forward.py has no case")


class FeedForward(nn.Module):
    """down_proj(activation(up_proj(x))) (paper, 3.3, with ReLU; GELU as in BERT and GPT)."""

    def __init__(self, d_model: int, d_ff: int, activation: Activation = "relu", bias: bool = True) -> None:
        super().__init__()
        activate(activation, torch.empty(0))  # one that is missing fails here, not in the first forward
        self.activation = activation
        self.up_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.down_proj = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        return self.down_proj(activate(self.activation, self.up_proj(x)))


class SwiGLU(nn.Module):
    """down_proj(silu(gate_proj(x)) ⊙ up_proj(x)) (Shazeer 2020): three matrices, so d_ff · 2/3 costs the same."""

    def __init__(self, d_model: int, d_ff: int, bias: bool = True):
        super().__init__()
        self.gate_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.up_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.down_proj = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
