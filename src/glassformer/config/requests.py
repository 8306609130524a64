"""Requests: flat frozen dataclasses that are checked as they are built, by a page, a command, a file or in Python.

Fields are declared as those of a configuration are (`fields.py`), and checked by the same function.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

from glassformer.config.validation import convert, kinds, shown
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
        key, value, metadata = field.name, getattr(request, field.name), field.metadata
        if kind := metadata.get("partial"):
            known = {f.name: f for f in fields(kind) if f.metadata.get("interval") or f.type == "bool"}
            given = {name: v for name, v in _mapping(value, known, key, "", "field ", where).items() if v is not None}
            of = kinds(kind)
            value = {n: convert(v, of[n], known[n].metadata, f"{key}.{n}", where) for n, v in given.items()}
        elif keys := metadata.get("keys"):
            lists = _mapping(value, keys, key, " of lists", "", where)
            value = {n: convert(v, list[int], metadata["items"], f"{key}.{n}", where) for n, v in lists.items()}
        elif kind := metadata.get("tables"):
            if not isinstance(value, list | tuple):
                raise UsageError(f"{where}: {key} must be an array of tables; got {shown(value)}")
            numbered = enumerate(value, start=1)
            value = [v if isinstance(v, kind) else build_request(kind, v, f"{where}, {key} {n}") for n, v in numbered]
        else:
            value = convert(value, kinds(type(request))[key], metadata, key, where)
        object.__setattr__(request, key, value)


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


def _mapping(value: Any, known: Collection[str], key: str, of: str, what: str, where: str) -> Mapping[str, Any]:
    """Return a JSON object, all of whose names are known."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: {key} must be a JSON object{of}; got {shown(value)}")
    if unknown := sorted(str(name)[:40] for name in value if name not in known):
        raise UsageError(f"{where}: {key} has no {what}{unknown[0]!r}", f"there are {', '.join(known)}")
    return value
