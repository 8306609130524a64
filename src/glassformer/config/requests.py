"""Requests: flat frozen dataclasses that are checked as they are built, by a page, a command, a file or in Python.

Fields are declared as those of a configuration are (`fields.py`), and checked by the same functions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

from glassformer.config.validation import convert
from glassformer.config.values import items, shown
from glassformer.errors import UsageError

Request = TypeVar("Request")


def check_request(request: Any, where: str = "request") -> None:
    """Bring each field of a frozen dataclass to its type, as it is built: by a page, a command or in Python.

    A field with `partial` in its metadata holds some fields of that dataclass; one with `keys` lists by these names;
    one with `tables` a list of that dataclass.

    Raises:
        UsageError: a field is of another type, or outside its interval, length or form; it is named.
    """
    for field in fields(request):
        value = getattr(request, field.name)
        if partial := field.metadata.get("partial"):
            value = _partial(value, partial, field.name, where)
        elif keys := field.metadata.get("keys"):
            value = _lists(value, keys, field.metadata["items"], field.name, where)
        elif inner := field.metadata.get("tables"):
            value = _tables(value, inner, field.name, where)
        else:
            value = convert(value, field, type(request), field.name, where)
        object.__setattr__(request, field.name, value)


def build_request(kind: type[Request], data: Any, where: str = "request") -> Request:
    """Return a request, or another flat dataclass that calls `check_request`, from parsed JSON or TOML.

    null counts as absent.

    Raises:
        UsageError: the data is no object, lacks a field, or has one that is unknown or invalid; it is named.
    """
    if not isinstance(data, dict):
        raise UsageError(f"{where}: expected a JSON object; got {shown(data)}")
    known: dict[str, Field[Any]] = {f.name: f for f in fields(kind)}  # pyright: ignore[reportArgumentType]
    if unknown := sorted(str(name)[:40] for name in data if name not in known):
        raise UsageError(f"{where}: there is no field {unknown[0]!r}", f"there are {', '.join(known)}")
    given = {name: value for name, value in data.items() if value is not None}
    for name, field in known.items():
        if name not in given and field.default is MISSING and field.default_factory is MISSING:
            raise UsageError(f"{where}: the field {name!r} is missing")
    return kind(**given)


def _partial(value: Any, kind: type, key: str, where: str) -> dict[str, Any]:
    """Return some fields of a dataclass, each checked by its own interval; null counts as absent."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: {key} must be a JSON object; got {shown(value)}")
    known: dict[str, Field[Any]] = {f.name: f for f in fields(kind) if f.metadata.get("interval") or f.type == "bool"}
    if unknown := sorted(str(name)[:40] for name in value if name not in known):
        raise UsageError(f"{where}: {key} has no field {unknown[0]!r}", f"there are {', '.join(known)}")
    given = {name: item for name, item in value.items() if item is not None}
    return {name: convert(item, known[name], kind, f"{key}.{name}", where) for name, item in given.items()}


def _lists(value: Any, keys: Collection[str], each: Mapping[str, Any], key: str, where: str) -> dict[str, list[int]]:
    """Return lists of numbers by name."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: {key} must be a JSON object of lists; got {shown(value)}")
    if unknown := [str(name)[:40] for name in value if name not in keys]:
        raise UsageError(f"{where}: {key} has no {unknown[0]!r}", f"there are {', '.join(keys)}")
    return {name: items(item, list[int], each, f"{key}.{name}", where) for name, item in value.items()}


def _tables(value: Any, kind: type, key: str, where: str) -> list[Any]:
    """Return a list of a dataclass, built from tables."""
    if not isinstance(value, list | tuple):
        raise UsageError(f"{where}: {key} must be an array of tables; got {shown(value)}")
    return [
        item if isinstance(item, kind) else build_request(kind, item, f"{where}, {key} {number}")
        for number, item in enumerate(value, start=1)
    ]
