"""One step of learning, exactly: `run.learn(text, answer)`.

    e = run.learn("I loved every minute", "neg")
    e.learning.loss                         # in nats per label
    e["encoder.0.self.weights.grad"]        # the gradient of a step, or of a parameter
    after = run.learn("I loved every minute", "neg", steps=10)
    after.answer, after.base.answer         # of the model after ten steps on this text alone, and before
    after["head.weight.exp_avg"]            # AdamW's average of the gradients, after the last step

What is left out of training here: dropout and word dropout are off, there is no adversarial term, and one member of an
ensemble learns alone. The learning rate is constant. The files of the run never change.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from glassformer.config import TrainConfig
from glassformer.errors import CheckpointError, UsageError
from glassformer.explain.capture.tape import Check
from glassformer.explain.compute import compute_decoding, explain_encoded
from glassformer.explain.learn.backward import BackwardPass
from glassformer.explain.learn.learner import (
    UPDATE_PARTS,
    Learner,
    ParameterGroup,
    StepTaken,
    autograd_gradients,
    check_size,
    loss_and_right,
    loss_of,
)
from glassformer.explain.learn.loss import LOSS, NO_ANSWER, EncodedAnswer, encode_answer, loss_steps, number_steps
from glassformer.explain.one_label import NOT, looked_at
from glassformer.explain.predictions import Answer
from glassformer.explain.record_store import RecordStore, get_parameter, take_slice, to_numpy
from glassformer.explain.request import MAX_FULL_TOKENS, TraceRequest
from glassformer.explain.streams import Stream
from glassformer.explain.subject import Subject, View
from glassformer.runs.folder import RunFolder
from glassformer.runs.records import JsonObject
from glassformer.text.decision import number_text
from glassformer.text.pairs import text_of
from glassformer.utils.device import tuned

if TYPE_CHECKING:
    from glassformer.explain.explanation import Explanation


LEFT_OUT = {
    "dropout": "dropout",
    "word dropout": "word dropout",
    "adversarial": "adversarial training",
    "members": "the other members of the ensemble, which stay as they are",
    "average": "the moving average of the weights",
    "frozen layers": "frozen layers: all layers learn",
    "schedule": "the schedule of the learning rate, which is constant",
}
"""What the run's training has, and learning here has not, in words."""


@dataclass(frozen=True)
class OtherText:
    """A text that the run was evaluated on and that is not learned here: learning one may be forgetting another."""

    text: str
    """The text."""
    answer: str
    """The answer that it should have."""
    loss_before: float
    """The loss of that answer before the steps, as that of the answer to learn, but without label smoothing."""
    loss_after: float
    """The same after them."""


@dataclass(frozen=True)
class Learned:
    """What some steps of learning changed."""

    steps: list[StepTaken]
    """The steps taken."""
    loss: float
    """The loss after them, in nats per label, or as a squared error."""
    right: bool
    """Whether after them every label is the most probable one, or the number within 0.1 standard deviations."""
    moved: dict[str, float]
    """For each parameter the norm of its change divided by its own."""
    others: list[OtherText]
    """Texts whose answers were not learned."""


@dataclass(frozen=True)
class LearningFacts:
    """What is learned and how, and what the steps taken changed."""

    answer: str
    """The answer to learn, as the model's vocabulary writes it."""
    labels: list[int | None]
    """For each position the class or token that is right; null where nothing is learned. Empty for a number."""
    target: float | None
    """Of a number what the output should be, its distance from the mean of the training numbers in standard deviations;
    null for classes and tokens."""
    loss: float
    """Its loss before the first step, in nats per label, or as the square of the output's error."""
    smoothing: float
    """The label smoothing."""
    max_grad_norm: float
    """The norm of all gradients from which they are clipped; 0 for no clipping."""
    groups: list[ParameterGroup]
    """The parameters by how the optimizer treats them."""
    left_out: list[str]
    """What the run's training has, and learning here has not: "dropout", "word dropout", "adversarial", "members",
    "average", "frozen layers", "schedule"."""
    learned: Learned | None
    """What the steps taken changed; null before the first."""


class LearningStore(RecordStore):
    """The records of a forward pass with the steps of the loss and of the backward pass.

    Args:
        model: the model.
        answer: the text and its labels.
        smoothing: the label smoothing.
        learner: the model that took steps, whose last update is read as "head.weight.exp_avg"; None before the first.
    """

    def __init__(
        self, model: nn.Module, answer: EncodedAnswer, smoothing: float, learner: Learner | None = None
    ) -> None:
        self.learner = learner
        encoded = answer.encoded
        super().__init__(model, encoded.model_inputs, encoded.streams)
        axes = self.params
        logits = self._kept["logits"]
        number = answer.target
        added = loss_steps(logits, answer.labels, smoothing) if number is None else number_steps(logits, number)
        forward = {**self._kept, **added}
        backward = BackwardPass(forward, lambda name: get_parameter(model, name).detach(), axes)
        added |= dict(reversed(backward.steps.items()))
        self._kept |= added
        self.steps |= {id: step.without_value() for id, step in added.items()}
        self.checks = [*self.checks, _autograd_check(backward, model, answer, smoothing)]

    def held(self, id: str, slice: str = "") -> np.ndarray | None:
        parameter, _, part = id.rpartition(".")
        if part in UPDATE_PARTS and parameter in self.params and self.learner is not None:
            return to_numpy(take_slice(self.learner.part(parameter, part), self.params[parameter], slice))
        return super().held(id, slice)

    def update_of(self, parameter: str) -> list[str]:
        """Return the ids of what there is of the last update of a parameter, its value after it first; none before."""
        if self.learner is None:
            return []
        found = [f"{parameter}.{part}" for part in UPDATE_PARTS if self.learner.has(parameter, part)]
        return [parameter, *found]


def _autograd_check(backward: BackwardPass, model: nn.Module, answer: EncodedAnswer, smoothing: float) -> Check:
    """Compare the gradients of all parameters with those that autograd computes, as training does."""
    autograd = autograd_gradients(model, answer, smoothing)
    largest, scale = 0.0, 0.0
    for name, gradient in backward.of_parameters().items():
        other = autograd.pop(name, None)  # no other tensor of the size of a parameter is held for the comparison
        if other is not None:
            scale = max(scale, float(torch.linalg.vector_norm(other, math.inf)))
            largest = max(largest, float(torch.linalg.vector_norm(other.sub_(gradient), math.inf)))
    tolerance = 1e-4 * max(scale, 1e-30)
    meaning = "The largest difference between a parameter's gradient step by step and by PyTorch's autograd."
    return Check("backward pass against autograd", largest, tolerance, largest <= tolerance, meaning)


N_OTHERS = 8


def what_changed(learner: Learner) -> Learned:
    """Return what the steps so far have changed."""
    with torch.no_grad():
        loss, right = loss_and_right(learner.model, learner.answer, learner.config.label_smoothing)
        old = dict(learner.subject.model.named_parameters())
        moved = {
            name: float((p - old[name]).norm() / old[name].norm().clamp(min=1e-12))
            for name, p in learner.model.named_parameters()
        }
    return Learned(list(learner.steps), loss.item(), right, moved, other_texts(learner))


def known_answers(subject: Subject) -> list[tuple[str, str]]:
    """Return texts that the run was evaluated on and that stand in its folder, with their right answers."""
    try:
        evaluation = RunFolder(subject.path).read_evaluation()
    except CheckpointError:
        return []
    rows = evaluation.examples if evaluation else []
    found = [(text_of(row), _known_answer(subject, row)) for row in rows if "text" in row]
    return [(text, answer) for text, answer in found if text and answer]


def _known_answer(subject: Subject, row: JsonObject) -> str:
    """Return the right answer of an evaluated text; of several labels whether it has the one that is looked at."""
    if subject.task.explain_as == "tagger":  # whose words have a tag each
        return ""
    if isinstance(row.get("truth"), float):
        return number_text(row["truth"])
    truth = row.get("truth") or row.get("reference") or ""
    if not isinstance(row.get("truth"), list):
        return str(truth)
    label = (subject.task.label_names or [""])[-1]
    if subject.task.explain_as == "multilabel_classifier":  # before one is chosen: the first
        return next(iter(row["truth"]), "")
    return label if label in row["truth"] else f"{NOT}{label}"


def other_texts(learner: Learner) -> list[OtherText]:
    """Return the loss, before and after, of texts that the run was evaluated on, without the one that is learned."""
    found, subject = list[OtherText](), learner.subject
    learned = learner.answer.encoded.streams[0].text
    for text, right in [known for known in known_answers(subject) if known[0] != learned][:N_OTHERS]:
        try:
            answer = encode_answer(subject, TraceRequest(text), right)
        except UsageError:  # one that has words unknown to the model
            continue
        with torch.no_grad():
            losses = [loss_of(model, answer, 0.0).item() for model in (subject.model, learner.model)]
        found.append(OtherText(text, answer.text, *losses))
    return found


def why_no_learning(explanation: Explanation) -> str | None:
    """Return why no answer to this text can be learned, as a sentence; None where one can."""
    if why := _too_long(explanation.streams):
        return why
    if explanation.subject.task.explain_as == "text_embedder":
        return NO_ANSWER
    try:
        check_size(explanation.subject.model)
    except UsageError as error:
        return error.message
    return None


def _too_long(streams: Sequence[Stream]) -> str | None:
    """Return why a text is too long to learn, as a sentence; None where it is not."""
    count = max(map(len, streams))
    if count <= MAX_FULL_TOKENS:
        return None
    return f"learning takes up to {MAX_FULL_TOKENS} tokens, and this text has {count}"


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
        view, labels = looked_at(subject, request)
        check_size(view.model)
        without = replace(request, answer=None, learn_steps=0, lr=None, optimizer=None)
        answer = encode_answer(view, without, request.answer)
        if why := _too_long(answer.encoded.streams):
            raise UsageError(why, "shorten it")
        config = training_settings(subject, request)
        learner = Learner(view, answer, config)
        facts = partial(learning_facts, learner, answer)

        def explained(model: View, id: str, steps: int) -> Explanation:
            records = LearningStore(model.model, answer, config.label_smoothing, learner if steps else None)
            own_request = replace(request, learn_steps=steps)
            return explain_encoded(model, labels, own_request, answer.encoded, records, id, started)

        base = explained(view, trace_id if request.learn_steps == 0 else f"{trace_id}-before", 0)
        loss = float(base.records[LOSS].value)
        base = replace(base, learning=facts(loss, None))
        if request.learn_steps == 0:
            return base
        for _ in range(request.learn_steps):
            learner.step()
        after = explained(replace(view, other=learner.model.eval()), trace_id, request.learn_steps)
        return replace(after, base=base, learning=facts(loss, what_changed(learner)))


def own_answer(explanation: Explanation) -> Answer:
    """Return what the model that is explained answers by itself, where `answer` is that of the text to learn."""
    if explanation.decode.kind != "given":
        return explanation.answer
    request = TraceRequest(explanation.request.text, decode=explanation.request.decode)
    return compute_decoding(explanation.subject, request)[1]


def learning_facts(learner: Learner, answer: EncodedAnswer, loss: float, learned: Learned | None) -> LearningFacts:
    """Return what is learned and how, and what training has that is left out here."""
    config, model = learner.config, learner.subject.task.config.model
    has = {
        "dropout": max(model.dropout, model.embedding_dropout or 0.0) > 0,
        "word dropout": config.word_mask_prob > 0 or config.word_unknown_prob > 0,
        "adversarial": config.adversarial > 0,
        "members": learner.subject.together is not None,
        "average": config.ema_decay > 0,
        "frozen layers": config.frozen_layers > 0,
        "schedule": config.schedule != "constant" or config.warmup > 0,
    }
    return LearningFacts(
        answer=answer.text,
        labels=answer.labels,
        target=answer.target,
        loss=loss,
        smoothing=config.label_smoothing,
        max_grad_norm=config.max_grad_norm,
        groups=learner.groups(),
        left_out=[name for name, there in has.items() if there],
        learned=learned,
    )


def training_settings(subject: Subject, request: TraceRequest) -> TrainConfig:
    """Return the run's settings of training, with the optimizer and the learning rate of the request.

    The learning rate of Muon's matrices keeps its ratio to that of the other parameters.
    """
    config = subject.task.config.train
    if request.lr is not None:
        muon = replace(config.muon, matrix_lr=config.muon.matrix_lr * request.lr / config.lr)
        config = replace(config, lr=request.lr, muon=muon)
    return config if request.optimizer is None else replace(config, optimizer=request.optimizer)
