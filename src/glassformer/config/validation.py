"""Checks of plain values against the fields of a dataclass: a section of a configuration, a request, or flags.

A request is a flat frozen dataclass that is checked as it is built, by a page, a command, a file or in Python.

A complaint names the key the way a recipe spells it (`train.lr`) and, where one is near, the word that was probably
meant. What needs the data or the machine is checked where those are.
"""

from __future__ import annotations

import difflib
import math
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, partial
from pathlib import PurePath
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from glassformer.config import Config, ModelConfig, TrainConfig
from glassformer.errors import UsageError

Section = TypeVar("Section")

kinds = cache(get_type_hints)
"""The type of each field of a section, by name, without its limits."""
limited_kinds = cache(partial(get_type_hints, include_extras=True))
"""The type of each field, with its limits."""

TASK_NAMES = ["classify", "translate", "lm", "pretrain", "multilabel", "regress", "tag", "embed"]
"""The tasks a configuration may name, here so that reading one needs no torch. Registering a task adds its name."""
OTHER_NAMES = {
    "max_steps": "steps",
    "learning_rate": "lr",
    "num_train_epochs": "epochs",
    "per_device_train_batch_size": "batch_size",
    "gradient_accumulation_steps": "accumulate",
    "warmup_steps": "warmup",
    "lr_scheduler_type": "schedule",
    "max_seq_length": "max_len",
    "output_dir": "out",
}
"""What trainers of other libraries call a setting, and its name here."""
IMPORTED_ONLY = "embed"
"""The task that is not trained: a bare encoder, which only an import gives."""
_IN_WORDS = {int: "a whole number", float: "a number", str: "a string", bool: "true or false", Any: "any"}


def build(kind: type[Section], values: Any, section: str, where: str) -> Section:
    """Return a dataclass from a table of plain values, each checked; missing keys keep their defaults.

    Messages name it `section` (`train.adamw`; empty for the whole configuration or request) in `where`, a file.

    Raises:
        UsageError: a key or a value that cannot be used, or a key that is missing.
    """
    if not isinstance(values, Mapping):
        raise UsageError(f"{where}: {section or 'this'} must be a table, in JSON an object; got {shown(values)}")
    known: dict[str, Field[Any]] = {f.name: f for f in fields(kind)}  # pyright: ignore[reportArgumentType]
    place, prefix = (f"in [{section}]", f"{section}.") if section else ("at the top", "")
    for key in values:
        if key not in known:
            raise UsageError(f"{where}: {shown(key)} {place} is not a known key", _suggest(str(key), kind))
    for key, f in known.items():
        if key not in values and f.default is MISSING and f.default_factory is MISSING:
            raise UsageError(f"{where}: {key!r} {place} is missing")
    of = limited_kinds(kind)
    return kind(**{key: convert(value, of[key], prefix + key, where) for key, value in values.items()})


def convert(value: Any, kind: Any, key: str, where: str) -> Any:
    """Return a value as a type, within the limits that it names; a dataclass is built.

    An integer may stand for a float, a number of numpy for one of Python, and a path for a string; nothing else is
    converted. A number is finite.

    Raises:
        UsageError: it is of another type, none of the choices, or beyond the limits.
    """
    if is_dataclass(kind) and isinstance(kind, type):
        return value if isinstance(value, kind) else build(kind, value, key, where)
    if get_origin(kind) is list and is_dataclass(get_args(kind)[0]) and isinstance(value, list | tuple):
        return [convert(item, get_args(kind)[0], f"{key}[{i}]", where) for i, item in enumerate(value)]
    value = str(value) if isinstance(value, PurePath) else value
    value = value.item() if getattr(value, "shape", None) == () else value  # a number of numpy
    try:
        value = msgspec.convert(value, kind)
        if isinstance(value, float) and not math.isfinite(value):
            raise msgspec.ValidationError("infinite, or no number")
        if isinstance(value, str):
            value.encode()
    except UnicodeEncodeError as error:
        message = f"{key}, character {error.start + 1}: not Unicode text, or a file's name that is not UTF-8"
        raise UsageError(f"{where}: {message}", "rename the file") from error
    except (msgspec.ValidationError, RecursionError) as error:
        place = re.search(r"\[\d+\]", str(error))
        message = f"{key} must be {in_words(kind)}; got {shown(value)}{f' at {place[0]}' if place else ''}"
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        raise UsageError(f"{where}: {message}", nearest(shown(value).strip("'"), choices).strip()) from error
    return value


def in_words(kind: Any) -> str:
    """Return what a type takes, such as "a whole number in [1, 1000]"; of an optional one what it takes beside None."""
    origin, of = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return in_words(of[0])
    if origin is Literal:
        return f"one of {', '.join(of)}"
    if origin in (list, tuple):
        return f"an array, each item {in_words(of[0])}"
    if origin in (dict, Mapping):
        return f"a table, each key {in_words(of[0])}, each value {in_words(of[1])}"
    if origin is not Annotated:
        return _IN_WORDS.get(kind, "a table")
    limits = limits_of(kind)
    bounds = f" in {interval(kind)}" if interval(kind) else ""
    if limits.max_length:
        bounds = f", {limits.min_length or 0} to {limits.max_length:,} {'characters' if of[0] is str else 'items'}"
    return limits.description or in_words(of[0]) + bounds


def limits_of(kind: Any) -> Meta:
    """Return the limits that a type names, an optional one too."""
    found = (each for part in (kind, *get_args(kind)) for each in getattr(part, "__metadata__", ()))
    return next((each for each in found if isinstance(each, Meta)), Meta())


def interval(kind: Any) -> str:
    """Return the interval of a type of numbers, as in mathematics; empty where it has none."""
    limits = limits_of(kind)
    low = f"({limits.gt}" if limits.ge is None else f"[{limits.ge}"
    high = f"{'inf' if limits.lt is None else limits.lt})" if limits.le is None else f"{limits.le}]"
    return "" if low == "(None" else f"{low}, {high}"


def shown(value: Any) -> str:
    """Return a value for a message, where a long number or text would not fit."""
    try:
        return text if len(text := repr(value)) <= 100 else text[:97] + "…"
    except (ValueError, RecursionError):  # an integer of many digits inside
        return type(value).__name__


def nearest(word: str, words: Iterable[str]) -> str:
    """Return the start of a hint, `did you mean 'x'? `, or nothing if no word is similar."""
    word = OTHER_NAMES.get(word, word)
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
def places() -> dict[str, list[str]]:
    """Return the sections of each setting by its name: `train` for `lr`, and those of all optimizers that have it."""
    found: dict[str, list[str]] = {}
    for table, kind in tables().items():
        for name in kinds(kind).keys() - sections(kind):
            found.setdefault(name, []).append(table)
    return found


@cache
def homes() -> dict[str, str]:
    """Return the section of each setting by its name, which no other section has: `train` for `lr` and for `beta1`."""
    return {name: found[0].partition(".")[0] for name, found in places().items()}


def trained_tasks() -> list[str]:
    """Return the names of the tasks that a training may have, in the order of their registration."""
    return [name for name in TASK_NAMES if name != IMPORTED_ONLY]


def check_agreement(config: Config, where: str) -> None:
    """Refuse values that do not agree with each other.

    Raises:
        UsageError: two settings contradict each other, or one would be ignored silently.
    """
    if config.task and config.task not in TASK_NAMES:
        message = f"{where}: task must be one of {', '.join(TASK_NAMES)}; got {config.task!r}"
        raise UsageError(message, nearest(config.task, TASK_NAMES).strip())
    for name in config.auto:
        if name not in homes():
            raise UsageError(f"{where}: auto names {name!r}, which is not a setting", nearest(name, homes()).strip())
    _check_model(config.model, where)
    _check_training(config.train, where)
    decode = config.decode
    if decode.n_best > decode.beam_size and not decode.sample:
        message = f"{where}: decode.n_best is {decode.n_best}, more than decode.beam_size {decode.beam_size}"
        raise UsageError(message, f"a beam of as many or more can give them: --beam-size {decode.n_best}")


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


def check_request(request: Any) -> None:
    """Bring each field of a frozen dataclass to its type, as it is built.

    Raises:
        UsageError: a field is of another type, or beyond its limits; it is named.
    """
    for name, kind in limited_kinds(type(request)).items():
        object.__setattr__(request, name, convert(getattr(request, name), kind, name, "request"))


def check_type(value: Any, types: type | tuple[type, ...], expected: str, hint: str) -> None:
    """Check the type of an argument; a bool is no int here.

    Raises:
        UsageError: "expected {expected}, not {value}", and the hint.
    """
    if not isinstance(value, types) or isinstance(value, bool):
        raise UsageError(f"expected {expected}, not {value!r}"[:200], hint)
