"""The answer that a text should have, as labels of the model's predictions, and the loss as steps after the logits.

The loss is that of training: cross-entropy with the run's label smoothing, the sum over all labels divided by their
number. Its steps are probabilities p, targets q, the cross-entropy of each position, and their mean. Of a number it is
the squared error of the output, in standard deviations of the training numbers; its steps are the error and its square.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.data.datasets.labels import normalised_label
from glassformer.data.datasets.numbers import why_no_number
from glassformer.errors import UsageError
from glassformer.explain.capture.sites import expression_line, source_line
from glassformer.explain.capture.tape import Axis, Step
from glassformer.explain.inputs.encoded_text import EncodedText
from glassformer.explain.inputs.families import encode
from glassformer.explain.predictions import DecodeLog
from glassformer.explain.request import MAX_FULL_TOKENS, MAX_LAYERED_TOKENS, TraceRequest
from glassformer.explain.subject import Subject
from glassformer.nn.operations import OPERATIONS, named, run
from glassformer.text.decision import number_text

LOSS = "loss"
"""Id of the last step."""
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
    match subject.task.explain_as:
        case "classifier" | "tagger":
            return _class(subject, request, answer)
        case "translator":
            return _translation(subject, request, answer)
        case "masked_language_model":
            return _masked_words(subject, request, answer)
        case "language_model":
            return _continuation(subject, request, answer)
        case "regressor":
            return _number(subject, request, answer)
    raise UsageError(NO_ANSWER, "train a classifier from it: --init-from")


def _class(subject: Subject, request: TraceRequest, answer: str) -> EncodedAnswer:
    names = subject.task.label_names or []
    name = {normalised_label(name): name for name in names}.get(normalised_label(answer))
    if name is None:
        shown = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
        raise UsageError(f"{answer[:60]!r} is not a class of this model", f"the classes are {shown}")
    return EncodedAnswer(encode(subject, request), [names.index(name)], name)


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
    longest = min(subject.task.config.text.max_len, MAX_FULL_TOKENS) - 1
    if n > longest:
        raise UsageError(f"the answer has {n} tokens; at most {longest} can be learned at once")
    encoded = encode(subject, replace(request, target=answer))
    return EncodedAnswer(encoded, [*encoded.following], encoded.answer)


def _masked_words(subject: Subject, request: TraceRequest, answer: str) -> EncodedAnswer:
    t, encoded = subject.task.tokenizer, encode(subject, request)
    masked, ids = encoded.generation.masked or [], _known_ids(t, answer)
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
    one = replace(request, prefix=tuple(ids), decode={**request.decode, "max_new_tokens": 1})
    encoded = encode(subject, one)
    [whole] = encoded.streams
    n = whole.n_given - 1  # the last token of the answer is only predicted
    first = encoded.generation.n_fixed - 1
    if first < 0 or n - first < len(ids) - 1:
        n = len(t.framed(t.encode(request.text))) + len(ids)
        context = min(subject.task.config.text.max_len, MAX_LAYERED_TOKENS)
        raise UsageError(f"prompt and answer have {n} tokens, and {context} are read at once", "shorten them")
    per_token = ("ids", "pieces", "special", "unknown", "padding", "words", "spans", "ngrams", "ngram_ids")
    kept = {name: values[:n] for name in per_token if (values := getattr(whole, name)) is not None}
    stream, text = replace(whole, **kept, n_given=n), t.decode(ids)
    encoded = replace(
        encoded,
        model_inputs={"ids": encoded.model_inputs["ids"][:, :n]},
        streams=[stream],
        positions=[*range(n)],
        following=[*stream.ids[1:], ids[-1]],
        decode=DecodeLog("given", encoded.decode.settings),
        answer=text,
        generation=replace(encoded.generation, first=first),
        log_start=first,
    )
    return EncodedAnswer(encoded, [None] * first + [*ids], text)


def _known_ids(t: Any, answer: str) -> list[int]:
    ids = t.encode(answer)
    if t.unk_id in ids:
        raise UsageError(f"the answer {answer[:60]!r} has tokens that are not in the vocabulary", "write it otherwise")
    return ids


def targets(logits: Tensor, labels: Sequence[int | None], smoothing: float) -> Tensor:
    """Return q: 1 - ε for the label and ε/V for every class or token (paper, 5.4); zeros where there is no label."""
    q = torch.zeros_like(logits)
    for row, label in zip(q.view(-1, q.shape[-1]), labels, strict=True):
        if label is not None:
            row += smoothing / q.shape[-1]
            row[label] += 1 - smoothing
    return q


def loss_steps(
    logits: Step, labels: list[int | None], smoothing: float, number: float | None = None
) -> dict[str, Step]:
    """Return the steps from the logits, or the output of a regressor, to the loss, by id."""
    axes = (Axis("loss"),)
    if number is not None:
        error = _step("loss.error", "error", [logits], axes, attrs={"number": number})
        found = [error, replace(_step(LOSS, "square", [error], axes), site="mean_loss")]
    else:
        q, attrs = targets(logits.value, labels, smoothing), {"labels": labels, "smoothing": smoothing}
        found = [
            _step("loss.probabilities", "softmax", [logits], logits.axes, logits.shape),
            _step("loss.targets", "targets", [], logits.axes, attrs=attrs, value=q),
        ]
        each = logits.axes[:-1] or axes, logits.shape[:-1] or (1,)
        found.append(_step("loss.each", "cross_entropy", [logits, found[1]], *each))
        found.append(_step(LOSS, "mean_loss", [found[2]], axes, attrs={"labels": labels}))
    return {step.id: step for step in found}


def _step(
    id: str,
    op: str,
    inputs: list[Step],
    axes: tuple[Axis, ...],
    shape: tuple[int, ...] = (1,),
    attrs: Mapping[str, Any] | None = None,
    value: Tensor | None = None,
) -> Step:
    """Return a step that an operation computes, or one of this value."""
    ids, constants = tuple(step.id for step in inputs), dict(attrs or {})
    if value is None:
        value = run(op, named(op, [step.value for step in inputs], {}), constants, shape)
        source = expression_line(op, OPERATIONS[op].gives)
    else:
        source = source_line(targets, "row[label] +=")
    return Step(id, op, op, ids, {}, constants, axes, value, source, stack="head")
