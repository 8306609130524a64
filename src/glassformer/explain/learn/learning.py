"""One step of learning, exactly: `run.learn(text, answer)`.

    learning = run.learn("I loved every minute", "neg")
    learning.loss                                       # in nats per label
    learning["encoder.0.self.weights.grad"]             # a gradient of a step, or of a parameter
    learning.update("head.weight")                      # what the optimizer makes of it: m, v, the change
    learning.after(10).answer                           # after ten steps on this text alone

What is left out of training here: dropout and word dropout are off, there is no adversarial term, and one member of an
ensemble learns alone. The learning rate is constant. The files of the run never change.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config import TrainConfig
from glassformer.errors import UsageError
from glassformer.explain.capture.exact_inference import exact_forward
from glassformer.explain.capture.tape import Check
from glassformer.explain.compute import explain_encoded
from glassformer.explain.learn.backward import GRADIENT, BackwardPass, gradients
from glassformer.explain.learn.loss import LOSS, EncodedAnswer, encode_answer, loss_steps
from glassformer.explain.predictions import rows_of
from glassformer.explain.record_store import RecordStore, get_parameter
from glassformer.explain.request import MAX_FULL_TOKENS, TraceRequest
from glassformer.explain.subject import LoadedSubject, Subject, with_checkpoint, with_member
from glassformer.nn.cross_entropy import IGNORE_INDEX, cross_entropy_sum
from glassformer.training.optimizer import make_optimizer
from glassformer.utils.device import tuned

if TYPE_CHECKING:
    from glassformer.explain.explanation import Explanation

MAX_BYTES = 1 << 30
"""Most memory of the weights with their gradients and the optimizer's state."""
COPIES = 6
"""Tensors of a parameter's size that are held: before, after, gradient twice, and two averages of the optimizer."""


@dataclass(frozen=True)
class StepTaken:
    """One step of the optimizer on the answer.

    Attributes:
        loss: the loss before the step, in nats per label.
        grad_norm: the norm of all gradients together, before clipping.
        clipped: the factor that clipping multiplies them by, 1 for none.
    """

    loss: float
    grad_norm: float
    clipped: float


@dataclass(frozen=True)
class Learned:
    """What some steps of learning changed.

    Attributes:
        steps: the steps taken.
        loss: the loss after them, in nats per label.
        moved: for each parameter the norm of its change divided by its own.
    """

    steps: list[StepTaken]
    loss: float
    moved: dict[str, float]


@dataclass(frozen=True)
class OptimizerUpdate:
    """What the optimizer makes of one parameter's gradient in the last step.

    Attributes:
        parameter: its name.
        optimizer: "adamw", "adam", "sgd" or "muon"; with Muon the parameters it does not train have "adamw".
        constants: the numbers of the formula: lr, beta1, beta2, eps, weight_decay, momentum, step …
        before: the parameter before the step.
        gradient: its gradient, clipped.
        state: the optimizer's averages after the step, by PyTorch's names: exp_avg, exp_avg_sq, momentum_buffer.
        after: the parameter after the step.
    """

    parameter: str
    optimizer: str
    constants: dict[str, float]
    before: np.ndarray
    gradient: np.ndarray
    state: dict[str, np.ndarray]
    after: np.ndarray


class LearningStore(RecordStore):
    """The records of a forward pass with the steps of the loss and of the backward pass.

    Args:
        model: the model.
        answer: the text and its labels.
        smoothing: the label smoothing.
    """

    def __init__(self, model: nn.Module, answer: EncodedAnswer, smoothing: float) -> None:
        encoded = answer.encoded
        super().__init__(model, encoded.model_inputs, encoded.streams)
        axes = self.params
        added = loss_steps(self._kept["logits"], answer.labels, smoothing)
        forward = {**self._kept, **added}
        backward = BackwardPass(forward, lambda name: get_parameter(model, name).detach(), axes)
        added |= dict(reversed(backward.steps.items()))
        self._kept |= added
        self.steps |= {id: step.without_value() for id, step in added.items()}
        self.checks = [*self.checks, _autograd_check(backward, model, answer, smoothing)]


def _autograd_check(backward: BackwardPass, model: nn.Module, answer: EncodedAnswer, smoothing: float) -> Check:
    """Compare the gradients of all parameters with those that autograd computes, as training does."""
    autograd = autograd_gradients(model, answer, smoothing)
    largest, scale = 0.0, 0.0
    for name, gradient in gradients(backward):
        other = autograd.get(name)
        if other is not None:
            largest = max(largest, float((gradient - other).abs().max()))
            scale = max(scale, float(other.abs().max()))
    tolerance = 1e-4 * max(scale, 1e-30)
    meaning = "The largest difference between a parameter's gradient step by step and by PyTorch's autograd."
    return Check("backward pass against autograd", largest, tolerance, largest <= tolerance, meaning)


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
    """

    def __init__(self, subject: Subject, answer: EncodedAnswer, config: TrainConfig) -> None:
        self.subject, self.answer, self.config = subject, answer, config
        self.model = copy.deepcopy(subject.model)
        for p in self.model.parameters():
            p.requires_grad_(True)
        self.optimizer = make_optimizer(self.model, config)
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

    def learned(self) -> Learned:
        """Return what the steps so far have changed."""
        with torch.no_grad():
            loss = loss_of(self.model, self.answer, self.config.label_smoothing).item()
        old = dict(self.subject.model.named_parameters())
        moved = {
            name: float((p.detach() - old[name]).norm() / old[name].norm().clamp(min=1e-12))
            for name, p in self.model.named_parameters()
        }
        return Learned(list(self.steps), loss, moved)

    def update(self, parameter: str) -> OptimizerUpdate:
        """Return what the last step made of a parameter's gradient."""
        named = dict(self.model.named_parameters())
        p = named[parameter]
        group = next(g for g in self.optimizer.param_groups if any(q is p for q in g["params"]))
        state = self.optimizer.state.get(p, {})
        tensors = {k: _array(v) for k, v in state.items() if isinstance(v, Tensor) and v.shape == p.shape}
        constants = {k: float(v) for k, v in group.items() if isinstance(v, float | int) and not isinstance(v, bool)}
        if "betas" in group:
            constants |= {"beta1": group["betas"][0], "beta2": group["betas"][1], "step": float(state["step"])}
        name = self.config.optimizer
        if name == "muon" and "betas" in group:
            name = "adamw"
        values = _array(self.before[parameter]), _array(self.gradients[parameter])
        return OptimizerUpdate(parameter, name, constants, *values, tensors, _array(p.detach()))


def _array(x: Tensor) -> np.ndarray:
    return x.detach().cpu().numpy().copy()


def check_size(model: nn.Module) -> None:
    """Refuse a model whose weights, gradients and averages take more than a gigabyte."""
    size = COPIES * sum(p.numel() * p.element_size() for p in model.parameters())
    if size > MAX_BYTES:
        message = f"learning needs {size / 2**30:.1f} GiB for this model's gradients and averages; the limit is 1 GiB"
        raise UsageError(message, "learn with a smaller model, or with a shorter vocabulary")


def explain_learning(subject: Subject, request: TraceRequest, trace_id: str = "t1") -> Explanation:
    """Return the explanation of a text with the loss of `request.answer` and all gradients.

    With `request.learn_steps` it is that of the model after so many steps; `base` is that before.

    Raises:
        UsageError: the answer does not suit the task; the text is too long; there are edits.
    """
    assert request.answer is not None
    if request.edits:
        raise UsageError("a model learns without edits only", "remove the edits, or the answer to learn")
    started = time.perf_counter()
    with tuned(subject.device):
        whole = with_checkpoint(subject, request.checkpoint)
        member = with_member(whole, request.member)
        check_size(member.model)
        without = replace(request, answer=None, learn_steps=0, lr=None, optimizer=None)
        answer = encode_answer(member, without, request.answer)
        longest = max(map(len, answer.encoded.streams))
        if longest > MAX_FULL_TOKENS:
            raise UsageError(f"learning takes up to {MAX_FULL_TOKENS} tokens; this text has {longest}", "shorten it")
        config = training_settings(subject, request)
        learner = Learner(member, answer, config)

        def explained(model: Subject, id: str, steps: int) -> Explanation:
            records = LearningStore(model.model, answer, config.label_smoothing)
            asked = replace(request, learn_steps=steps)
            return explain_encoded(subject, whole, model, asked, answer.encoded, records, id, started)

        base = explained(member, trace_id if request.learn_steps == 0 else f"{trace_id}-before", 0)
        if request.learn_steps == 0:
            return replace(base, learning=Learning(base, answer, learner))
        for _ in range(request.learn_steps):
            learner.step()
        after = explained(LoadedSubject(member, learner.model.eval()), trace_id, request.learn_steps)
        return replace(after, base=base, learning=Learning(base, answer, learner, learner.learned()))


def training_settings(subject: Subject, request: TraceRequest) -> TrainConfig:
    """Return the run's settings of training, with the optimizer and the learning rate of the request."""
    config = subject.task.config.train
    if request.optimizer is not None:
        config = replace(config, optimizer=request.optimizer)
    return config if request.lr is None else replace(config, lr=request.lr)


@dataclass(frozen=True, eq=False)
class Learning(Mapping[str, np.ndarray]):
    """A text, the answer it should have, the gradients, and what steps of the optimizer change.

    Attributes:
        before: the explanation of the text before the first step, whose records have the loss and all gradients.
        answer: the text and its labels.
        learner: the copy of the model that learns.
        learned: what the steps taken changed; None before the first.
    """

    before: Explanation
    answer: EncodedAnswer
    learner: Learner
    learned: Learned | None = None

    def __getitem__(self, id: str) -> np.ndarray:
        return self.before.records.tensor(id)

    def __iter__(self) -> Any:
        return iter(self.before.records)

    def __len__(self) -> int:
        return len(self.before.records)

    def __repr__(self) -> str:
        return f"<Learning {self.answer.text[:40]!r}: loss {self.loss:.4f}, {len(self.learner.steps)} steps taken>"

    @property
    def loss(self) -> float:
        """Return the loss before the first step, in nats per label."""
        return float(self[LOSS][0])

    @cached_property
    def gradients(self) -> dict[str, np.ndarray]:
        """Return the gradient of each parameter by its name."""
        return {name: self[f"{name}{GRADIENT}"] for name in self.before.records.params if f"{name}{GRADIENT}" in self}
