"""From a request about what a model said to the question it asks: which number, of which words.

Requests may come from a page, so nothing in them is believed. Nothing is asked of a model here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from glassformer.errors import UsageError
from glassformer.explain.attribution.value_function import ValueFunction, Words
from glassformer.explain.explanation_data import Inference
from glassformer.explain.request import check_fields, check_ids, check_integer
from glassformer.explain.streams import Stream
from glassformer.tasks import Task
from glassformer.text.tokenizer import MASK, UNK

Method = Literal["erase", "integrated_gradients"]
INPUTS = {"text": "ids", "source": "src", "target": "tgt_in"}
"""The stream each of the model's inputs is."""


@dataclass(frozen=True)
class AttributeRequest:
    """What to explain, and how."""

    trace: str = ""
    method: Method = "erase"
    prediction: int | None = None
    """Which of `predictions`; the first token the model wrote itself when absent."""
    target: int | None = None
    """Class or token id; what the model said, or the token that follows, when absent."""
    foil: int | None = None
    """Class or token id to contrast with; a classifier's runner-up, or nothing, when absent."""

    @staticmethod
    def from_dict(data: Any) -> AttributeRequest:
        """A request from parsed JSON.

        Raises:
            UsageError: a field is unknown, of the wrong type or out of range; it is named.
        """
        return AttributeRequest(**check_fields(data, _WHICH | {"method": _check_method}))


@dataclass(frozen=True)
class EraseRequest:
    """What to say again with some tokens erased."""

    erase: Annotated[dict[str, list[int]], "Partial<Record<StreamName, number[]>>"]
    """Their positions, by stream."""
    trace: str = ""
    prediction: int | None = None
    target: int | None = None
    foil: int | None = None

    @staticmethod
    def from_dict(data: Any) -> EraseRequest:
        """A request from parsed JSON.

        Raises:
            UsageError: a field is missing, unknown, of the wrong type or out of range; it is named.
        """
        return EraseRequest(**check_fields(data, _WHICH | {"erase": _check_erase}, required=("erase",)))


def value_function(inference: Inference, request: AttributeRequest | EraseRequest) -> ValueFunction:
    """The question of a request about what a model said.

    Raises:
        UsageError: as in `attribute`.
    """
    task, tokenizer = inference.subject.task, inference.subject.task.tokenizer
    chosen = inference.predictions[index_of(inference, request.prediction)]
    classes = inference.decides
    position, top = chosen.position, [candidate.id for candidate in chosen.top]
    n_ids = len(task.label_names or []) if classes else tokenizer.vocab_size
    target, foil = request.target, request.foil
    if target is None:
        target = top[0] if chosen.actual is None else chosen.actual.id
    if foil is None and classes:
        foil = next(i for i in top if i != target)
    for name, value in (("target", target), ("foil", foil)):
        if value is not None and not 0 <= value < n_ids:
            kind = "class" if classes else "token"
            raise UsageError(f"{name} {value} is no {kind}", f"ids run from 0 to {n_ids - 1}")
    if foil == target:
        raise UsageError(f"target and foil are both {target}", "a foil is what might have been said instead")
    ids, words, n_words = [], [], 0
    for stream, n_read in zip(inference.streams, inference.read_until(chosen), strict=True):
        tensor = inference.model_inputs[INPUTS[stream.name]][:, :n_read]
        word_of = _word_numbers(stream, tensor.shape[1], n_words)
        n_words = max(n_words, int(word_of.max(initial=-1)) + 1)
        ids.append(tensor.clone())  # as ordinary tensors, whatever mode they were made in
        words.append(Words(stream.name, word_of))
    masks = (inference.model_inputs.get(name) for name in ("padding_mask", "src_padding_mask"))
    mask = next((m.clone() for m in masks if m is not None), None)
    erase_id = tokenizer.mask_id if masked_in_training(task) else tokenizer.unk_id
    spelling = inference.model_inputs.get("spelling")
    return ValueFunction(
        inference.subject.model, ids, mask, words, n_words, position, target, foil, erase_id, spelling
    )


def _word_numbers(stream: Stream, n: int, first: int) -> np.ndarray:
    """Words of the first n tokens, numbered from `first` on without gaps; -1 for what is never erased."""
    numbers: dict[int, int] = {}
    word_of = np.full(n, -1, dtype=np.int64)
    for i, (word, special, padding) in enumerate(
        zip(stream.words[:n], stream.special[:n], stream.padding[:n], strict=True)
    ):
        if word >= 0 and not special and not padding:
            word_of[i] = numbers.setdefault(word, first + len(numbers))
    return word_of


def masked_in_training(task: Task) -> bool:
    """Whether [MASK] stood in for words while the model was trained, so that it knows what to make of it."""
    return task.config.train.word_mask_prob > 0


def erased_with(task: Task) -> str:
    """The token that stands in for an erased one."""
    return MASK if masked_in_training(task) else UNK


def index_of(inference: Inference, prediction: int | None) -> int:
    """Which prediction is meant; when none is named, of the first token the model wrote itself."""
    predictions = inference.predictions
    if inference.decides:
        return 0  # there is one, of the whole text
    if prediction is None:
        return next(iter(inference.written), len(predictions) - 1)
    if prediction >= len(predictions):
        raise UsageError(f"prediction {prediction} is not there", f"there are {len(predictions)}, from 0 on")
    return prediction


def _check_method(name: str, value: Any) -> str:
    if value not in ("erase", "integrated_gradients"):
        raise UsageError(f'{name} should be "erase" or "integrated_gradients"')
    return value


def _check_trace(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > 40:
        raise UsageError(f"{name} should be the id of a trace")
    return value


def _check_erase(name: str, value: Any) -> dict[str, list[int]]:
    """Lists of positions, by stream."""
    if not isinstance(value, dict) or len(value) > len(INPUTS):
        raise UsageError(f"{name} should be a JSON object of streams and their positions")
    if unknown := [str(stream)[:40] for stream in value if stream not in INPUTS]:
        raise UsageError(f"{name} names no stream {unknown[0]!r}", f"there are {', '.join(INPUTS)}")
    return {stream: list(check_ids(f"{name}.{stream}", ids)) for stream, ids in value.items()}


_WHICH: dict[str, Callable[[str, Any], Any]] = {
    "trace": _check_trace,
    "prediction": check_integer(0, 2**31 - 1),
    "target": check_integer(0, 2**31 - 1),
    "foil": check_integer(0, 2**31 - 1),
}
