"""Recipes: a whole run's configuration as a TOML file, shipped here or passed by path, and settings laid over it.

A recipe, flags and settings in Python are one dictionary of plain values by section; it becomes a `Config` and is
checked once. A setting may be named alone: its section is found. A request is checked alike: a flat frozen dataclass,
by a page, a command, a file or in Python.

A complaint names the key the way a recipe spells it (`train.lr`) and, where one is near, the word that was probably
meant. What needs the data or the machine is checked where those are. No torch is imported here.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache, partial
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from glassformer.config import ONLY_FOR, Config, idle
from glassformer.errors import UsageError

BUDGETS = ("epochs", "steps", "minutes")
"""What says when a run ends."""
_FOLDER = Path(__file__).parents[1] / "recipes"


def recipe_names() -> list[str]:
    """Return the names of the recipes shipped with the package, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load_recipe(name_or_path: str | Path) -> Config:
    """Read a shipped recipe by name (`imdb`), or one of your own by path; of a run folder, its `config.toml`.

    Raises:
        UsageError: there is none, it is not TOML, it names no task, or a key or value in it cannot be used.
    """
    path = _find(str(name_or_path))
    try:
        values = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except ValueError as error:  # not UTF-8, or not TOML
        hint = "strings need quotes, as in: glassformer recipes imdb; data is named by --train-file"
        raise UsageError(f"{path}: no recipe in TOML and UTF-8: {error}", hint) from error
    where = f"recipe {path.stem}" if path.parent == _FOLDER else str(path)
    if not values.get("task"):
        raise UsageError(f"{where}: no task is named", f"write task = one of {', '.join(TASK_NAMES)}")
    return config_from_dict({"recipe": path.stem} | values, where)


def recipe_text(name_or_path: str | Path) -> str:
    """Return the text of a recipe as it was written, comments included; the errors are those of `load_recipe`."""
    load_recipe(name_or_path)
    return _find(str(name_or_path)).read_text(encoding="utf-8-sig")


def config_from_dict(values: dict[str, Any], where: str = "configuration") -> Config:
    """Build a checked configuration from plain values by section; what is left out keeps its default.

    Args:
        values: as `tomllib` reads a recipe.
        where: what to name in errors, usually the file.

    Raises:
        UsageError: an unknown key (with the nearest known one), a wrong type, a value out of its interval, or a setting
            of what is not chosen.
    """
    config = build(Config, values, "", where)
    for message, hint in _disagreements(config, values):
        raise UsageError(f"{where}: {message}", hint)
    return config


def override(
    config: Config, overrides: dict[str, Any], where: str = "overrides", ignores: Collection[str] = ()
) -> Config:
    """Return the configuration with some fields changed by name, whichever section they are in; all of it is checked.

    Args:
        config: what to start from.
        overrides: `{"minutes": 10, "train_file": "a.csv", "model": {"n_layers": 2}}`. Any of epochs, steps and minutes
            replaces whatever bounded the run before; another optimizer or data set begins with its own defaults.
            What is set here is no longer chosen automatically (`Config.auto`).
        where: what to name in errors.
        ignores: fields and sections that the task has no use for: `Task.ignores`.

    Raises:
        UsageError: as `config_from_dict`; also a field that what is chosen lacks, or the task ignores.
    """
    changes: dict[str, dict[str, Any]] = {}
    for name, value in overrides.items():
        if name in SECTIONS and isinstance(value, dict):
            changes.setdefault(name, {}).update(value)
        elif name in HOMES:
            changes.setdefault(HOMES[name], {})[name] = value
        else:
            raise UsageError(f"{where}: {name!r} is not a field of the configuration", nearest(name, HOMES).strip())
    given = {n for table in changes.values() for n, value in table.items() if value is not None or n not in BUDGETS}
    values = config_to_dict(replace(config, auto=remaining_auto(config, given)))
    for section, changed in changes.items():
        for name in changed:
            if {section, f"{section}.{name}"} & {*ignores}:
                raise UsageError(f"{where}: the task {config.task} has no use for {section}.{name}", "leave it out")
        old, leaves = values[section], {*(BUDGETS if given & {*BUDGETS} else ())}
        if any(changed.get(by, old.get(by)) != old.get(by) for by in ("dataset", "optimizer")):
            leaves |= ONLY_FOR.keys()
        values[section] = {name: value for name, value in old.items() if name not in leaves} | changed
    return config_from_dict(values, where)


def remaining_auto(config: Config, names_given: Collection[str]) -> tuple[str, ...]:
    """Return the settings still to be chosen automatically once these are given; any budget replaces every budget."""
    named = {*names_given, *(BUDGETS if {*names_given} & {*BUDGETS} else ())}
    return tuple(name for name in config.auto if name not in named)


def config_to_dict(config: Config) -> dict[str, Any]:
    """Return a configuration as plain values by section, without what is not chosen and None (TOML has none)."""

    def plain(section: Any) -> dict[str, Any]:
        return {name: v for name, v in vars(section).items() if v is not None and name not in idle(section)}

    return {name: plain(value) if is_dataclass(value) else value for name, value in vars(config).items()}


def dump_config(config: Config) -> str:
    """Return the configuration as TOML, which `load_recipe` reads back unchanged.

    Settings of other data sets and optimizers than those that are selected are not written: they have no effect.
    """
    import tomli_w

    return tomli_w.dumps(config_to_dict(config))


def _find(name: str) -> Path:
    """Return the file of a recipe's name or path."""
    names, path = recipe_names(), Path(name)
    for candidate in [_FOLDER / f"{name}.toml"] if name in names else [path / "config.toml", path]:
        if candidate.is_file():
            return candidate
    if path.suffix == ".toml" or len(path.parts) > 1 or path.is_dir():
        raise UsageError(f"no recipe at {path}", "a path must lead to a TOML file or to a run folder")
    raise UsageError(f"no recipe is called {name!r}", nearest(name, names) + f"there are: {', '.join(names)}")


Section = TypeVar("Section")

kinds = cache(get_type_hints)
"""The type of each field of a section, by name, without its limits."""
limited_kinds = cache(partial(get_type_hints, include_extras=True))
"""The type of each field, with its limits."""
SECTIONS: dict[str, Any] = {name: kind for name, kind in kinds(Config).items() if is_dataclass(kind)}
HOMES = {name: section for section, kind in SECTIONS.items() for name in kinds(kind)}
"""The section of each setting by its name, which no other section has."""

TASK_NAMES = ["classify", "translate", "lm", "pretrain", "multilabel", "regress", "tag", "embed"]
"""The tasks a configuration may name, here so that reading one needs no torch. Registering a task adds its name."""
ALIASES = {"max_steps": "steps", "learning_rate": "lr", "num_train_epochs": "epochs", "max_seq_length": "max_len"}
ALIASES |= {"per_device_train_batch_size": "batch_size", "gradient_accumulation_steps": "accumulate"}
"""What trainers of other libraries call a setting, and its name here."""
_OF = dict.fromkeys((list, tuple), "an array, each item ") | dict.fromkeys((dict, Mapping), "a table, each key ")
_IN_WORDS = {int: "a whole number", float: "a number", str: "a string", bool: "true or false", Any: "any"}


def build(kind: type[Section], values: Any, section: str, where: str) -> Section:
    """Return a dataclass from a table of plain values, each checked; missing keys keep their defaults.

    Messages name it `section` (`train`; empty for the whole configuration or request) in `where`, a file.

    Raises:
        UsageError: a key or a value that cannot be used, or a key that is missing.
    """
    if not isinstance(values, Mapping):
        raise UsageError(f"{where}: {section or 'this'} must be a table, in JSON an object; got {shown(values)}")
    of, prefix = limited_kinds(kind), f"{section}." if section else ""
    place = f"in [{section}]" if section else "at the top"
    for key in values:
        if key not in of:
            raise UsageError(f"{where}: {shown(key)} {place} is not a known key", _suggest(str(key), kind))
    for f in fields(kind):  # pyright: ignore[reportArgumentType]
        if f.name not in values and f.default is MISSING and f.default_factory is MISSING:
            raise UsageError(f"{where}: {f.name!r} {place} is missing")
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
    if get_origin(kind) is list and is_dataclass(get_args(kind)[0]) and isinstance(value, list):
        return [convert(item, get_args(kind)[0], f"{key}[{i}]", where) for i, item in enumerate(value)]
    value = str(value) if isinstance(value, PurePath) else value
    value = value.item() if getattr(value, "shape", None) == () else value  # a number of numpy
    try:
        value = msgspec.convert(value, kind)
        if isinstance(value, float) and not math.isfinite(value):
            raise msgspec.ValidationError("infinite, or no number")
        if isinstance(value, str):
            value.encode()
    except (msgspec.ValidationError, RecursionError, UnicodeEncodeError) as error:  # a file's name that is not UTF-8
        place = "".join(re.findall(r"\[\d+\]", str(error))[:1])
        message = f"{key} must be {in_words(kind)}; got {shown(value)}{place and f' at {place}'}"
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
    if origin in _OF:
        return _OF[origin] + ", each value ".join(map(in_words, of[: 2 if origin in (dict, Mapping) else 1]))
    if origin is not Annotated:
        return _IN_WORDS.get(kind, "a table")
    limits = limits_of(kind)
    most = f", at most {limits.max_length:,} long" if limits.max_length else ""
    return limits.description or in_words(of[0]) + most + (interval(kind) and f" in {interval(kind)}")


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
        return text if len(text := repr(value)) <= 90 else text[:87] + "…"
    except (ValueError, RecursionError):  # an integer of many digits inside
        return type(value).__name__


def nearest(word: str, words: Iterable[str]) -> str:
    """Return the start of a hint, `did you mean 'x'? `, or nothing if no word is similar."""
    word = ALIASES.get(word, word)
    return "".join(f"did you mean {near!r}? " for near in difflib.get_close_matches(word, list(words), n=1))


def _disagreements(config: Config, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what contradicts itself or would be ignored silently, and what to do."""
    for section, by in (("data", "dataset"), ("train", "optimizer")):
        part = getattr(config, section)
        for name in (name for name in given.get(section, ()) if name in idle(part)):
            of = ONLY_FOR[name]
            what = f"{section}.{name} is for {' or '.join(of)}, and {section}.{by} is {getattr(part, by)}"
            yield what, f"leave it out, or choose: --{by} {of[0]}"
    model, train, decode = config.model, config.train, config.decode
    if config.task not in ("", *TASK_NAMES):
        yield f"task must be one of {', '.join(TASK_NAMES)}; got {config.task!r}", nearest(config.task, TASK_NAMES)
    for name in {*config.auto} - HOMES.keys():
        yield f"auto names {name!r}, which is not a setting", nearest(name, HOMES).strip()
    if model.d_head is None and model.d_model % model.n_heads:
        sizes = f"model.d_model {model.d_model} is not a multiple of model.n_heads {model.n_heads}"
        yield sizes, "change one of them, or set model.d_head"
    if model.positions == "rotary" and (d_head := model.d_head or model.d_model // model.n_heads) % 2:
        yield f"rotary positions turn pairs, and model.d_head is {d_head}", "make it even"
    if train.adversarial and train.compile:
        message = "adversarial and compile cannot go together: compiled layers keep what one gradient needs"
        yield message, "use --adversarial 0, or leave out compile"
    if train.frozen_layers and not train.init_from:
        yield "frozen_layers keeps trained weights, and this run begins with none", "name a run with --init-from"
    if decode.n_best > decode.beam_size and not decode.sample:
        message = f"decode.n_best is {decode.n_best}, more than decode.beam_size {decode.beam_size}"
        yield message, f"a beam of as many or more can give them: --beam-size {decode.n_best}"


def _suggest(key: str, kind: type) -> str:
    """Return a hint: the section of a misplaced key, or the known key that is spelled most alike."""
    if key in HOMES:
        return f"it belongs into [{HOMES[key]}]"
    inner = [name for section in kinds(kind).values() if is_dataclass(section) for name in kinds(section)]
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
