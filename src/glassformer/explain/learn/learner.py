"""A copy of a model that learns one answer: the optimizer's steps, as the training loop takes them, one at a time."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config import TrainConfig
from glassformer.errors import UsageError
from glassformer.explain.capture.exact_inference import exact_forward
from glassformer.explain.learn.loss import EncodedAnswer
from glassformer.explain.predictions import rows_of
from glassformer.explain.subject import Subject
from glassformer.nn.cross_entropy import IGNORE_INDEX, cross_entropy_sum
from glassformer.training.optimizer import load_optimizer_tensors, make_optimizer

MAX_BYTES = 1 << 30
"""Most memory of the weights with their gradients and the optimizer's state."""
COPIES = 8
"""Tensors of a parameter's size that are held: of the copy the weights after and before the last step, its gradient and
two averages; and the gradients before the first step, after the last one, and by autograd."""


@dataclass(frozen=True)
class StepTaken:
    """One step of the optimizer on the answer."""

    loss: float
    """The loss before the step, in nats per label."""
    grad_norm: float
    """The norm of all gradients together, before clipping."""
    clipped: float
    """The factor that clipping multiplies them by, 1 for none."""


@dataclass(frozen=True)
class ParameterGroup:
    """The parameters that the optimizer treats alike."""

    optimizer: str
    """"adamw", "adam", "sgd" or "muon"; with Muon the parameters that it leaves out have "adamw"."""
    constants: dict[str, float]
    """The numbers of the formula, by PyTorch's names: lr, beta1, beta2, eps, weight_decay, momentum."""
    params: list[str]
    """The names of the parameters."""


UPDATE_PARTS = ("before", "clipped_grad", "exp_avg", "exp_avg_sq", "momentum_buffer")
"""What is kept of the last step of each parameter: its value before, its gradient after clipping, and the averages of
the optimizer after the step, by PyTorch's names. "head.weight.exp_avg" is one."""


def loss_of(model: nn.Module, answer: EncodedAnswer, smoothing: float) -> Tensor:
    """Return the loss of the answer in nats per label, as training computes it."""
    logits = rows_of(exact_forward(model, **answer.encoded.model_inputs)[0])
    labels = torch.tensor([IGNORE_INDEX if y is None else y for y in answer.labels], device=logits.device)
    return cross_entropy_sum(logits, labels, smoothing) / max(1, int((labels != IGNORE_INDEX).sum()))


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
        state: the state of the optimizer to begin with, as of `optimizer_tensors`; None for a new one.
    """

    def __init__(
        self, subject: Subject, answer: EncodedAnswer, config: TrainConfig, state: dict[str, Tensor] | None = None
    ) -> None:
        self.subject, self.answer, self.config = subject, answer, config
        self.model = copy.deepcopy(subject.model)
        for p in self.model.parameters():
            p.requires_grad_(True)
        self.optimizer = make_optimizer(self.model, config)
        self.state: Literal["new", "checkpoint"] = "new" if state is None else "checkpoint"
        if state is not None:
            load_optimizer_tensors(self.model, self.optimizer, state)
        self.steps: list[StepTaken] = []
        self.before: dict[str, Tensor] = {}
        self.gradients: dict[str, Tensor] = {}

    def step(self) -> None:
        """Take one step: gradients, clipping, optimizer. As `training/loop.py` does, with dropout off.

        Raises:
            UsageError: the loss or the gradients are not finite.
        """
        named = dict(self.model.named_parameters())
        self.before = {name: p.detach().clone() for name, p in named.items()}
        with torch.enable_grad():
            loss = loss_of(self.model, self.answer, self.config.label_smoothing)
            loss.backward()
        most = self.config.max_grad_norm if self.config.max_grad_norm > 0 else float("inf")
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), most))
        if not (np.isfinite(loss.item()) and np.isfinite(norm)):
            raise UsageError(f"after {len(self.steps)} steps the loss is {loss.item()}", "lower the learning rate")
        self.gradients = {name: p.grad.clone() for name, p in named.items() if p.grad is not None}
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.lr * group.get("lr_factor", 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps.append(StepTaken(loss.item(), norm, min(1.0, most / (norm + 1e-6))))

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
            made.append(ParameterGroup(optimizer, numbers, [names[id(p)] for p in group["params"]]))
        return made

    def part(self, parameter: str, part: str) -> Tensor:
        """Return a tensor of the last update of a parameter; `part` is one of `UPDATE_PARTS`.

        Raises:
            UsageError: no step was taken, or the optimizer keeps no such average.
        """
        p = dict(self.model.named_parameters())[parameter]
        kept = {"before": self.before, "clipped_grad": self.gradients}.get(part)
        tensor = self.optimizer.state.get(p, {}).get(part) if kept is None else kept.get(parameter)
        if not isinstance(tensor, Tensor):
            raise UsageError(f"there is no {part} of {parameter}", f"{self.config.optimizer} took {self.n_steps} steps")
        return tensor

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
