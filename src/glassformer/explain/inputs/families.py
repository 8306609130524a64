"""Describe the families of models that can be explained, and all in which they differ here.

All else follows from the data, such as the streams or whether a prediction has a position. A new family is an entry of
`FAMILIES` and a module in this package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from glassformer.config import DecodeConfig
from glassformer.errors import UsageError
from glassformer.explain.inputs import classification, language_model, masked_language_model, translation
from glassformer.explain.inputs.encoded_text import EncodedText
from glassformer.explain.request import TraceRequest
from glassformer.explain.subject import Subject
from glassformer.tasks import Task
from glassformer.text.tokenizer import Tokenizer

Stacks = Literal["encoder", "encoder-decoder", "decoder"]


@dataclass(frozen=True)
class ModelFamily:
    """A family of models.

    Attributes:
        stacks: its stacks.
        is_classifier: True if a model predicts once per text; others predict a token at each position.
        request_fields: the fields of a request that only some families support.
        encode: encodes and decodes a text as in prediction.
        decode_defaults: changes the decode settings of a run for explanations.
    """

    stacks: Stacks
    is_classifier: bool
    request_fields: frozenset[str]
    encode: Callable[[Subject, TraceRequest, DecodeConfig], EncodedText]
    decode_defaults: Callable[[DecodeConfig], DecodeConfig] = lambda config: config


FAMILIES: dict[str, ModelFamily] = {
    "classifier": ModelFamily("encoder", True, frozenset(), classification.encode_for_classifier),
    "masked_language_model": ModelFamily(
        "encoder", False, frozenset(), masked_language_model.encode_for_masked_language_model
    ),
    "translator": ModelFamily(
        "encoder-decoder", False, frozenset({"target", "prefix"}), translation.encode_for_translator
    ),
    "language_model": ModelFamily(
        "decoder",
        False,
        frozenset({"prefix"}),
        language_model.encode_for_language_model,
        language_model.language_model_settings,
    ),
}
"""The families by `Task.explain_as`."""


def family_of(task: Task) -> ModelFamily:
    """Return the family of a task's models."""
    if task.explain_as is None:
        raise UsageError(f"models of the task {task.name} cannot be explained")
    return FAMILIES[task.explain_as]


def encode(subject: Subject, request: TraceRequest) -> EncodedText:
    """Encode and decode a text as in prediction."""
    family = family_of(subject.task)
    for name in ("target", "prefix"):
        if getattr(request, name) and name not in family.request_fields:
            raise UsageError(f"{name} does not apply to the task {subject.task.name}", f"remove {name}")
    if request.prefix and request.target is not None:
        raise UsageError("a request has a target or a prefix, not both", "remove one of them")
    _check_prefix(request.prefix, subject.task.tokenizer)
    return family.encode(subject, request, decode_settings(subject, dict(request.decode)))


def decode_settings(subject: Subject, changes: dict[str, Any]) -> DecodeConfig:
    """Return the decode settings for an explanation, with some changes."""
    unknown = sorted(changes.keys() - {f.name for f in fields(DecodeConfig)})
    if unknown:
        raise UsageError(f"decode has no field {unknown[0]!r}")
    return replace(family_of(subject.task).decode_defaults(subject.task.config.decode), **changes)


def _check_prefix(prefix: Sequence[int], t: Tokenizer) -> None:
    for index, token in enumerate(prefix):
        if not 0 <= token < t.vocab_size:
            raise UsageError(f"prefix[{index}] must be an id from 0 to {t.vocab_size - 1}, got {token}")
        if token in (t.pad_id, t.bos_id, t.eos_id):
            raise UsageError(f"prefix[{index}] must be an ordinary token, got {t.tokens([token])[0]}")
