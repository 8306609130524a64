"""JSON values with types: dataclasses made of JSON objects, each field checked against its annotation."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from glassformer.errors import CheckpointError

T = TypeVar("T")


def dataclass_from_json(cls: type[T], value: Any, where: Path | str) -> T:
    """Make a dataclass of those of its fields that a JSON object has; null stands for the default.

    A CheckpointError names `where` if it is no object, lacks a field that has no default, or has one of another type.
    """
    kinds, known = field_types(cls), json_object(value, where).items()
    optional = {f.name for f in fields(cls) if f.default is not MISSING}  # pyright: ignore[reportArgumentType]
    kept = {name: item for name, item in known if name in kinds and not (item is None and name in optional)}
    check_types(kept, kinds, where)
    try:
        return cls(**kept)
    except TypeError as error:
        raise CheckpointError(f"{where} lacks what it should hold: {error}") from error


field_types = cache(get_type_hints)
"""The type of each field of a dataclass, by name."""


def check_types(values: Mapping[str, Any], kinds: Mapping[str, Any], where: Path | str) -> None:
    """Raise a CheckpointError if a value is not of the type that `kinds` has for its name."""
    for name, item in values.items():
        if name in kinds and not is_of_type(item, kinds[name]):
            raise CheckpointError(f"{where}: {name} should be {_type_name(kinds[name])}, not {reprlib.repr(item)}")


def is_of_type(value: Any, kind: Any) -> bool:
    """Return True if a JSON value has a type such as `dict[str, float]`; an integer is a float, a boolean neither."""
    if kind is Any:
        return True
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(is_of_type(value, one) for one in inner)
    if origin is list:
        return isinstance(value, list) and all(is_of_type(item, inner[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(is_of_type(item, inner[1]) for item in value.values())
    if is_dataclass(kind):
        return isinstance(value, dict | kind)  # pyright: ignore[reportArgumentType]
    if kind is float:
        return type(value) in (int, float)
    return type(value) is kind


def _type_name(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind)) if get_origin(kind) is None else str(kind).replace("typing.", "")


def json_object(value: Any, where: Path | str) -> dict[str, Any]:
    """Return a JSON object; raise a CheckpointError that names `where` for any other value."""
    if not isinstance(value, dict):
        raise CheckpointError(f"{where} should hold a JSON object")
    return value
