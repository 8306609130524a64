"""Validate a request to explain one text.

A request may come from a page, that is from anywhere, so `from_dict` trusts nothing: the type and range of each field
are checked, and the error names the field.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any

from glassformer.errors import UsageError

CHECKPOINT = re.compile(r"model|step-[0-9]{8}")
"""Valid names of checkpoints; nothing else is ever used in a path."""
MAX_FULL_TOKENS, MAX_LAYERED_TOKENS = 128, 512
"""Longest streams captured whole, and longest captured one layer at a time; of longer ones only a window is."""
MAX_TEXT = 1 << 20
"""Maximum characters of a text; the server's limit is lower."""
MAX_PREFIX, MAX_PAD, MAX_BEAM, MAX_NEW, MAX_EDITS = 4096, 512, 32, 1024, 64
"""Limits of one request."""


@dataclass(frozen=True)
class TraceRequest:
    """One text to explain."""

    text: str
    """The text, the source sentence or the prompt."""
    target: str | None = None
    """A translation to explain instead of the model's own."""
    prefix: tuple[int, ...] = ()
    """Ids that the translation must start with, or that follow the prompt."""
    decode: Annotated[Mapping[str, Any], "Partial<DecodeSettings>"] = field(default_factory=dict)
    """Fields of `DecodeConfig` that differ from the run's."""
    pad: int = 0
    """Number of [PAD] tokens to append, to show that they change nothing."""
    checkpoint: str = "model"
    """"model" (the best weights) or a checkpoint's name."""
    member: int = 1
    """Model of an ensemble to trace, counted from 1."""
    window_start: int = 0
    """First position shown of a text that is too long to be shown whole."""
    edits: tuple[str, ...] = ()
    """Edits of the forward pass; the tokens are those that are decoded without them."""
    other_text: str | None = None
    """A second text, whose values the edits with =B take."""

    def without_edits(self) -> TraceRequest:
        """Return the request for the same text without edits."""
        return replace(self, edits=(), other_text=None)

    def of_other_text(self) -> TraceRequest:
        """Return the request for the second text, of the same weights."""
        return TraceRequest(self.other_text or "", decode=self.decode, checkpoint=self.checkpoint, member=self.member)

    @staticmethod
    def from_dict(data: Any) -> TraceRequest:
        """Return a request from parsed JSON.

        Raises:
            UsageError: a field is missing, unknown, of the wrong type or out of range; it is named.
        """
        return TraceRequest(**check_fields(data, _CHECKS, required=("text",)))

    def to_json(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults as JSON data."""
        values = asdict(self) | {"prefix": list(self.prefix), "decode": dict(self.decode), "edits": list(self.edits)}
        defaults = {f.name: f.default for f in fields(self)}
        return {k: v for k, v in values.items() if k == "text" or (v != defaults[k] and v not in ([], {}))}


def check_fields(
    data: Any, checks: Mapping[str, Callable[[str, Any], Any]], required: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the fields of a JSON object, each as its check returns it; null counts as absent.

    Args:
        data: parsed JSON.
        checks: for each field a function of its name and value that returns the value or raises UsageError.
        required: the fields that must be present.

    Raises:
        UsageError: the data is no object, lacks a field, or has one that is unknown or invalid.
    """
    if not isinstance(data, dict):
        raise UsageError(f"the request should be a JSON object, not {_json_type(data)}")
    unknown = sorted(str(name)[:40] for name in data.keys() - checks.keys())
    if unknown:
        raise UsageError(f"a request has no field {unknown[0]!r}", f"there are {', '.join(checks)}")
    for name in required:
        if data.get(name) is None:
            raise UsageError(f"the request lacks the field {name!r}")
    return {name: checks[name](name, value) for name, value in data.items() if value is not None}


def check_text(name: str, value: Any) -> str:
    """Return a string of Unicode text."""
    if not isinstance(value, str):
        raise UsageError(f"{name} should be a string, not {_json_type(value)}")
    if len(value) > MAX_TEXT:
        raise UsageError(f"{name} has {len(value):,} characters, more than {MAX_TEXT:,}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(f"{name}, character {error.start + 1}: unpaired surrogate, not Unicode text") from None
    return value


def check_integer(low: int, high: int) -> Callable[[str, Any], int]:
    """Return a check for an integer in low … high."""

    def check(name: str, value: Any) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise UsageError(f"{name} should be a whole number, not {_json_type(value)}")
        if not low <= value <= high:
            raise UsageError(f"{name} should be from {low} to {high}, not {_abbreviated(value)}")
        return value

    return check


def check_number(low: float, high: float) -> Callable[[str, Any], float]:
    """Return a check for a finite number in low … high."""

    def check(name: str, value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise UsageError(f"{name} should be a number, not {_json_type(value)}")
        if not (low <= value <= high and math.isfinite(value)):
            raise UsageError(f"{name} should be from {low:g} to {high:g}, not {_abbreviated(value)}")
        return float(value)

    return check


def check_ids(name: str, value: Any) -> tuple[int, ...]:
    """Return a list of token ids of limited length; whether the vocabulary has them is checked elsewhere."""
    if not isinstance(value, list | tuple):
        raise UsageError(f"{name} should be a list of token ids, not {_json_type(value)}")
    if len(value) > MAX_PREFIX:
        raise UsageError(f"{name} has {len(value):,} ids, more than {MAX_PREFIX:,}")
    check_id = check_integer(0, 2**31 - 1)
    return tuple(check_id(f"{name}[{i}]", item) for i, item in enumerate(value))


def check_edits(name: str, value: Any) -> tuple[str, ...]:
    """Return a list of edits in the form in which they are printed; their steps are checked elsewhere."""
    if not isinstance(value, list | tuple):
        raise UsageError(f"{name} should be a list of edits, not {_json_type(value)}")
    if len(value) > MAX_EDITS:
        raise UsageError(f"{name} has {len(value):,} edits, more than {MAX_EDITS}")
    return tuple(check_text(f"{name}[{i}]", item) for i, item in enumerate(value))


def check_checkpoint(name: str, value: Any) -> str:
    """Return the name of a checkpoint, which cannot lead out of the run folder."""
    if not isinstance(value, str) or not CHECKPOINT.fullmatch(value):
        raise UsageError(f'{name} should be "model" or like "step-00001000", not {_abbreviated(value)}')
    return value


def check_decode(name: str, value: Any) -> dict[str, Any]:
    """Return some fields of `DecodeConfig`."""
    if not isinstance(value, dict):
        raise UsageError(f"{name} should be a JSON object, not {_json_type(value)}")
    unknown = sorted(str(key)[:40] for key in value.keys() - _DECODE_CHECKS.keys())
    if unknown:
        raise UsageError(f"{name} has no field {unknown[0]!r}", f"there are {', '.join(_DECODE_CHECKS)}")
    return {key: _DECODE_CHECKS[key](f"{name}.{key}", item) for key, item in value.items() if item is not None}


def _check_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name} should be true or false, not {_json_type(value)}")
    return value


def _json_type(value: Any) -> str:
    """Return the JSON type of a value."""
    names = {type(None): "null", bool: "true or false", int: "a number", float: "a number", str: "a string"}
    names |= {list: "a list", tuple: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def _abbreviated(value: Any) -> str:
    """Return a value for a message, where an integer of a million digits would not fit."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**15:
        return "a far larger number"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


_DECODE_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "sample": _check_flag,
    "beam_size": check_integer(1, MAX_BEAM),
    "n_best": check_integer(1, MAX_BEAM),
    "length_penalty": check_number(-10, 10),
    "max_new_tokens": check_integer(1, MAX_NEW),
    "temperature": check_number(0, 100),
    "top_k": check_integer(0, 2**31 - 1),
    "top_p": check_number(1e-9, 1),
    "min_p": check_number(0, 1),
    "decode_seed": check_integer(0, 2**53),
}

_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "text": check_text,
    "target": check_text,
    "prefix": check_ids,
    "decode": check_decode,
    "pad": check_integer(0, MAX_PAD),
    "checkpoint": check_checkpoint,
    "member": check_integer(1, 100),
    "window_start": check_integer(0, 2**31 - 1),
    "edits": check_edits,
    "other_text": check_text,
}
