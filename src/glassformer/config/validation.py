"""Checks of plain values against the fields of a dataclass: a section of a configuration, a request, or flags.

A request is a flat frozen dataclass that is checked as it is built, by a page, a command, a file or in Python.

A complaint names the key the way a recipe spells it (`train.lr`) and, where one is near, the word that was probably
meant. What needs the data or the machine is checked where those are.
"""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import PurePath
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from glassformer.config import Config, ModelConfig, TrainConfig, idle
from glassformer.errors import UsageError

Section = TypeVar("Section")

kinds = cache(get_type_hints)
"""The type of each field of a section, by name."""

TASK_NAMES = ["classify", "translate", "lm", "pretrain", "multilabel", "regress", "tag", "embed"]
"""The tasks a configuration may name, here so that reading one needs no torch. Registering a task adds its name."""
IMPORTED_ONLY = "embed"
"""The task that is not trained: a bare encoder, which only an import gives."""
MAX_EXACT = 2**53
"""Integers beyond this are not converted to a float, nor printed."""
_IN_WORDS = {int: "a whole number", float: "a number", str: "a string in quotes", bool: "true or false"}


def build(kind: type[Section], values: Any, section: str, where: str) -> Section:
    """Return a dataclass from a table of plain values, each checked; missing keys keep their defaults.

    Messages name it `section` (`train.adamw`; empty for the whole configuration) in `where`, a file.

    Raises:
        UsageError: a key or a value that cannot be used.
    """
    if not isinstance(values, dict):
        raise UsageError(f"{where}: {section} must be a table, [{section}]; got {shown(values)}")
    known: dict[str, Field[Any]] = {f.name: f for f in fields(kind)}  # pyright: ignore[reportArgumentType]
    prefix = f"{section}." if section else ""
    for key in values:
        if key not in known:
            place = f"in [{section}]" if section else "at the top"
            raise UsageError(f"{where}: {key!r} {place} is not a known key", _suggest(key, kind))
    of = kinds(kind)
    return kind(**{key: convert(v, of[key], known[key].metadata, prefix + key, where) for key, v in values.items()})


def convert(value: Any, kind: Any, metadata: Mapping[str, Any], key: str, where: str) -> Any:
    """Return a value as the type of its field, within the interval or the length that the field's metadata names.

    An integer may stand for a float and a path for a string; nothing else is converted.

    Raises:
        UsageError: it is of another type, none of the choices, or outside the interval.
    """
    if is_dataclass(kind) and isinstance(kind, type):
        return build(kind, value, key, where)
    if "partial" in metadata or "keys" in metadata:
        return _object(value, metadata, key, where)
    of = get_args(kind)
    if get_origin(kind) in (Union, types.UnionType):
        return None if value is None else convert(value, of[0], metadata, key, where)
    if get_origin(kind) in (tuple, list):
        return _items(value, kind, metadata, key, where)
    if get_origin(kind) is Literal:
        if value not in of:
            hint = nearest(shown(value).strip("'"), map(str, of)).strip()
            raise UsageError(f"{where}: {key} must be one of {', '.join(map(str, of))}; got {shown(value)}", hint)
        return value
    if kind is float and type(value) is int and abs(value) <= MAX_EXACT:
        value = float(value)
    if kind is str and isinstance(value, PurePath):
        value = str(value)
    if type(value) is not kind:
        raise UsageError(f"{where}: {key} must be {_IN_WORDS[kind]}; got {shown(value)}")
    if not _inside(value, metadata.get("interval")):
        raise UsageError(f"{where}: {key} must be in {metadata['interval']}; got {shown(value)}")
    if isinstance(value, str):
        _check_text(value, metadata, key, where)
    return value


def _items(value: Any, kind: Any, metadata: Mapping[str, Any], key: str, where: str) -> Any:
    """Return a list or tuple, each item checked; `longest` bounds their number."""
    of = get_args(kind)[0]
    if is_dataclass(of) and isinstance(of, type):
        if not isinstance(value, list | tuple):
            raise UsageError(f"{where}: {key} must be an array of tables; got {shown(value)}")
        tables = enumerate(value, start=1)
        return [v if isinstance(v, of) else build_request(of, v, f"{where}, {key} {n}") for n, v in tables]
    if not isinstance(value, list | tuple) or (of is str and not all(isinstance(item, str) for item in value)):
        raise UsageError(f"{where}: {key} must be an array, each item {_IN_WORDS[of]}; got {shown(value)}")
    if len(value) > metadata.get("longest", len(value)):
        raise UsageError(f"{where}: {key} has {len(value):,} items, more than {metadata['longest']:,}")
    each = metadata.get("items", {})
    return get_origin(kind)(convert(item, of, each, f"{key}[{i}]", where) for i, item in enumerate(value))


def _object(value: Any, metadata: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    """Return a JSON object: some fields of the dataclass `partial`, or lists of whole numbers by the names `keys`."""
    if settings := metadata.get("partial"):
        of, what = kinds(settings), ("", "field ")
        known: dict[str, Any] = {f.name: f.metadata for f in fields(settings)}
        known = {name: about for name, about in known.items() if about.get("interval") or of[name] is bool}
    else:
        known = dict.fromkeys(metadata["keys"], metadata["items"])
        of, what = dict.fromkeys(known, list[int]), (" of lists", "")
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: {key} must be a JSON object{what[0]}; got {shown(value)}")
    if unknown := sorted(str(name)[:40] for name in value if name not in known):
        raise UsageError(f"{where}: {key} has no {what[1]}{unknown[0]!r}", f"there are {', '.join(known)}")
    given = [(name, v) for name, v in value.items() if v is not None or not settings]
    return {name: convert(v, of[name], known[name], f"{key}.{name}", where) for name, v in given}


def _check_text(value: str, metadata: Mapping[str, Any], key: str, where: str) -> None:
    """Refuse what is no Unicode (a file's name may not be), too long, or of another form."""
    longest, (pattern, form) = metadata.get("longest"), metadata.get("form", ("", ""))
    if longest is not None and len(value) > longest:
        raise UsageError(f"{where}: {key} has {len(value):,} characters, more than {longest:,}")
    if not value.isascii() and (wrong := re.search("[\ud800-\udfff]", value)):
        if longest is None:
            as_bytes = value.encode("utf-8", "backslashreplace").decode()
            raise UsageError(f"{where}: {key} is not UTF-8: {as_bytes}", "rename the file")
        raise UsageError(f"{where}: {key}, character {wrong.start() + 1}: unpaired surrogate, not Unicode text")
    if pattern and not re.fullmatch(pattern, value):
        raise UsageError(f"{where}: {key} must be {form}; got {shown(value)}")


def _inside(number: Any, interval: str | None) -> bool:
    """Return True if the interval contains the number; no interval contains NaN."""
    if interval is None:
        return True
    low, high = (float(bound) for bound in interval[1:-1].split(","))
    above = number >= low if interval[0] == "[" else number > low
    return above and (number <= high if interval[-1] == "]" else number < high)


def shown(value: Any) -> str:
    """Return a value for a message, where an integer of a million digits or a long text would not fit."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= MAX_EXACT:
        return "a far larger number"
    try:
        return text if len(text := repr(value)) <= 100 else text[:97] + "…"
    except (ValueError, RecursionError):  # an integer of many digits inside
        return type(value).__name__


def nearest(word: str, words: Iterable[str]) -> str:
    """Return the start of a hint, `did you mean 'x'? `, or nothing if no word is similar."""
    return "".join(f"did you mean {near!r}? " for near in difflib.get_close_matches(word, list(words), n=1))


@cache
def sections(kind: type) -> dict[str, Any]:
    """Return the sections inside a section."""
    return {name: inner for name, inner in kinds(kind).items() if is_dataclass(inner)}


@cache
def tables() -> dict[str, Any]:
    """Return all sections by name, those inside another as `train.adamw`."""
    found = {}
    for section, kind in sections(Config).items():
        found |= {section: kind, **{f"{section}.{name}": inner for name, inner in sections(kind).items()}}
    return found


@cache
def homes() -> dict[str, str]:
    """Return the section of each setting by its name, which no other section has: `train` for `lr` and for `beta1`."""
    every = [(name, table) for table, kind in tables().items() for name in kinds(kind) if name not in sections(kind)]
    return {name: table.partition(".")[0] for name, table in every}


def trained_tasks() -> list[str]:
    """Return the names of the tasks that a training may have, in the order of their registration."""
    return [name for name in TASK_NAMES if name != IMPORTED_ONLY]


def check_agreement(config: Config, named: Mapping[str, Any], where: str) -> None:
    """Refuse values that do not agree with each other; `named` are the tables that somebody wrote.

    Raises:
        UsageError: two settings contradict each other, or one would be ignored silently.
    """
    if config.task and config.task not in TASK_NAMES:
        message = f"{where}: task must be one of {', '.join(TASK_NAMES)}; got {config.task!r}"
        raise UsageError(message, nearest(config.task, TASK_NAMES).strip())
    for name in config.auto:
        if name not in homes():
            raise UsageError(f"{where}: auto names {name!r}, which is not a setting", nearest(name, homes()).strip())
    _check_idle(config, named, where)
    _check_model(config.model, where)
    _check_training(config.train, where)
    decode = config.decode
    if decode.n_best > decode.beam_size and not decode.sample and config.task == "translate":
        message = f"{where}: decode.n_best is {decode.n_best}, more than decode.beam_size {decode.beam_size}"
        raise UsageError(message, f"a beam of as many or more can give them: --beam-size {decode.n_best}")


def _check_idle(config: Config, named: Mapping[str, Any], where: str) -> None:
    """Refuse what is set, or only named, in the section of a data set or optimizer that is not chosen."""
    for section, kind in sections(Config).items():
        part = getattr(config, section)
        for name in idle(part):
            settings, default = getattr(part, name), sections(kind)[name]()
            differs = (f.name for f in fields(default) if getattr(settings, f.name) != getattr(default, f.name))
            key = next((f"{section}.{name}.{field}" for field in differs), None)
            if key or name in named.get(section, {}):
                by = f"{section}.{part.chooser} is {getattr(part, part.chooser)}"
                message = f"{where}: {key or f'[{section}.{name}]'} is set, and {by}"
                raise UsageError(message, f"leave it out, or choose {name}")


def _check_model(model: ModelConfig, where: str) -> None:
    d_head = model.d_head or model.d_model // model.n_heads
    if model.d_head is None and model.d_model % model.n_heads:
        sizes = f"model.d_model {model.d_model} is not a multiple of model.n_heads {model.n_heads}"
        raise UsageError(f"{where}: {sizes}", "change one of them, or set model.d_head")
    if model.positions == "rotary" and d_head % 2:
        message = f"rotary positions turn pairs, and model.d_head is {d_head}"
        raise UsageError(f"{where}: {message}", "make it even")


def _check_training(train: TrainConfig, where: str) -> None:
    if train.adversarial and train.compile:
        message = f"{where}: adversarial and compile cannot go together: compiled layers keep what one gradient needs"
        raise UsageError(message, "use --adversarial 0, or leave out compile")
    if train.frozen_layers and not train.init_from:
        message = f"{where}: frozen_layers keeps pretrained weights, and nothing is pretrained here"
        raise UsageError(message, "name a run with --init-from")


def _suggest(key: str, kind: type) -> str:
    """Return a hint: the section of a misplaced key, or the known key that is spelled most alike."""
    if key in homes():
        return f"it belongs into [{homes()[key]}]"
    inner = [name for section in sections(kind).values() for name in kinds(section)]
    return nearest(key, [*kinds(kind), *inner]).strip() or f"known here: {', '.join(kinds(kind))}"


def check_request(request: Any, where: str = "request") -> None:
    """Bring each field of a frozen dataclass to its type, as it is built.

    Raises:
        UsageError: a field is of another type, or outside its interval, length or form; it is named.
    """
    for f in fields(request):
        value = convert(getattr(request, f.name), kinds(type(request))[f.name], f.metadata, f.name, where)
        object.__setattr__(request, f.name, value)


def build_request(kind: type[Section], data: Any, where: str = "request") -> Section:
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


def check_type(value: Any, types: type | tuple[type, ...], expected: str, hint: str) -> None:
    """Check the type of an argument; a bool is no int here.

    Raises:
        UsageError: "expected {expected}, not {value}", and the hint.
    """
    if not isinstance(value, types) or isinstance(value, bool):
        raise UsageError(f"expected {expected}, not {value!r}"[:200], hint)
