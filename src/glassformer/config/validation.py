"""What a configuration may hold: names, types, intervals, and the few values that must agree.

Every configuration is built from nested plain values here, each checked where it is put into its field. A
complaint names the key the way a recipe spells it (`train.lr`) and, where one is near, the word that was probably
meant. Which section a key belongs to is `places.py`; what needs the data or the machine is checked where those are.
"""

from __future__ import annotations

import re
import types
from dataclasses import Field, asdict, fields, is_dataclass
from functools import cache
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from glassformer.config import Config, ModelConfig, TrainConfig, idle
from glassformer.config.values import items, nearest, scalar, shown
from glassformer.errors import UsageError

Section = TypeVar("Section")

kinds = cache(get_type_hints)
"""The type of each field of a section, by name."""

TASK_NAMES = ["classify", "translate", "lm", "pretrain"]
"""The tasks a configuration may name, here so that reading one needs no torch. Registering a task adds its name."""


def check_config(config: Config, where: str = "configuration") -> Config:
    """Return the configuration if its values have their types, are in their intervals, and agree.

    Raises:
        UsageError: they are not; the message names the key.
    """
    return build_config(asdict(config), where)


def build_config(values: dict[str, Any], where: str) -> Config:
    """Return a configuration from nested plain values, one table per section.

    Raises:
        UsageError: as `check_config`; also an unknown key, with the nearest known one.
    """
    _check_utf8(values, "", where)
    config = build(Config, values, "", where)
    if config.task and config.task not in TASK_NAMES:
        message = f"{where}: task must be one of {', '.join(TASK_NAMES)}; got {config.task!r}"
        raise UsageError(message, nearest(config.task, TASK_NAMES).strip())
    known = [name for names in section_fields().values() for name in names]
    for name in config.auto:
        if name not in known:
            raise UsageError(f"{where}: auto names {name!r}, which is not a setting", nearest(name, known).strip())
    _check_idle(config, where)
    _check_model(config.model, where)
    _check_training(config.train, where)
    decode = config.decode
    if decode.n_best > decode.beam_size and not decode.sample and config.task == "translate":
        message = f"{where}: decode.n_best is {decode.n_best}, more than decode.beam_size {decode.beam_size}"
        enough = f"a beam of {decode.n_best} or more can give that many: --beam-size {decode.n_best}"
        raise UsageError(message, enough)
    return config


def build(kind: type[Section], values: Any, section: str, where: str) -> Section:
    """Return a section from a table of plain values; missing keys keep their defaults, those of `REMOVED` are dropped.

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
    made = {key: convert(value, known[key], kind, prefix + key, where) for key, value in values.items()}
    return kind(**made)


def convert(value: Any, field: Field[Any], owner: type, key: str, where: str) -> Any:
    """Return a value as its field's type.

    An integer may stand for a float and a path for a string; nothing else is converted.

    Raises:
        UsageError: it is of another type, none of the choices, or outside the field's interval.
    """
    kind = kinds(owner)[field.name]
    if is_dataclass(kind) and isinstance(kind, type):
        return build(kind, value, key, where)
    if get_origin(kind) in (Union, types.UnionType):
        if value is None:
            return None
        kind = next(k for k in get_args(kind) if k is not type(None))
    if get_origin(kind) in (tuple, list):
        return items(value, kind, field.metadata, key, where)
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            choices = ", ".join(str(choice) for choice in get_args(kind))
            hint = nearest(shown(value).strip("'"), map(str, get_args(kind))).strip()
            raise UsageError(f"{where}: {key} must be one of {choices}; got {shown(value)}", hint)
        return value
    return scalar(value, kind, field.metadata, key, where)


def config_to_dict(section: Any) -> dict[str, Any]:
    """Return a configuration as nested plain values, without inactive sections and None (TOML has no such value)."""
    values = {f.name: getattr(section, f.name) for f in fields(section) if f.name not in idle(section)}
    return {
        name: config_to_dict(value) if is_dataclass(value) else list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value is not None
    }


@cache
def sections(kind: type) -> dict[str, Any]:
    """Return the sections inside a section."""
    return {name: inner for name, inner in kinds(kind).items() if is_dataclass(inner)}


def chooser(kind: type, inner: str) -> str:
    """Return the field whose value selects a section inside this one."""
    return next(f.metadata["chooser"] for f in fields(kind) if f.name == inner)


@cache
def section_fields() -> dict[str, tuple[str, ...]]:
    """Return the fields of each section of a configuration, with those of inner sections, each name once."""
    fields_of = {}
    for section, kind in sections(Config).items():
        names = [name for part in (kind, *sections(kind).values()) for name in kinds(part)]
        fields_of[section] = tuple(name for name in dict.fromkeys(names) if name not in sections(kind))
    return fields_of


def refuse(section: str, chosen: str, key: str, where: str) -> NoReturn:
    """Say that the chosen data set or optimizer has no such setting, and which has.

    Raises:
        UsageError: always.
    """
    kind = sections(Config)[section]
    owners = [name for name, inner in sections(kind).items() if key in kinds(inner)]
    if section == "data":
        whose = "files of your own" if owners == ["files"] else owners[0]
        message = f"data.{owners[0]}.{key} is for {whose}, and this recipe reads {chosen}"
        tasks = f"{', '.join(TASK_NAMES[:-1])} or {TASK_NAMES[-1]}"
        hint = tasks if owners == ["files"] else f"that reads {whose}"
        raise UsageError(f"{where}: {message}", f"start from the recipe {hint}")
    message = f"{chosen} has no {key.replace('_', ' ')}"
    raise UsageError(f"{where}: {message}", f"use {' or '.join(owners)}: --optimizer {owners[0]}")


def _check_utf8(values: dict[str, Any], prefix: str, where: str) -> None:
    """Refuse strings with bytes that are not UTF-8, as of the name of a file: config.toml cannot hold them."""
    for name, value in values.items():
        if isinstance(value, dict):
            _check_utf8(value, f"{prefix}{name}.", where)
        elif isinstance(value, str) and not value.isascii() and re.search("[\ud800-\udfff]", value):
            shown = value.encode("utf-8", "backslashreplace").decode()
            raise UsageError(f"{where}: {prefix}{name} is not UTF-8: {shown}", "rename the file")


def _check_idle(config: Config, where: str) -> None:
    """Refuse settings of sections that are not selected, which would be ignored silently."""
    for name, kind in sections(Config).items():
        part = getattr(config, name)
        for unused in idle(part):
            settings, default = getattr(part, unused), sections(kind)[unused]()
            for key in kinds(type(default)):
                if getattr(settings, key) != getattr(default, key):
                    by = chooser(kind, unused)
                    message = f"{name}.{unused}.{key} is set, and {name}.{by} is {getattr(part, by)}"
                    raise UsageError(f"{where}: {message}", f"leave it out, or choose {unused}")


def _check_model(model: ModelConfig, where: str) -> None:
    d_head = model.d_head or model.d_model // model.n_heads
    if model.d_head is None and model.d_model % model.n_heads:
        sizes = f"model.d_model {model.d_model} is not a multiple of model.n_heads {model.n_heads}"
        raise UsageError(f"{where}: {sizes}", "change one of them, or set model.d_head")
    if model.positions == "rotary" and d_head % 2:
        message = f"rotary positions turn pairs, and model.d_head is {d_head}"
        raise UsageError(f"{where}: {message}", "make it even")


def _check_training(train: TrainConfig, where: str) -> None:
    if train.adversarial:
        others = {"compile": "compiled layers keep what a gradient needs for one, and it takes two"}
        for name, reason in others.items():
            if getattr(train, name):
                message = f"{where}: adversarial and {name} cannot go together: {reason}"
                raise UsageError(message, f"use --adversarial 0, or leave out {name}")


def _suggest(key: str, kind: type) -> str:
    """Return a hint: the section of a misplaced key, or the known key that is spelled most alike."""
    for name, names in section_fields().items():
        if key in names:
            return f"it belongs into [{name}]"
    inner = [name for section in sections(kind).values() for name in kinds(section)]
    return nearest(key, [*kinds(kind), *inner]).strip() or f"known here: {', '.join(kinds(kind))}"
