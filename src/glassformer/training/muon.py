"""Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon): momentum SGD with orthogonalised steps.

A few directions dominate the gradient of a matrix. Muon averages gradients (momentum) and replaces the average by the
nearest orthogonal matrix, so that rare directions are learned as fast as common ones. It is meant for the matrices
inside the layers; embeddings, norms, biases and heads are left to AdamW. `torch.optim.Muon` always multiplies in bf16,
which is many times slower on a CPU without it; here products have the run's precision.
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
"""a, b, c of the Newton–Schulz iteration, tuned by Jordan for the largest slope at zero."""
NEWTON_SCHULZ_STEPS = 5
"""Five, as in Jordan et al. 2024, bring singular values above about 0.01 into [0.7, 1.2], which works as well as 1."""


def orthogonalise(matrices: Float[Tensor, "B M N"], dtype: torch.dtype) -> Float[Tensor, "B M N"]:
    """Return approximately U Vᵀ of each matrix U S Vᵀ, by Newton–Schulz: X ← a X + (b A + c A²) X with A = X Xᵀ.

    Each iteration applies an odd polynomial to the singular values, which are at most 1 after division by the norm. It
    moves them towards 1 and keeps the singular vectors. Products are computed in `dtype`.
    """
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    # Of a wide matrix, A is the smaller of the two square products.
    x = (matrices.mT if tall else matrices).to(dtype)
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """m ← μ m + (1 - μ) g, then W ← (1 - lr λ) W - lr √max(1, M/N) orthogonalise(μ m + (1 - μ) g).

    The average that is orthogonalised is Nesterov's, one gradient ahead. √max(1, M/N) keeps the outputs of a layer that
    widens its input as large as those of a square one.
    """

    def __init__(self, groups: list[dict[str, Any]], dtype: torch.dtype) -> None:
        super().__init__(groups, {})
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update every matrix (M, N) that has a gradient.

        Matrices of one shape are orthogonalised in one batch: a few batched products cost less than many small ones.
        """
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for matrix in group["params"]:
                if matrix.grad is not None:
                    by_shape.setdefault(matrix.shape, []).append(matrix)
            for shape, matrices in by_shape.items():
                momenta = torch.stack([self._nesterov(matrix, group["momentum"]) for matrix in matrices])
                updates = orthogonalise(momenta, self.dtype)
                lr = group["lr"] * math.sqrt(max(1.0, shape[0] / shape[1]))
                for matrix, update in zip(matrices, updates, strict=True):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"])
                    matrix.add_(update, alpha=-lr)

    def _nesterov(self, matrix: Tensor, momentum: float) -> Tensor:
        """Add the gradient to the average; return Nesterov's, one gradient ahead."""
        gradient, state = matrix.grad, self.state[matrix]
        assert gradient is not None
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        average = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        return gradient.lerp(average, momentum)


class CombinedOptimizer(torch.optim.Optimizer):
    """Several optimizers of disjoint parameters as one, with their groups concatenated and their state shared."""

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        super().__init__([group for optimizer in optimizers for group in optimizer.param_groups], {})
        self.optimizers = optimizers
        for optimizer in optimizers:
            optimizer.state = self.state

    def step(self, closure: Any = None) -> Any:
        for optimizer in self.optimizers:
            optimizer.step()


def muon_with_adamw(model: nn.Module, config: TrainConfig) -> CombinedOptimizer:
    """Return Muon for the matrices of linear layers in encoder and decoder, AdamW without decay for all the rest.

    The schedule sets AdamW's learning rate, `config.lr`; Muon's group holds its ratio to it as "lr_factor".
    """
    c, stacks = config.muon, [m for m in model.modules() if isinstance(m, Encoder | Decoder)]
    linear = [m for stack in stacks for m in stack.modules() if isinstance(m, nn.Linear)]
    matrices = [m.weight for m in linear if m.weight.requires_grad]
    matrix_ids = {id(matrix) for matrix in matrices}
    others = [p for p in model.parameters() if p.requires_grad and id(p) not in matrix_ids]
    dtype = torch.bfloat16 if choose_precision(config.precision, others[0].device) == "bf16" else torch.float32
    group = {"params": matrices, "lr": c.matrix_lr, "lr_factor": c.matrix_lr / config.lr}
    group |= {"momentum": c.momentum, "weight_decay": c.weight_decay}
    adamw = torch.optim.AdamW(others, config.lr, (c.beta1, c.beta2), c.eps, weight_decay=0.0, fused=True)
    return CombinedOptimizer(Muon([group], dtype), adamw)
