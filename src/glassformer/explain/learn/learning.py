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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from glassformer.config import TrainConfig
from glassformer.errors import CheckpointError, UsageError
from glassformer.explain.capture.tape import Check, Step
from glassformer.explain.compute import compute_decoding, explain_encoded
from glassformer.explain.learn.backward import GRADIENT, backward_pass
from glassformer.explain.learn.learner import Learner, ParameterGroup, StepTaken, loss_and_right
from glassformer.explain.learn.loss import LOSS, NO_ANSWER, encode_answer, loss_steps
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
    """The label smoothing of both losses; 0 for none, and of a number."""
    max_grad_norm: float
    """The norm of all gradients from which they are clipped; 0 for no clipping."""
    groups: list[ParameterGroup]
    """The parameters by how the optimizer treats them."""
    left_out: list[str]
    """What the run's training has, and learning here has not, in words."""
    learned: Learned | None
    """What the steps taken changed; null before the first."""


class LearningStore(RecordStore):
    """The records of a forward pass with the steps of the loss and of the backward pass.

    Args:
        model: the model.
        learner: the copy of it with the same weights that learns; its last update is read as "head.weight.exp_avg".
    """

    def __init__(self, model: nn.Module, learner: Learner) -> None:
        answer, self.update = learner.answer, learner.update
        super().__init__(model, answer.encoded.model_inputs, answer.encoded.streams)
        smoothing, axes = learner.config.label_smoothing, self.params
        added = loss_steps(self._kept["logits"], answer.labels, smoothing, answer.target)
        backward = backward_pass({**self._kept, **added}, lambda name: get_parameter(model, name).detach(), axes)
        added |= dict(reversed(backward.items()))
        self._kept |= added
        self.steps |= {id: step.without_value() for id, step in added.items()}
        self.checks = [*self.checks, _autograd_check(backward, learner)]

    def held(self, id: str, slice: str = "") -> np.ndarray | None:
        if id in self.update:
            return to_numpy(take_slice(self.update[id], self.params[id.rpartition(".")[0]], slice))
        return super().held(id, slice)

    def update_of(self, parameter: str) -> list[str]:
        """Return the ids of what there is of the last update of a parameter, its value after it first; none before."""
        found = [id for id in self.update if id.rpartition(".")[0] == parameter]
        return [parameter, *found] if found else []


def _autograd_check(backward: Mapping[str, Step], learner: Learner) -> Check:
    """Compare the gradients of all parameters with those that autograd computes, as training does."""
    largest, scale = 0.0, 0.0
    for name, gradient in learner.gradients().items():
        if (own := backward.get(f"{name}{GRADIENT}")) is not None:
            scale = max(scale, float(torch.linalg.vector_norm(gradient, math.inf)))
            largest = max(largest, float(torch.linalg.vector_norm(gradient.sub_(own.value), math.inf)))
    tolerance = 1e-4 * max(scale, 1e-30)
    meaning = "The largest difference between a parameter's gradient step by step and by PyTorch's autograd."
    return Check("backward pass against autograd", largest, tolerance, largest <= tolerance, meaning)


N_OTHERS = 8


def what_changed(learner: Learner) -> Learned:
    """Return what the steps so far have changed."""
    with torch.no_grad():
        loss, right = learner.loss()
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
            losses = [loss_and_right(model, answer, 0.0)[0].item() for model in (subject.model, learner.model)]
        found.append(OtherText(text, answer.text, *losses))
    return found


def why_no_learning(explanation: Explanation) -> str | None:
    """Return why no answer to this text can be learned, as a sentence; None where one can."""
    none = NO_ANSWER if explanation.subject.task.explain_as == "text_embedder" else None
    return _too_long(explanation.streams) or none


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
        without = replace(request, answer=None, learn_steps=0, lr=None, optimizer=None)
        answer = encode_answer(view, without, request.answer)
        if why := _too_long(answer.encoded.streams):
            raise UsageError(why, "shorten it")
        learner = Learner(view, answer, training_settings(subject, request))

        def explained(model: View, id: str, steps: int) -> Explanation:
            own_request, records = replace(request, learn_steps=steps), LearningStore(model.model, learner)
            return explain_encoded(model, labels, own_request, answer.encoded, records, id, started)

        base = explained(view, trace_id if request.learn_steps == 0 else f"{trace_id}-before", 0)
        loss = float(base.records[LOSS].value)
        base = replace(base, learning=learning_facts(learner, loss, None))
        if request.learn_steps == 0:
            return base
        for _ in range(request.learn_steps):
            learner.step()
        after = explained(replace(view, other=learner.model.eval()), trace_id, request.learn_steps)
        return replace(after, base=base, learning=learning_facts(learner, loss, what_changed(learner)))


def own_answer(explanation: Explanation) -> Answer:
    """Return what the model that is explained answers by itself, where `answer` is that of the text to learn."""
    if explanation.decode.kind != "given":
        return explanation.answer
    request = TraceRequest(explanation.request.text, decode=explanation.request.decode)
    return compute_decoding(explanation.subject, request)[1]


def learning_facts(learner: Learner, loss: float, learned: Learned | None) -> LearningFacts:
    """Return what is learned and how, and what training has that is left out here."""
    answer, config, model = learner.answer, learner.config, learner.subject.task.config.model
    has = {
        "dropout": max(model.dropout, model.embedding_dropout or 0.0) > 0,
        "word dropout": config.word_mask_prob > 0 or config.word_unknown_prob > 0,
        "adversarial training": config.adversarial > 0,
        "the other members of the ensemble, which stay as they are": learner.subject.together is not None,
        "the moving average of the weights": config.ema_decay > 0,
        "frozen layers: all layers learn": config.frozen_layers > 0,
        "the schedule of the learning rate, which is constant": config.schedule != "constant" or config.warmup > 0,
    }
    return LearningFacts(
        answer=answer.text,
        labels=answer.labels,
        target=answer.target,
        loss=loss,
        smoothing=config.label_smoothing if answer.target is None else 0.0,
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
