"""Check single values against their types, intervals, lengths and forms, for configurations and for requests."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, get_args, get_origin

from glassformer.errors import UsageError

MAX_EXACT = 2**53
"""Integers beyond this are not converted to a float, nor printed."""


def items(value: Any, kind: Any, metadata: Mapping[str, Any], key: str, where: str) -> Any:
    """Return a list or tuple as its field has it, each item checked; `longest` bounds their number."""
    of = get_args(kind)[0]
    names = {str: "strings", int: "whole numbers"}
    if not isinstance(value, list | tuple) or (of is str and not all(isinstance(item, str) for item in value)):
        raise UsageError(f"{where}: {key} must be an array of {names[of]}; got {shown(value)}")
    if len(value) > metadata.get("longest", len(value)):
        raise UsageError(f"{where}: {key} has {len(value):,} items, more than {metadata['longest']:,}")
    each = metadata.get("items", {})
    return get_origin(kind)(scalar(item, of, each, f"{key}[{i}]", where) for i, item in enumerate(value))


def scalar(value: Any, kind: Any, metadata: Mapping[str, Any], key: str, where: str) -> Any:
    """Return a number, flag or string as its field's type, if it is in the field's interval or of its length."""
    interval = metadata.get("interval")
    if kind is float and type(value) is int and abs(value) <= MAX_EXACT:
        value = float(value)
    if kind is str and isinstance(value, PurePath):
        value = str(value)
    if type(value) is not kind:
        names = {int: "a whole number", float: "a number", str: "a string in quotes", bool: "true or false"}
        raise UsageError(f"{where}: {key} must be {names[kind]}; got {shown(value)}")
    if interval and not _inside(value, interval):
        raise UsageError(f"{where}: {key} must be in {interval}; got {shown(value)}")
    if "longest" in metadata:
        _check_text(str(value), metadata, key, where)
    return value


def _check_text(value: str, metadata: Mapping[str, Any], key: str, where: str) -> None:
    """Check a string that has a maximum length: Unicode text, perhaps of one form."""
    if len(value) > metadata["longest"]:
        raise UsageError(f"{where}: {key} has {len(value):,} characters, more than {metadata['longest']:,}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        message = f"{where}: {key}, character {error.start + 1}: unpaired surrogate, not Unicode text"
        raise UsageError(message) from None
    pattern, form = metadata.get("form", ("", ""))
    if pattern and not re.fullmatch(pattern, value):
        raise UsageError(f"{where}: {key} must be {form}; got {shown(value)}")


def shown(value: Any) -> str:
    """Return a value for a message, where an integer of a million digits or a long text would not fit."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= MAX_EXACT:
        return "a far larger number"
    if isinstance(value, list | tuple | dict) and len(value) > 8:
        return f"{type(value).__name__} of {len(value):,}"
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of many digits inside
        return type(value).__name__
    return text if len(text) <= 100 else text[:97] + "…"


def nearest(word: str, words: Iterable[str]) -> str:
    """Return the start of a hint, `did you mean 'x'? `, or nothing if no word is similar."""
    near = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}? " if near else ""


def _inside(number: float, interval: str) -> bool:
    """Return True if the interval contains the number; no interval contains NaN."""
    low, high = (float(bound) for bound in interval[1:-1].split(","))
    above = number >= low if interval[0] == "[" else number > low
    return above and (number <= high if interval[-1] == "]" else number < high)
