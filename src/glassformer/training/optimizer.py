"""Optimizers, the learning rate and the parameters with weight decay.

Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon) is momentum SGD with orthogonalised steps.

A few directions dominate the gradient of a matrix. Muon averages gradients (momentum) and replaces the average by the
nearest orthogonal matrix, so that rare directions are learned as fast as common ones. It is meant for the matrices
inside the layers; embeddings, norms, biases and heads are left to AdamW. `torch.optim.Muon` always multiplies in bf16,
which is many times slower on a CPU without it; here products have the run's precision.
"""

from __future__ import annotations

import inspect
import math
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.config import TrainConfig
from glassformer.errors import CheckpointError
from glassformer.nn.layers import Stack

ScheduleName = Literal["constant", "linear", "cosine", "inverse-sqrt"]


def lr_factor(schedule: ScheduleName, warmup: float, step: int, progress: float) -> float:
    """Return the factor of the peak learning rate, in [0, 1]: linear warmup, then decay from its end on.

    In a run of N steps with a warmup of W, after n = step - 1 steps, "linear" decays as 1 - (n - W) / (N - W), and
    "cosine" as half of 1 + cos(π (n - W) / (N - W)). N is n / progress, so that budgets in epochs decay alike.

    Args:
        schedule: the shape after a linear warmup. "inverse-sqrt" is that of Vaswani et al. 2017 (section 5.3), 1/√step,
            scaled to a peak of 1.
        warmup: a share of the run when below 1, a number of steps otherwise.
        step: the current step, counted from 1.
        progress: the share of the budget (epochs or steps) used before this step, in [0, 1].
    """
    if warmup >= 1:
        rise, since_warmup, n_steps = step / warmup, step / warmup, step - 1
        # (n - W) / (N - W) with N = n / progress; a warmup that takes the whole run has no decay.
        after = n_steps - warmup
        decay_progress = progress * after / (n_steps - progress * warmup) if after > 0 else 0.0
    elif warmup > 0:
        # A learning rate of exactly 0 would waste the first step, at progress 0.
        rise = max(progress, 1e-3 * warmup) / warmup
        decay_progress, since_warmup = max(0.0, (progress - warmup) / (1 - warmup)), progress / warmup
    else:
        rise, decay_progress, since_warmup = 1.0, progress, float(step)
    match schedule:
        case "constant":
            decay = 1.0
        case "linear":
            decay = 1.0 - decay_progress
        case "cosine":
            decay = 0.5 * (1.0 + math.cos(math.pi * decay_progress))
        case "inverse-sqrt":
            decay = max(since_warmup, 1.0) ** -0.5
    return min(1.0, rise) * decay


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


def eager(kind: type[torch.optim.Optimizer]) -> Any:
    """Return an optimizer of torch without its guards against `torch.compile`: they import the compiler, for seconds.

    The model may be compiled; no step is.
    """
    bare = {name: inspect.unwrap(getattr(kind, name)) for name in ("add_param_group", "zero_grad", "step")}
    return type("Eager", (kind,), bare | {"step": torch.no_grad()(bare["step"])})


Optimizer = eager(torch.optim.Optimizer)


class Muon(Optimizer):
    """m ← μ m + (1 - μ) g, then W ← (1 - lr λ) W - lr √max(1, M/N) orthogonalise(μ m + (1 - μ) g).

    The average that is orthogonalised is Nesterov's, one gradient ahead. √max(1, M/N) keeps the outputs of a layer that
    widens its input as large as those of a square one.
    """

    def __init__(self, groups: list[dict[str, Any]], dtype: torch.dtype) -> None:
        super().__init__(groups, {})
        self.dtype = dtype

    @torch.no_grad()
    def step(self) -> None:
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


class CombinedOptimizer(Optimizer):
    """Several optimizers of disjoint parameters as one, with their groups concatenated and their state shared."""

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        super().__init__([group for optimizer in optimizers for group in optimizer.param_groups], {})
        self.optimizers = optimizers
        for optimizer in optimizers:
            optimizer.state = self.state

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()


def make_optimizer(model: nn.Module, c: TrainConfig) -> torch.optim.Optimizer:
    """Return AdamW (Loshchilov and Hutter 2019), Adam (Vaswani et al. 2017, section 5.3), SGD, or Muon with AdamW.

    Weight decay applies to the matrices of linear layers only, not to embeddings, norms and biases. Muon has those of
    encoder and decoder, and AdamW without decay all the rest. The schedule sets AdamW's learning rate, `lr`; Muon's
    group holds its ratio to it as "lr_factor".
    """
    decay = c.weight_decay if c.weight_decay is not None else 0.01 if c.optimizer == "adamw" else 0.0
    momentum = c.momentum if c.momentum is not None else 0.95 if c.optimizer == "muon" else 0.0
    adam: dict[str, Any] = {"lr": c.lr, "betas": (c.beta1, c.beta2), "eps": c.eps, "fused": True}
    match c.optimizer:
        case "adamw":
            return eager(torch.optim.AdamW)(decay_groups(model, decay), **adam)
        case "adam":
            return eager(torch.optim.Adam)(decay_groups(model, 0.0), **adam)
        case "sgd":
            return eager(torch.optim.SGD)(decay_groups(model, decay), c.lr, momentum)
        case "muon":
            linear = [m for stack in model.modules() if isinstance(stack, Stack) for m in stack.modules()]
            names = {id(m.weight) for m in linear if isinstance(m, nn.Linear)}
            trained = [p for p in model.parameters() if p.requires_grad]
            matrices = [p for p in trained if id(p) in names]
            group = {"params": matrices, "lr": c.matrix_lr, "lr_factor": c.matrix_lr / c.lr}
            group |= {"momentum": momentum, "weight_decay": decay}
            dtype = torch.bfloat16 if c.precision == "bf16" else torch.float32
            others = [p for p in trained if id(p) not in names]
            return CombinedOptimizer(Muon([group], dtype), eager(torch.optim.AdamW)(others, **adam, weight_decay=0.0))


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Return parameter groups for torch: the matrices of linear layers, with weight decay, and the rest without."""
    decayed = {f"{name}.weight" for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    matrices, others = [p for n, p in named if n in decayed], [p for n, p in named if n not in decayed]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's state by parameter name, such as "decoder.layers.0….weight/exp_avg"."""
    return {
        f"{name}/{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def load_optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore the state that `optimizer_tensors` returned; a parameter that never had a gradient has none.

    Raises:
        CheckpointError: a tensor is of no parameter of this model, or of another shape.
    """
    parameters = dict(model.named_parameters())
    for full_name, value in tensors.items():
        name, _, key = full_name.rpartition("/")
        parameter = parameters.get(name)
        if parameter is None or (key != "step" and value.shape != parameter.shape):
            raise CheckpointError(f"the checkpoint's optimizer:{full_name} is of no parameter of this model")
        # On a GPU the fused kernel expects Adam's step count, a float scalar, on the device of the weights.
        optimizer.state[parameter][key] = value.to(parameter.device).clone()
