"""Validate requests for attributions, and build the value function that a request is about.

Requests may come from a page, so nothing in them is trusted. The model is not called here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np

from glassformer.config.fields import number, string
from glassformer.errors import UsageError
from glassformer.explain.attribution.value_function import ValueFunction, Words
from glassformer.explain.explanation import Explanation
from glassformer.explain.request import IDS, MAX_PREFIX, Request
from glassformer.explain.streams import Stream
from glassformer.tasks import Task
from glassformer.text.tokenizer import MASK, UNK

Method = Literal["erase", "integrated_gradients"]
INPUTS = {"text": "ids", "source": "src", "target": "tgt_in"}
"""The argument of the model that holds each stream."""


@dataclass(frozen=True)
class AttributeRequest(Request):
    """The prediction to explain, and the method."""

    trace: str = string(40, "")
    method: Method = "erase"
    prediction: int | None = number(None, IDS)
    """Index into `predictions`; default: the first generated token."""
    target: int | None = number(None, IDS)
    """Class or token id; default: the predicted class, or the token that follows."""
    foil: int | None = number(None, IDS)
    """Class or token id to contrast with; default: the second most probable class, or none for tokens."""


@dataclass(frozen=True)
class EraseRequest(Request):
    """The tokens to erase, and the prediction to repeat without them."""

    erase: Annotated[dict[str, list[int]], "Partial<Record<StreamName, number[]>>"] = field(
        metadata={"keys": tuple(INPUTS), "items": {"longest": MAX_PREFIX, "items": {"interval": IDS}}}
    )
    """Positions of the tokens by stream."""
    trace: str = string(40, "")
    prediction: int | None = number(None, IDS)
    target: int | None = number(None, IDS)
    foil: int | None = number(None, IDS)


def make_value_function(explanation: Explanation, request: AttributeRequest | EraseRequest) -> ValueFunction:
    """Return the value function of a request."""
    explanation.check_not_edited()
    task, tokenizer = explanation.subject.task, explanation.subject.task.tokenizer
    prediction = explanation.predictions[prediction_index(explanation, request.prediction)]
    classes = explanation.is_classifier
    top = [candidate.id for candidate in prediction.top]
    n_ids = len(task.label_names or []) if classes else tokenizer.vocab_size
    target, foil = request.target, request.foil
    if target is None:
        target = top[0] if prediction.actual is None else prediction.actual.id
    if foil is None and classes:
        foil = next(i for i in top if i != target)
    for name, value in (("target", target), ("foil", foil)):
        if value is not None and not 0 <= value < n_ids:
            raise UsageError(
                f"{name} {value} is no {'class' if classes else 'token'}", f"ids run from 0 to {n_ids - 1}"
            )
    if foil == target:
        raise UsageError(f"target and foil are both {target}", "choose another class or token to contrast with")
    ids, words, n_words = [], [], 0
    for stream, length in zip(explanation.streams, explanation.visible_lengths(prediction), strict=True):
        tensor = explanation.model_inputs[INPUTS[stream.name]][:, :length]
        word_of = _word_numbers(stream, tensor.shape[1], n_words)
        n_words = max(n_words, int(word_of.max(initial=-1)) + 1)
        # Cloned, so that inference tensors can take part in autograd.
        ids.append(tensor.clone())
        words.append(Words(stream.name, word_of))
    masks = (explanation.model_inputs.get(name) for name in ("padding_mask", "src_padding_mask"))
    return ValueFunction(
        model=explanation.subject.model,
        ids=ids,
        mask=next((mask.clone() for mask in masks if mask is not None), None),
        words=words,
        n_words=n_words,
        position=prediction.position,
        target=target,
        foil=foil,
        erase_id=tokenizer.mask_id if uses_mask_token(task) else tokenizer.unk_id,
        ngram_batch=explanation.model_inputs.get("ngram_batch"),
        masked=explanation.generation.masked is not None,
    )


def _word_numbers(stream: Stream, n: int, first: int) -> np.ndarray:
    """Return the word numbers of the first n tokens, from `first` on without gaps; -1 for what is never erased."""
    numbers: dict[int, int] = {}
    word_of = np.full(n, -1, dtype=np.int64)
    tokens = zip(stream.words[:n], stream.special[:n], stream.padding[:n], strict=True)
    for i, (word, special, padding) in enumerate(tokens):
        if word >= 0 and not special and not padding:
            word_of[i] = numbers.setdefault(word, first + len(numbers))
    return word_of


def uses_mask_token(task: Task) -> bool:
    """Return True if the model was trained with words replaced by [MASK]."""
    return task.explain_as == "masked_language_model" or task.config.train.word_mask_prob > 0


def erased_with(task: Task) -> str:
    """Return the token that replaces an erased one."""
    return MASK if uses_mask_token(task) else UNK


def prediction_index(explanation: Explanation, prediction: int | None) -> int:
    """Return the index of a prediction, by default that of the first generated token."""
    n = len(explanation.predictions)
    if explanation.is_classifier:
        return 0
    if prediction is None:
        return next(iter(explanation.generated), n - 1)
    if prediction >= n:
        raise UsageError(f"prediction {prediction} does not exist", f"predictions run from 0 to {n - 1}")
    return prediction
