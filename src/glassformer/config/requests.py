"""Requests: flat frozen dataclasses that are checked as they are built, by a page, a command, a file or in Python.

Fields are declared as those of a configuration are (`settings.py`), and checked by the same function.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

from glassformer.config.validation import convert, kinds, shown
from glassformer.errors import UsageError

LENGTH_RATIO, LENGTH_MARGIN = 2, 20
"""A translation has at most LENGTH_RATIO · source + LENGTH_MARGIN tokens: a longer one is a loop."""


def length_limit(n_source: int, max_len: int, max_new_tokens: int) -> int:
    """Return the maximum tokens, EOS included, of a translation of `n_source` tokens."""
    return max(1, min(max_len, max_new_tokens, LENGTH_RATIO * n_source + LENGTH_MARGIN))


def window_start(n_tokens: int, max_len: int) -> int:
    """Return the index of the first of `n_tokens` tokens that the model still sees when it predicts the next one.

    Up to max_len that is 0. Beyond, the window jumps ahead by half of max_len and is read again: the model sees between
    half of max_len and max_len tokens, and most tokens cost one cached step. (Moving it by one would shift every
    position, and invalidate the cache, at each token.) It depends only on the number of tokens, never on the batch.
    """
    jump = max_len - max_len // 2
    return jump * -(-max(0, n_tokens - max_len) // jump)


def truncate(ids: list[Any], max_len: int, keep: str) -> list[Any]:
    """Return the first `max_len` ids, the last, or half of each (the odd one from the head)."""
    if len(ids) <= max_len:
        return ids
    n_tail = {"head": 0, "tail": max_len, "head+tail": max_len // 2}[keep]
    return ids[: max_len - n_tail] + ids[len(ids) - n_tail :]


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
