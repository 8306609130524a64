"""One step of learning, exactly: `run.learn(text, answer)`.

    e = run.learn("I loved every minute", "neg")
    e.learning.loss                         # in nats per label
    e["encoder.0.self.weights.grad"]        # the gradient of a step, or of a parameter
    after = run.learn("I loved every minute", "neg", steps=10)
    after.answer, after.base.answer         # of the model after ten steps on this text alone, and before
    after["head.weight.exp_avg"]            # AdamW's average of the gradients, after the last step

What is left out of training here: dropout and word dropout are off, there is no adversarial term, and one member of an
ensemble learns alone. The learning rate is constant. The files of the run never change.

`keep` writes the model that learned an answer as a new run; the run that it was copied from stays as it is. It has the
settings and the record of the data of that run, so that it is evaluated on the same splits and learns again with the
same optimizer; it has no log, no checkpoint and no scores, and cannot be resumed.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config import TrainConfig
from glassformer.config.recipes import config_to_dict
from glassformer.data.datasets.labels import normalised_label, why_no_number
from glassformer.errors import CheckpointError, UsageError
from glassformer.explain.capture.exact_inference import exact_forward
from glassformer.explain.capture.sites import Check, Step
from glassformer.explain.capture.slices import get_parameter
from glassformer.explain.explanation import Explanation, compute_decoding, explain_encoded
from glassformer.explain.inputs import Answer, EncodedText, encode, encode_for_language_model, rows_of
from glassformer.explain.learn.backward import GRADIENT, LOSS, backward_pass, loss_steps
from glassformer.explain.one_label import NOT, label_index, looked_at
from glassformer.explain.request import MAX_EDITED_TOKENS, MAX_TOKENS, TraceRequest
from glassformer.explain.streams import Stream
from glassformer.explain.subject import Subject, View
from glassformer.explain.trace import Trace, record
from glassformer.models.ensemble import members_of
from glassformer.nn.cross_entropy import IGNORE_INDEX, cross_entropy_sum
from glassformer.runs.folder import LEARNED_RECORD, RunFolder
from glassformer.runs.model_folder import TOKENIZER, read_description, read_origin, save_model
from glassformer.runs.records import JsonObject
from glassformer.tasks import Task
from glassformer.tasks.restoring import SETTINGS
from glassformer.text.answers import number_text
from glassformer.text.pairs import text_of
from glassformer.training.optimizer import CombinedOptimizer, Muon, make_optimizer
from glassformer.utils.atomic_io import write_folder_atomically, write_json
from glassformer.utils.device import tuned
from glassformer.utils.formatting import cell_text, counted

FARTHEST = 1e6
"""Most standard deviations between a number to learn and the mean of the training numbers: its square is finite."""
NO_ANSWER = "a bare encoder has no answer to learn"


@dataclass(frozen=True)
class EncodedAnswer:
    """A text as the model reads it with the answer that it should have.

    Attributes:
        encoded: the text, and of a decoder the answer before its last token.
        labels: for each row of the logits the class or token that is right; None where nothing is learned. Empty for a
            number.
        text: the answer as the tokenizer writes it.
        target: what the output of a regressor should be; None for classes and tokens.
    """

    encoded: EncodedText
    labels: list[int | None]
    text: str
    target: float | None = None


def encode_answer(subject: Subject, request: TraceRequest, answer: str) -> EncodedAnswer:
    """Encode a text and the answer that it should have.

    Raises:
        UsageError: the answer is empty, no class, no number, of another number of tokens than there are masks, or too
            long.
    """
    if not answer.strip():
        raise UsageError("the answer to learn is empty", "write what the model should answer")
    if subject.task.explain_as not in ANSWERS:
        raise UsageError(NO_ANSWER, "train a classifier from it: --init-from")
    return ANSWERS[subject.task.explain_as](subject, request, answer)


def _class(subject: Subject, request: TraceRequest, answer: str) -> EncodedAnswer:
    names = subject.task.label_names or []
    label = label_index(names, answer, "class")
    return EncodedAnswer(encode(subject, request), [label], names[label])


def _number(subject: Subject, request: TraceRequest, answer: str) -> EncodedAnswer:
    written = normalised_label(answer)
    if why := why_no_number(written):
        raise UsageError(f"the answer to learn is a number, and {why}", "write one, as in 12.5")
    target = subject.task.decision.standardised(np.array([float(written)]))[0]
    if not abs(target) <= FARTHEST:
        message = f"{written[:40]} is more than {FARTHEST:g} standard deviations from the mean of the training numbers"
        raise UsageError(message, "learn a number that is nearer")
    return EncodedAnswer(encode(subject, request), [], number_text(float(written)), float(target))


def _translation(subject: Subject, request: TraceRequest, answer: str) -> EncodedAnswer:
    n = len(_known_ids(subject.task.tokenizer.of_targets, answer))
    longest = min(subject.task.config.text.max_len, MAX_EDITED_TOKENS) - 1
    if n > longest:
        raise UsageError(f"the answer has {n} tokens; at most {longest} can be learned at once")
    encoded = encode(subject, replace(request, target=answer))
    return EncodedAnswer(encoded, [*encoded.following], encoded.text)


def _masked_words(subject: Subject, request: TraceRequest, answer: str) -> EncodedAnswer:
    t, encoded = subject.task.tokenizer, encode(subject, request)
    masked, ids = encoded.decode.masked or [], _known_ids(t, answer)
    if not masked:
        raise UsageError("the text holds no [MASK] for the answer to stand at", "put [MASK] where the answer belongs")
    if len(ids) != len(masked):
        hint = f"the answer is cut into {' '.join(t.tokens(ids))}"
        raise UsageError(f"the answer has {len(ids)} tokens, and the text {len(masked)} [MASK]", hint)
    label_of = dict(zip(masked, ids, strict=True))
    labels = [label_of.get(position) for position in range(len(encoded.streams[0]))]
    return EncodedAnswer(encoded, labels, " ".join(t.tokens(ids)))


def _continuation(subject: Subject, request: TraceRequest, answer: str) -> EncodedAnswer:
    """Encode prompt and answer as one text; the labels are the tokens of the answer alone."""
    t = subject.task.tokenizer
    ids = _known_ids(t, answer)
    encoded = encode_for_language_model(subject, replace(request, target=answer, prefix=()))
    first = encoded.decode.first
    if first < 0:
        n = len(t.framed(t.encode(request.text))) + len(ids)
        context = min(subject.task.config.text.max_len, MAX_TOKENS)
        raise UsageError(f"prompt and answer have {n} tokens, and {context} are read at once", "shorten them")
    return EncodedAnswer(encoded, [None] * first + encoded.following[first:], encoded.text)


def _known_ids(t: Any, answer: str) -> list[int]:
    ids = t.encode(answer)
    if not ids:
        raise UsageError(f"the answer {answer[:60]!r} has no tokens", "write it otherwise")
    if t.unk_id in ids:
        raise UsageError(f"the answer {answer[:60]!r} has tokens that are not in the vocabulary", "write it otherwise")
    return ids


ANSWERS = {
    **dict.fromkeys(("classifier", "tagger"), _class),
    "translator": _translation,
    "masked_language_model": _masked_words,
    "language_model": _continuation,
    "regressor": _number,
}
"""What encodes an answer, by `Task.explain_as`."""
N_OTHERS = 8
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
        self.model = copy.deepcopy(subject.model).requires_grad_(True)
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

    @torch.no_grad()
    def learned(self) -> Learned:
        """Return what the steps so far have changed, also in texts that the run was evaluated on."""
        old, others = dict(self.subject.model.named_parameters()), list[OtherText]()
        moved = {
            n: float((p - old[n]).norm() / old[n].norm().clamp(min=1e-12)) for n, p in self.model.named_parameters()
        }
        text = self.answer.encoded.streams[0].text
        for other, right in [known for known in known_answers(self.subject) if known[0] != text][:N_OTHERS]:
            with suppress(UsageError):  # of one that has words unknown to the model
                answer = encode_answer(self.subject, TraceRequest(other), right)
                losses = [loss_and_right(model, answer, 0.0)[0].item() for model in (self.subject.model, self.model)]
                others.append(OtherText(other, answer.text, *losses))
        loss, right = self.loss()
        return Learned(list(self.steps), loss.item(), right, moved, others)

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


def learning_records(model: nn.Module, learner: Learner) -> Trace:
    """Return the records of a forward pass with the steps of the loss and of the backward pass.

    The learner has a copy of the model with the same weights.
    """
    answer, records = learner.answer, record(model, learner.answer.encoded.model_inputs)
    added = loss_steps(records["logits"], answer.labels, learner.config.label_smoothing, answer.target)
    backward = backward_pass({**records, **added}, lambda name: get_parameter(model, name).detach(), records.params)
    records.checks.append(_autograd_check(backward, learner))
    records.add(added | dict(reversed(backward.items())))
    return records


def update_of(explanation: Explanation, parameter: str) -> list[str]:
    """Return the ids of what there is of the last update of a parameter, its value after it first; none before."""
    found = [id for id in explanation.update if id.rpartition(".")[0] == parameter]
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


def known_answers(subject: Subject) -> list[tuple[str, str]]:
    """Return texts that the run was evaluated on and that stand in its folder, with their right answers.

    Of several labels the answer is whether a text has the one that is looked at. The words of a tagger have a tag each.
    """
    try:
        evaluation = RunFolder(subject.path).read_evaluation()
    except CheckpointError:
        return []
    found, task = list[tuple[str, str]](), subject.task
    for row in evaluation.examples if evaluation and task.explain_as != "tagger" else []:
        truth = row.get("truth")
        if isinstance(truth, float):
            answer = number_text(truth)
        elif not isinstance(truth, list):
            answer = str(truth or row.get("reference") or "")
        elif task.explain_as == "multilabel_classifier":  # before one is chosen: the first
            answer = next(iter(truth), "")
        else:
            label = (task.label_names or [""])[-1]
            answer = label if label in truth else f"{NOT}{label}"
        if row.get("text") and answer:
            found.append((text_of(row), answer))
    return found


def why_no_learning(task: Task, streams: Sequence[Stream]) -> str | None:
    """Return why no answer to a text can be learned, as a sentence; None where one can."""
    count = max(map(len, streams))
    if count > MAX_EDITED_TOKENS:
        return f"learning takes up to {MAX_EDITED_TOKENS} tokens, and this text has {count}"
    return NO_ANSWER if task.explain_as == "text_embedder" else None


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
        view = looked_at(subject, request)
        answer = encode_answer(view, request, request.answer)
        if why := why_no_learning(view.task, answer.encoded.streams):
            raise UsageError(why, "shorten it")
        learner = Learner(view, answer, training_settings(subject, request))

        def explained(model: View, id: str, steps: int) -> Explanation:
            own_request, records = replace(request, learn_steps=steps), learning_records(model.model, learner)
            found = explain_encoded(model, own_request, answer.encoded, records, id, started)
            return replace(found, update=learner.update)

        base = explained(view, trace_id if request.learn_steps == 0 else f"{trace_id}-before", 0)
        loss = float(base.records[LOSS].value)
        base = replace(base, learning=learning_facts(learner, loss, None))
        if request.learn_steps == 0:
            return base
        for _ in range(request.learn_steps):
            learner.step()
        after = explained(replace(view, other=learner.model.eval()), trace_id, request.learn_steps)
        return replace(after, base=base, learning=learning_facts(learner, loss, learner.learned()))


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
        config = replace(config, lr=request.lr, matrix_lr=config.matrix_lr * request.lr / config.lr)
    return config if request.optimizer is None else replace(config, optimizer=request.optimizer)


def keep(explanation: Explanation, out: Path | str) -> Path:
    """Write the model after the steps of learning into a new run folder, whole or not at all; return its path.

    Of an ensemble the other members stay as they are.

    Raises:
        UsageError: no step was taken, or `out` is not empty.
        ResourceError: the disk is full, or cannot be written.
    """
    facts, out, run = explanation.learning, Path(out), RunFolder(explanation.run.path)
    if facts is None or facts.learned is None:
        raise UsageError("no step of learning was taken that could be kept", "as in: run.learn(text, answer, steps=1)")
    if out.resolve().is_relative_to(run.path.resolve()):
        message = f"{out} lies in the folder of the run that learned, whose files stay as they are"
        raise UsageError(message, "name a folder outside of it")
    if out.is_symlink() or RunFolder(out).not_empty:
        raise UsageError(f"{out} is {'a link' if out.is_symlink() else 'not empty'}", "name a new folder")
    source = run.require_model_folder()
    tokenizers = {TOKENIZER: (source / TOKENIZER).read_bytes()}
    config, _ = read_description(source)
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.is_dir():
        out.rmdir()  # it is empty
    with write_folder_atomically(out) as building:
        weights, record = learned_weights(explanation), learned_record(explanation)
        save_model(RunFolder(building).model, config, weights, tokenizers, _card(record, source))
        write_json(building / LEARNED_RECORD, record)
        if run.data.is_file():
            (building / run.data.name).write_bytes(run.data.read_bytes())
    return out


def learned_weights(explanation: Explanation) -> dict[str, Tensor]:
    """Return the weights of the whole run, with those that have learned in their place."""
    view, labels = explanation.subject, explanation.labels
    weights = {name: p.detach() for name, p in view.weights.named_parameters()}
    prefix = f"members.{view.member}." if view.together else ""
    learned = {f"{prefix}{name}": p.detach() for name, p in view.model.named_parameters()}
    # Of several labels the one that learned has a row of the head; the tag of a word shares the whole head.
    if labels is not None and labels.each[labels.shown].threshold is not None:
        for name in (f"{prefix}head.weight", f"{prefix}head.bias"):
            rows = weights[name].clone()
            rows[labels.shown] = learned[name][0]
            learned[name] = rows
    return weights | learned


def learned_record(explanation: Explanation) -> JsonObject:
    """Return what was learned and how, and the settings of the run whose model learned it, as JSON data."""
    facts, request = explanation.learning, explanation.request
    assert facts is not None and facts.learned is not None
    settings = training_settings(explanation.subject, request)
    return {
        "run": explanation.run.path.resolve().name,
        "checkpoint": request.checkpoint,
        "member": None if explanation.together is None else request.member,
        "members": None if explanation.together is None else len(members_of(explanation.subject.weights)),
        "text": request.text,
        "answer": facts.answer,
        "steps": len(facts.learned.steps),
        "optimizer": settings.optimizer,
        "lr": settings.lr,
        "loss_before": facts.loss,
        "loss_after": facts.learned.loss,
        "smoothing": facts.smoothing,
        "left_out": facts.left_out,
        SETTINGS: config_to_dict(explanation.run.task.config),
    }


def _card(record: JsonObject, source: Path) -> str:
    origin = read_origin(source)
    head = ["library_name: glassformer", *(origin.front_matter() if origin else [])]
    text = [
        "\n".join(["---", *head, "tags:", "- transformer", "---"]),
        f"# {cell_text(record['run'])} after {counted(record['steps'], 'steps')} on one text",
        f"It was not evaluated. `{LEARNED_RECORD}` has the text, its answer and the rest.",
    ]
    return "\n\n".join([*text, *(origin.of_descendant() if origin else [])]) + "\n"
