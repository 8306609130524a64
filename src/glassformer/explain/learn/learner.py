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

NEAR = 0.1
"""Standard deviations of the training numbers within which a number is right."""


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


class Learner:
    """A copy of a model that learns one answer, step by step.

    Args:
        subject: the model, which is not changed.
        answer: the text and its labels.
        config: the settings of training: optimizer, learning rate, clipping, label smoothing.

    Attributes:
        model: the copy.
        steps: the steps taken.
        update: the last step of each parameter: "head.weight.before" is its value before it, ".clipped_grad" the
            gradient after clipping, ".exp_avg" an average of the optimizer after the step, ".exp_avg_before" before it.
    """

    def __init__(self, subject: View, answer: EncodedAnswer, config: TrainConfig) -> None:
        self.subject, self.answer, self.config = subject, answer, config
        self.model = copy.deepcopy(subject.model)
        for p in self.model.parameters():
            p.requires_grad_(True)
        self.optimizer = make_optimizer(self.model, config)
        self.steps: list[StepTaken] = []
        self.update: dict[str, Tensor] = {}

    def loss(self) -> tuple[Tensor, bool]:
        """Return the loss of the answer, and whether the model predicts it."""
        return loss_and_right(self.model, self.answer, self.config.label_smoothing)

    def gradients(self) -> dict[str, Tensor]:
        """Return the gradient of each parameter by autograd; without those that the loss does not depend on."""
        named = dict(self.model.named_parameters())
        with torch.enable_grad():
            found = torch.autograd.grad(self.loss()[0], [*named.values()], allow_unused=True)
        return {name: g for name, g in zip(named, found, strict=True) if g is not None}

    def step(self) -> None:
        """Take one step: gradients, clipping, optimizer. As `training/loop.py` does, with dropout off.

        Raises:
            UsageError: the loss or the gradients are not finite.
        """
        named, first = dict(self.model.named_parameters()), dict(self.subject.model.named_parameters())
        self.update = {}  # free that of the step before first
        # The weights of the run are not changed, and need no copy.
        update = {f"{n}.before": p.detach().clone() if self.steps else first[n].detach() for n, p in named.items()}
        with torch.enable_grad():
            loss, right = self.loss()
            loss.backward()
        most = self.config.max_grad_norm if self.config.max_grad_norm > 0 else float("inf")
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), most))
        if not (np.isfinite(loss.item()) and np.isfinite(norm)):
            raise UsageError(f"after {len(self.steps)} steps the loss is {loss.item()}", "lower the learning rate")
        # No optimizer writes into a gradient, and `zero_grad` lets go of it.
        update |= {f"{name}.clipped_grad": p.grad for name, p in named.items() if p.grad is not None}
        kept = {id: average.clone() for id, average in self._averages().items()}
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.lr * group.get("lr_factor", 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        for id, average in self._averages().items():  # before the first step it is zero
            update |= {id: average, f"{id}_before": kept.get(id, average.new_zeros(()).expand_as(average))}
        self.update = update
        self.steps.append(StepTaken(loss.item(), norm, min(1.0, most / (norm + 1e-6)), right))

    def _averages(self) -> dict[str, Tensor]:
        """Return what the optimizer keeps of each parameter: "head.weight.exp_avg"."""
        state = ((name, self.optimizer.state.get(p, {})) for name, p in self.model.named_parameters())
        return {f"{n}.{key}": kept[key] for n, kept in state for key in AVERAGES if isinstance(kept.get(key), Tensor)}

    def groups(self) -> list[ParameterGroup]:
        """Return the parameters by how the optimizer treats them, with the constants of its formula."""
        names = {id(p): name for name, p in self.model.named_parameters()}
        combined = self.optimizer.optimizers if isinstance(self.optimizer, CombinedOptimizer) else ()
        muon = next((one.dtype for one in combined if isinstance(one, Muon)), torch.float32)
        made = []
        for group in self.optimizer.param_groups:
            numbers = {k: float(v) for k, v in group.items() if type(v) in (int, float) and k != "lr_factor"}
            numbers["lr"] = self.config.lr * group.get("lr_factor", 1.0)
            optimizer = self.config.optimizer
            if "betas" in group:
                numbers |= dict(zip(("beta1", "beta2"), group["betas"], strict=True))
                optimizer = "adam" if optimizer == "adam" else "adamw"
            dtype = str(muon).removeprefix("torch.") if optimizer == "muon" else "float32"
            made.append(ParameterGroup(optimizer, numbers, [names[id(p)] for p in group["params"]], dtype))
        return made
