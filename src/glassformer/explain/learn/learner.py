"""A copy of a model that learns one answer: the optimizer's steps, as the training loop takes them, one at a time."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config import TrainConfig
from glassformer.errors import UsageError
from glassformer.explain.capture.exact_inference import exact_forward
from glassformer.explain.learn.loss import EncodedAnswer
from glassformer.explain.predictions import rows_of
from glassformer.explain.subject import View
from glassformer.nn.cross_entropy import IGNORE_INDEX, cross_entropy_sum
from glassformer.training.optimizer import CombinedOptimizer, Muon, make_optimizer

MAX_BYTES = 1 << 30
"""Most memory of the weights with their gradients and the optimizer's state."""
NEAR = 0.1
"""Standard deviations of the training numbers within which a number is right."""
COPIES = 10
"""Tensors of a parameter's size that are held at most: of the copy the weights after and before the last step, its
gradient and two averages before and after it; and the gradients before the first step, after the last one, and by
autograd. The first step needs three fewer."""


@dataclass(frozen=True)
class StepTaken:
    """One step of the optimizer on the answer."""

    loss: float
    """The loss before the step, in nats per label, or as a squared error."""
    grad_norm: float
    """The norm of all gradients together, before clipping."""
    clipped: float
    """The factor that clipping multiplies them by, 1 for none."""
    right: bool
    """Whether before the step every label was the most probable one, or the number within 0.1 standard deviations."""


@dataclass(frozen=True)
class ParameterGroup:
    """The parameters that the optimizer treats alike."""

    optimizer: str
    """"adamw", "adam", "sgd" or "muon"; with Muon the parameters that it leaves out have "adamw"."""
    constants: dict[str, float]
    """The numbers of the formula, by PyTorch's names: lr, beta1, beta2, eps, weight_decay, momentum."""
    params: list[str]
    """The names of the parameters."""
    dtype: str
    """The type in which Muon multiplies matrices, "float32" or "bfloat16"; all else is float32."""


AVERAGES = ("exp_avg", "exp_avg_sq", "momentum_buffer")
"""PyTorch's names of what an optimizer keeps of each parameter."""
BEFORE = "_before"
UPDATE_PARTS = ("before", "clipped_grad", *AVERAGES, *(name + BEFORE for name in AVERAGES))
"""What is kept of the last step of each parameter: its value before, its gradient after clipping, and the averages of
the optimizer after the step and before it. "head.weight.exp_avg" is one, "head.weight.exp_avg_before" another."""


def loss_and_right(model: nn.Module, answer: EncodedAnswer, smoothing: float) -> tuple[Tensor, bool]:
    """Return the loss of the answer as training computes it, and whether the model predicts it.

    The loss is in nats per label, of a number the square of the error in standard deviations of the training numbers.
    """
    logits = rows_of(exact_forward(model, **answer.encoded.model_inputs)[0])
    if answer.target is not None:
        error = logits.sum() - answer.target  # of one output
        return error.square(), abs(error.item()) <= NEAR
    labels = torch.tensor([IGNORE_INDEX if y is None else y for y in answer.labels], device=logits.device)
    scored = labels != IGNORE_INDEX
    right = bool((logits.detach().reshape(len(labels), -1).argmax(dim=-1) == labels)[scored].all())
    return cross_entropy_sum(logits, labels, smoothing) / max(1, int(scored.sum())), right


def loss_of(model: nn.Module, answer: EncodedAnswer, smoothing: float) -> Tensor:
    """Return the loss of the answer as training computes it."""
    return loss_and_right(model, answer, smoothing)[0]


def autograd_gradients(model: nn.Module, answer: EncodedAnswer, smoothing: float) -> dict[str, Tensor]:
    """Return the gradient of each parameter by autograd; without those that the loss does not depend on."""
    named = dict(model.named_parameters())
    trainable = [p.requires_grad for p in named.values()]
    try:
        for p in named.values():
            p.requires_grad_(True)
        with torch.enable_grad():
            loss = loss_of(model, answer, smoothing)
            found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    finally:
        for p, trains in zip(named.values(), trainable, strict=True):
            p.requires_grad_(trains)
    return {name: g for name, g in zip(named, found, strict=True) if g is not None}


class Learner:
    """A copy of a model that learns one answer, step by step.

    Args:
        subject: the model, which is not changed.
        answer: the text and its labels.
        config: the settings of training: optimizer, learning rate, clipping, label smoothing.
    """

    def __init__(self, subject: View, answer: EncodedAnswer, config: TrainConfig) -> None:
        self.subject, self.answer, self.config = subject, answer, config
        self.model = copy.deepcopy(subject.model)
        for p in self.model.parameters():
            p.requires_grad_(True)
        self.optimizer = make_optimizer(self.model, config)
        self.steps: list[StepTaken] = []
        self.before: dict[str, Tensor] = {}
        self.gradients: dict[str, Tensor] = {}
        self.averages: dict[str, dict[str, Tensor]] = {}

    def step(self) -> None:
        """Take one step: gradients, clipping, optimizer. As `training/loop.py` does, with dropout off.

        Raises:
            UsageError: the loss or the gradients are not finite.
        """
        named = dict(self.model.named_parameters())
        self.before, self.gradients, self.averages = {}, {}, {}  # free those of the step before first
        first = dict(self.subject.model.named_parameters())  # which are not changed, and need no copy
        self.before = {name: p.detach().clone() if self.steps else first[name].detach() for name, p in named.items()}
        with torch.enable_grad():
            loss, right = loss_and_right(self.model, self.answer, self.config.label_smoothing)
            loss.backward()
        most = self.config.max_grad_norm if self.config.max_grad_norm > 0 else float("inf")
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), most))
        if not (np.isfinite(loss.item()) and np.isfinite(norm)):
            raise UsageError(f"after {len(self.steps)} steps the loss is {loss.item()}", "lower the learning rate")
        # No optimizer writes into a gradient, and `zero_grad` lets go of it.
        self.gradients = {name: p.grad for name, p in named.items() if p.grad is not None}
        self.averages = {name: self._averages(p) for name, p in named.items()}
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.lr * group.get("lr_factor", 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps.append(StepTaken(loss.item(), norm, min(1.0, most / (norm + 1e-6)), right))

    def _averages(self, parameter: Tensor) -> dict[str, Tensor]:
        """Return copies of what the optimizer keeps of a parameter; zeros before the first step."""
        if not (state := self.optimizer.state.get(parameter, {})):
            return dict.fromkeys(AVERAGES, parameter.detach().new_zeros(()).expand_as(parameter))
        return {name: state[name].clone() for name in AVERAGES if isinstance(state.get(name), Tensor)}

    def groups(self) -> list[ParameterGroup]:
        """Return the parameters by how the optimizer treats them, with the constants of its formula."""
        names = {id(p): name for name, p in self.model.named_parameters()}
        made = []
        for group in self.optimizer.param_groups:
            numbers = {k: float(v) for k, v in group.items() if type(v) in (int, float) and k != "lr_factor"}
            numbers["lr"] = self.config.lr * group.get("lr_factor", 1.0)
            optimizer = self.config.optimizer
            if "betas" in group:
                numbers |= dict(zip(("beta1", "beta2"), group["betas"], strict=True))
                optimizer = "adam" if optimizer == "adam" else "adamw"
            dtype = str(self._dtype).removeprefix("torch.") if optimizer == "muon" else "float32"
            made.append(ParameterGroup(optimizer, numbers, [names[id(p)] for p in group["params"]], dtype))
        return made

    def part(self, parameter: str, part: str) -> Tensor:
        """Return a tensor of the last update of a parameter; `part` is one of `UPDATE_PARTS`.

        Raises:
            UsageError: no step was taken, or the optimizer keeps no such average.
        """
        tensor = self._kept(parameter, part)
        if tensor is None:
            raise UsageError(f"there is no {part} of {parameter}", f"{self.config.optimizer} took {self.n_steps} steps")
        return tensor

    def has(self, parameter: str, part: str) -> bool:
        """Return whether there is a tensor of the last update of a parameter."""
        return self._kept(parameter, part) is not None

    def _kept(self, parameter: str, part: str) -> Tensor | None:
        if part in ("before", "clipped_grad"):
            return (self.before if part == "before" else self.gradients).get(parameter)
        name, after = part.removesuffix(BEFORE), self.optimizer.state.get(self.model.get_parameter(parameter), {})
        if name == part or not isinstance(after.get(name), Tensor):
            return after.get(name)
        return self.averages[parameter].get(name)

    @property
    def _dtype(self) -> torch.dtype:
        """Return the type in which Muon multiplies."""
        combined = self.optimizer.optimizers if isinstance(self.optimizer, CombinedOptimizer) else ()
        return next((one.dtype for one in combined if isinstance(one, Muon)), torch.float32)

    @property
    def n_steps(self) -> int:
        """Return the number of steps taken."""
        return len(self.steps)


def check_size(model: nn.Module) -> None:
    """Refuse a model whose weights, gradients and averages take more than a gigabyte."""
    size = COPIES * sum(p.numel() * p.element_size() for p in model.parameters())
    if size > MAX_BYTES:
        message = f"learning needs {size / 2**30:.1f} GiB for this model's gradients and averages; the limit is 1 GiB"
        raise UsageError(message, "learn with a smaller model, or with a shorter vocabulary")
