"""What a configuration may hold: names, types, ranges, and the few values that must agree.

Every complaint names the key the way a recipe spells it (`train.lr`) and, where one is near, the word
that was probably meant. Checks that need the data or the machine happen where those are known.
"""

from __future__ import annotations

import difflib
import math
import types
from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import PurePath
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from glassformer.config import Config, DataConfig, ModelConfig
from glassformer.errors import UsageError

RANGES: dict[str, str] = {
    "data.valid_fraction": "(0, 1)",
    "data.split_seed": "[0, 4294967295]",
    "data.limit": "[1, inf)",
    "data.n_dates": "[1, 1000000]",
    "text.vocab_size": "[6, 10000000]",
    "text.max_len": "[1, 1000000]",
    "model.n_layers": "[1, 1000]",
    "model.n_decoder_layers": "[1, 1000]",
    "model.d_model": "[1, 65536]",
    "model.n_heads": "[1, 1024]",
    "model.d_head": "[1, 65536]",
    "model.d_ff": "[1, 1000000]",
    "model.dropout": "[0, 1)",
    "model.attention_dropout": "[0, 1)",
    "model.embedding_dropout": "[0, 1)",
    "train.epochs": "(0, inf)",
    "train.steps": "[1, inf)",
    "train.minutes": "(0, inf)",
    "train.max_tokens": "[1, inf)",
    "train.batch_size": "[1, inf)",
    "train.accumulate": "[1, inf)",
    "train.lr": "(0, inf)",
    "train.warmup": "[0, inf)",
    "train.weight_decay": "[0, inf)",
    "train.beta1": "[0, 1)",
    "train.beta2": "[0, 1)",
    "train.eps": "(0, inf)",
    "train.clip": "[0, inf)",
    "train.label_smoothing": "[0, 1)",
    "train.word_mask_prob": "[0, 1)",
    "train.ema_decay": "[0, 1)",
    "train.average_last": "[1, inf)",
    "train.patience": "[1, inf)",
    "train.validate_every": "(0, inf)",
    "train.validate_min_steps": "[1, inf)",
    "train.save_every": "[1, inf)",
    "train.keep": "[1, inf)",
    "train.seed": "[0, 4294967295]",
    "decode.beam_size": "[1, 1000]",
    "decode.length_penalty": "[0, inf)",
    "decode.n_best": "[1, 1000]",
    "decode.max_new_tokens": "[1, inf)",
    "decode.temperature": "[0, inf)",
    "decode.top_k": "[0, inf)",
    "decode.top_p": "(0, 1]",
    "decode.min_p": "[0, 1]",
    "decode.decode_seed": "[0, 4294967295]",
}
"""Every number's interval, written as in mathematics; a test sees that none is missing."""


def config_from_dict(values: dict[str, Any], where: str = "configuration") -> Config:
    """Build a checked configuration from nested plain values; what is left out keeps its default.

    Args:
        values: as `tomllib` reads a recipe.
        where: what to name in errors, usually the file.

    Raises:
        UsageError: an unknown key (with the nearest known one), a wrong type, a value out of its range.
    """
    return check_config(_build(Config, values, "", where), where)


def check_config(config: Config, where: str = "configuration") -> Config:
    """Return the configuration unchanged if its numbers are in range and its values agree.

    Raises:
        UsageError: they are not; the message names the key.
    """
    for key, interval in RANGES.items():
        section, name = key.split(".")
        number = getattr(getattr(config, section), name)
        if number is not None and not _inside(number, interval):
            raise UsageError(f"{where}: {key} must be in {interval}; got {number}")
    _check_model(config.model, where)
    _check_data(config.data, where)
    decode = config.decode
    if decode.n_best > decode.beam_size and not decode.sample and config.task == "translate":
        raise UsageError(
            f"{where}: decode.n_best is {decode.n_best}, more than decode.beam_size {decode.beam_size}",
            f"a beam of {decode.n_best} or more can give that many: --beam-size {decode.n_best}",
        )
    return config


BUDGETS = ("epochs", "steps", "minutes")
"""What says when a run ends."""


def without_budget(config: Config) -> Config:
    """The configuration with no end to its run: a budget that is asked for replaces the recipe's."""
    return replace(config, train=replace(config.train, epochs=None, steps=None, minutes=None))


def override(config: Config, overrides: dict[str, Any], where: str = "overrides") -> Config:
    """Change fields by name, whichever section they are in; a section's name takes a dictionary.

    Args:
        config: what to start from; it is not changed.
        overrides: `{"minutes": 10, "train_file": "a.csv", "model": {"n_layers": 2}}`. Any of epochs,
            steps and minutes replaces whatever bounded the run before.

    Raises:
        UsageError: as `config_from_dict`.
    """
    sections = section_fields()
    changes: dict[str, dict[str, Any]] = {}
    for name, value in overrides.items():
        if name in sections and isinstance(value, dict):
            changes.setdefault(name, {}).update(value)
            continue
        home = next((section for section, names in sections.items() if name in names), None)
        if home is None:
            known = [field for names in sections.values() for field in names]
            raise UsageError(
                f"{where}: {name!r} is not a field of the configuration", nearest(name, known).strip()
            )
        changes.setdefault(home, {})[name] = value
    if any(changes.get("train", {}).get(name) is not None for name in BUDGETS):
        config = without_budget(config)
    for section, values in changes.items():
        plain = {key: str(v) if isinstance(v, PurePath) else v for key, v in values.items()}
        old = getattr(config, section)
        kept = {f.name: getattr(old, f.name) for f in fields(old)}
        config = replace(config, **{section: _build(type(old), kept | plain, section, where)})
    return check_config(config, where)


def section_fields() -> dict[str, tuple[str, ...]]:
    """The sections of a configuration and the fields of each; no field's name occurs twice."""
    sections = ((f.name, getattr(Config(), f.name)) for f in fields(Config))
    return {name: tuple(f.name for f in fields(s)) for name, s in sections if is_dataclass(s)}


def nearest(word: str, words: Iterable[str]) -> str:
    """The start of a hint: `did you mean 'x'? `, or nothing when no word is near."""
    near = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}? " if near else ""


def _check_model(model: ModelConfig, where: str) -> None:
    d_head = model.d_head
    if d_head is None:
        if model.d_model % model.n_heads:
            sizes = f"model.d_model {model.d_model} is not a multiple of model.n_heads {model.n_heads}"
            raise UsageError(f"{where}: {sizes}", "change one of them, or set model.d_head")
        d_head = model.d_model // model.n_heads
    if model.positions == "rotary" and d_head % 2:
        raise UsageError(
            f"{where}: rotary positions turn pairs, and model.d_head is {d_head}", "make it even"
        )


def _check_data(data: DataConfig, where: str) -> None:
    own = [f.name for f in fields(data) if f.name.endswith(("_file", "_column")) and getattr(data, f.name)]
    if data.dataset != "files" and own:
        raise UsageError(
            f"{where}: data.{own[0]} is for files of your own, and this recipe reads {data.dataset}",
            "start from the recipe classify, translate or lm",
        )


def _build(cls: type, values: Any, section: str, where: str) -> Any:
    """An instance of a config dataclass from a table of TOML."""
    if not isinstance(values, dict):
        raise UsageError(f"{where}: {section} must be a table, [{section}]; got {values!r}")
    kinds = _kinds(cls)
    prefix = f"{section}." if section else ""
    for key in values:
        if key not in kinds:
            place = f"in [{section}]" if section else "at the top"
            raise UsageError(f"{where}: {key!r} {place} is not a known key", _suggest(key, section))
    return cls(**{k: _convert(v, kinds[k], prefix + k, where) for k, v in values.items()})


def _convert(value: Any, kind: Any, key: str, where: str) -> Any:
    """A value of the type a field declares; an integer may stand for a float, nothing else is bent."""
    if is_dataclass(kind) and isinstance(kind, type):
        return _build(kind, value, key, where)
    if get_origin(kind) in (Union, types.UnionType):
        if value is None:
            return None
        kind = next(k for k in get_args(kind) if k is not type(None))
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            choices = ", ".join(str(choice) for choice in get_args(kind))
            hint = nearest(str(value), map(str, get_args(kind))).strip()
            raise UsageError(f"{where}: {key} must be one of {choices}; got {value!r}", hint)
        return value
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        names = {int: "a whole number", float: "a number", str: "a string in quotes", bool: "true or false"}
        raise UsageError(f"{where}: {key} must be {names[kind]}; got {value!r}")
    return value


def _suggest(key: str, section: str) -> str:
    """Where a misplaced key belongs, or which known one it resembles."""
    sections = section_fields()
    home = next((name for name, names in sections.items() if key in names), None)
    if home is not None:
        return f"it belongs into [{home}]"
    known = sections.get(section) or tuple(_kinds(Config))
    return nearest(key, known).strip() or f"known here: {', '.join(known)}"


@cache
def _kinds(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _inside(number: float, interval: str) -> bool:
    low, high = (float(bound) for bound in interval[1:-1].split(","))
    if math.isnan(number):
        return False
    above = number >= low if interval[0] == "[" else number > low
    return above and (number <= high if interval[-1] == "]" else number < high)
