"""Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon): every direction of a matrix moves alike.

A gradient of a matrix is dominated by a few directions. Muon averages gradients (momentum) and replaces the mean
by the nearest orthogonal matrix, so that rare directions are learned as fast as common ones. It is meant for the
matrices inside the layers; embeddings, norms, biases and heads are left to AdamW. torch has a Muon of its own, which
always multiplies in bf16, many times slower on a processor without it; here products have the run's precision.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.config import TrainConfig
from glassformer.nn import Decoder, Encoder
from glassformer.utils.device import choose_precision

COEFFICIENTS = 3.4445, -4.775, 2.0315
"""a, b, c of the iteration, tuned by Jordan for the steepest rise near zero."""
NEWTON_SCHULZ_STEPS = 5
"""Iterations, as in Jordan et al. 2024: they bring singular values from about .01 to between .7 and 1.2, which serves
as well as exactly 1."""


def orthogonalise(matrices: Float[Tensor, "B M N"], dtype: torch.dtype) -> Float[Tensor, "B M N"]:
    """About U Vᵀ of each matrix U S Vᵀ, by Newton–Schulz: X ← a X + (b A + c A²) X with A = X Xᵀ.

    Each iteration is an odd polynomial of the singular values, which are at most 1 after division by the norm; it pushes
    them towards 1 and leaves the singular vectors alone. `dtype` is what products are computed in.
    """
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = (matrices.mT if tall else matrices).to(dtype)  # wide: A is the smaller of the two squares
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """mean ← μ mean + (1 - μ) g, then weights ← (1 - lr λ) weights - lr √max(1, M/N) orthogonal(μ mean + (1 - μ) g).

    The mean looked at is Nesterov's, one gradient ahead. √max(1, M/N) gives a layer that widens its input outputs of
    the same size as a square one's.
    """

    def __init__(self, groups: list[dict[str, Any]], dtype: torch.dtype) -> None:
        super().__init__(groups, {})
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update of every matrix (M, N) that has a gradient.

        Matrices of one shape are turned together: a few products of many matrices cost less than many small ones.
        """
        for group in self.param_groups:
            alike: dict[torch.Size, list[Tensor]] = {}
            for matrix in group["params"]:
                if matrix.grad is not None:
                    alike.setdefault(matrix.shape, []).append(matrix)
            for shape, matrices in alike.items():
                looked_at = torch.stack([self._nesterov(matrix, group["momentum"]) for matrix in matrices])
                updates = orthogonalise(looked_at, self.dtype)
                rate = group["lr"] * math.sqrt(max(1.0, shape[0] / shape[1]))
                for matrix, update in zip(matrices, updates, strict=True):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"])
                    matrix.add_(update, alpha=-rate)

    def _nesterov(self, matrix: Tensor, momentum: float) -> Tensor:
        """The mean of the matrix's gradients, this one put in, and looked at one gradient ahead."""
        gradient, state = matrix.grad, self.state[matrix]
        assert gradient is not None
        if not state:
            state["mean"] = torch.zeros_like(matrix)
        mean = state["mean"].lerp_(gradient, 1 - momentum)
        return gradient.lerp(mean, momentum)


class Together(torch.optim.Optimizer):
    """Optimizers, each with parameters of its own, as one: their groups in a row, their state in one table."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.parts = parts
        for part in parts:
            part.state = self.state

    def step(self, closure: Any = None) -> Any:
        """One update of each."""
        for part in self.parts:
            part.step()


def muon_beside_adamw(model: nn.Module, config: TrainConfig) -> Together:
    """Muon for the matrices of linear layers in encoder and decoder, AdamW without decay for everything else.

    The schedule is that of `config.lr`, AdamW's; Muon's group says in "lr_factor" how far its own rate is from it.
    """
    c, stacks = config.muon, [m for m in model.modules() if isinstance(m, Encoder | Decoder)]
    linear = [m for stack in stacks for m in stack.modules() if isinstance(m, nn.Linear)]
    matrices = [m.weight for m in linear if m.weight.requires_grad]
    chosen = {id(matrix) for matrix in matrices}
    others = [p for p in model.parameters() if p.requires_grad and id(p) not in chosen]
    dtype = torch.bfloat16 if choose_precision(config.precision, others[0].device) == "bf16" else torch.float32
    group = {"params": matrices, "lr": c.matrix_lr, "lr_factor": c.matrix_lr / config.lr}
    group |= {"momentum": c.momentum, "weight_decay": c.weight_decay}
    adamw = torch.optim.AdamW(others, config.lr, (c.beta1, c.beta2), c.eps, weight_decay=0.0, fused=True)
    return Together(Muon([group], dtype), adamw)
