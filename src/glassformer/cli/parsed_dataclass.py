"""The dataclass that tyro parses, derived from a command's arguments: only usable flags, with their help."""

from __future__ import annotations

from dataclasses import Field, field, fields, is_dataclass, make_dataclass, replace
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

from glassformer.config import idle
from glassformer.config.fields import docstrings

PLACEHOLDERS = {"_file": "FILE", "_dir": "DIR", "_column": "NAME", "_lang": "LANG", "out": "DIR", "init_from": "RUN"}
"""The end of a text field's name, and what stands for its value in the help."""

PREFIXED = ("text", "model")
"""Sections whose flags carry their name."""


def switches(section: Any, prefix: str = "") -> dict[str, bool]:
    """Return the flag of each boolean field, with its value."""
    found: dict[str, bool] = {}
    for f in fields(section):
        value = getattr(section, f.name)
        if is_dataclass(value):
            found |= switches(value, f"{f.name}." if f.name in PREFIXED else "")
        elif isinstance(value, bool):
            found[f"--{prefix}{f.name.replace('_', '-')}"] = value
    return found


def offer(
    section: Any, everything: bool, ignores: frozenset[str], path: str = "", taken: set[str] | None = None
) -> type:
    """Return a dataclass for tyro like `section`'s, with its values as defaults and only the fields to offer.

    Args:
        section: the command's arguments, or a section of them.
        everything: also offer sections that are not selected; a flag that two of them have is offered once.
        ignores: fields and sections not to offer, such as `model.pooling` or `decode`.
        path: name of the section, such as `train.adamw`.
        taken: names in the sections that were offered before.
    """
    taken = set() if taken is None else taken
    hints, help_texts = get_type_hints(type(section), include_extras=True), docstrings(type(section))
    hidden = () if everything else idle(section)
    made: list[tuple[str, Any, Any]] = []
    for f in fields(section):
        name, value = f"{path}.{f.name}".removeprefix("."), getattr(section, f.name)
        if f.name in hidden or name in ignores or f.name in taken:
            continue
        if not is_dataclass(value):
            taken.add(f.name)
            behavior = _range_and_default(f, value)
            argument = tyro.conf.arg(
                help=f"Disable: {help_texts[f.name]}" if value is True else help_texts[f.name],
                metavar=_metavar(f.name, hints[f.name]),
                help_behavior_hint=behavior,
            )
            made.append((f.name, Annotated[hints[f.name], argument], field(default=value)))
        elif (inner := offer(value, everything, ignores, name, taken)).__dataclass_fields__:
            kind = inner if f.name in PREFIXED else tyro.conf.OmitArgPrefixes[inner]
            made.append((f.name, kind, field(default_factory=inner)))
    offered = make_dataclass(type(section).__name__, made, frozen=True)
    offered.__doc__ = type(section).__doc__
    return offered


def _metavar(name: str, hint: Any) -> str | None:
    """Return the placeholder of a value in the help, such as `INT` or `FILE`; None for choices and switches."""
    kinds_of = [kind for kind in get_args(hint) if kind is not type(None)] if get_origin(hint) is not Literal else []
    kind = kinds_of[0] if kinds_of else hint
    text = next((placeholder for end, placeholder in PLACEHOLDERS.items() if name.endswith(end)), "TEXT")
    return {int: "INT", float: "FLOAT", str: text}.get(kind)


def _range_and_default(f: Field[Any], value: Any) -> str:
    """Return the interval and the default of a number or a choice for its help, `(in [1, 1000], default 4)`."""
    interval = f.metadata.get("interval", "")
    if interval.endswith(", inf)"):
        interval = f"{'≥' if interval[0] == '[' else '>'} {interval[1:].partition(',')[0]}"
    interval = f"in {interval}" if interval[:1] in ("[", "(") else interval
    default = "" if value is None or isinstance(value, bool) or value == "" else f"default {value}"
    parts = ", ".join(part for part in (interval, default) if part)
    return f"({parts})" if parts else ""


def fill(start: Any, parsed: Any) -> Any:
    """Return `start` with the values that were parsed."""
    values = {f.name: getattr(parsed, f.name) for f in fields(parsed)}
    inner = {name: fill(getattr(start, name), v) for name, v in values.items() if is_dataclass(v)}
    return replace(start, **values | inner)
