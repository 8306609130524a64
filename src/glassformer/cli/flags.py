"""Flags from dataclasses: what tyro parses, after words and misspellings have been sorted out here.

A section's fields are flags without a prefix (`--minutes`, `--train-file`, `--beam-size`), except those of
`text` and `model` (`--text.vocab-size`, `--model.n-layers`). What a value means to a verb is the verb's business.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_origin, get_type_hints

import tyro

from glassformer.config import Config
from glassformer.errors import CheckpointError, UsageError
from glassformer.recipes import check_config, section_fields
from glassformer.recipes.checks import nearest
from glassformer.runs.folder import RunFolder

PREFIXED = ("text", "model")
"""Sections whose flags carry their name."""

Arguments = TypeVar("Arguments")


def split_words(cls: type, argv: Sequence[str], verb: str) -> tuple[list[str], list[str]]:
    """Part the words of a command line from its flags, and refuse flags there are none of.

    Args:
        cls: the dataclass of the verb's flags.
        argv: the arguments after the verb; everything behind a lone `--` is words.
        verb: for messages.

    Returns:
        Words in order, and the flags with their values, spelled as tyro wants them.

    Raises:
        UsageError: an unknown flag, with the nearest known one.
    """
    known = dict(_flags(cls))
    words: list[str] = []
    flags: list[str] = []
    rest = iter(argv)
    for token in rest:
        if token == "--":
            words += rest
        elif token in ("-h", "--help"):
            flags.append("--help")
        elif re.match(r"--?[A-Za-z]", token):
            name, equals, value = token.partition("=")
            name = _canonical(name, known)
            if name not in known:
                raise UsageError(f"{verb} has no flag {token.partition('=')[0]}", _similar(name, known))
            if equals and not known[name]:
                off = (
                    "leave it out"
                    if "no-" in name
                    else f"{name} turns it on; leave it out, or turn it off with no- before it"
                )
                raise UsageError(f"{name} takes no value, and {value!r} came", off)
            if known[name] and not equals:  # its value is the next word, whatever that looks like
                value = next(rest, None)
                if value is None or _canonical(value, known) in known:
                    raise UsageError(f"{name} needs a value", f"what it takes: glassformer {verb} --help")
            flags.append(f"{name}={value}" if known[name] else name)
        else:
            words.append(token)
    return words, flags


def parse(cls: type[Arguments], flags: list[str], usage: str, default: Arguments | None = None) -> Arguments:
    """Fill the dataclass of a verb's flags through tyro, which also prints the help.

    Args:
        usage: the verb and its words, for help, such as `train RECIPE`.
        default: values of what is not given.

    Raises:
        UsageError: a value that does not fit; SystemExit after help was printed.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            start = cls() if default is None else default
            return tyro.cli(cls, args=flags, default=start, prog=f"glassformer {usage}")
    except SystemExit as stop:
        if not stop.code:
            raise
        verb = usage.split()[0]
        raise UsageError(_flatten(said.getvalue()), f"what it takes: glassformer {verb} --help") from None


def config_of(arguments: Any, base: Config) -> Config:
    """The recipe's configuration with the flags' values, checked."""
    sections = {name: getattr(arguments, name) for name in section_fields() if hasattr(arguments, name)}
    return check_config(replace(base, **sections), "flags")


def one_word(words: list[str], what: str, usage: str) -> str:
    """The single word a verb takes.

    Raises:
        UsageError: there is none, or more than one.
    """
    if len(words) != 1:
        came = f"{len(words)} came: {' '.join(words)}" if words else "none came"
        raise UsageError(f"{usage.split()[0]} takes one {what}; {came}", f"as in: glassformer {usage}")
    return words[0]


def run_folder(word: str) -> Path:
    """A run folder that exists, for verbs that use one.

    Raises:
        CheckpointError: there is none, with a hint at one that resembles it.
    """
    path = Path(word)
    if RunFolder(path).resumable or RunFolder(path).model_folder:
        return path
    wrong = "holds no run" if path.is_dir() else "is not a folder" if path.exists() else "does not exist"
    parent = path.parent
    siblings = [p.name for p in parent.iterdir() if RunFolder(p).resumable] if parent.is_dir() else []
    hint = nearest(path.name, siblings) or (
        f"in {parent} there are: {', '.join(sorted(siblings)[:8])}" if siblings else ""
    )
    raise CheckpointError(f"{path} {wrong}", hint.strip() or "give the folder that --out named when training")


def run_config(path: Path) -> Config:
    """The configuration of a run, for the defaults of flags; a model folder alone has the general ones."""
    return RunFolder(path).read_config() if RunFolder(path).resumable else Config()


def changed(new: Any, old: Any) -> dict[str, Any]:
    """The fields in which two configurations of one kind differ, with the new values."""
    return {f.name: getattr(new, f.name) for f in fields(new) if getattr(new, f.name) != getattr(old, f.name)}


def _flags(cls: type, prefix: str = "") -> Iterator[tuple[str, bool]]:
    """All flags of a dataclass, and whether each takes a value."""
    for name, kind in get_type_hints(cls, include_extras=True).items():
        inner = kind.__origin__ if get_origin(kind) is Annotated else kind
        if is_dataclass(inner) and isinstance(inner, type):
            yield from _flags(inner, f"{name}." if name in PREFIXED else "")
        else:
            flag = name.replace("_", "-")
            yield f"--{prefix}{flag}", inner is not bool
            if inner is bool:
                yield f"--{prefix}no-{flag}", False


def _canonical(flag: str, known: dict[str, bool]) -> str:
    """`--max_tokens` and `--train.max-tokens` as `--max-tokens`."""
    flag = flag.replace("_", "-")
    section, _, rest = flag[2:].partition(".")
    bare = f"--{rest}"
    return (
        bare if rest and section not in PREFIXED and section in section_fields() and bare in known else flag
    )


def _similar(flag: str, known: dict[str, bool]) -> str:
    """A hint at the flag that was meant: the same name in a section, or one spelled alike."""
    name = flag.lstrip("-")
    same = [k for k in known if k.partition(".")[2] == name]
    return f"did you mean {same[0]}?" if same else nearest(f"--{name}", known).strip() or "see --help for all"


def _flatten(box: str) -> str:
    """The first paragraph of tyro's framed message, on one line."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [line.strip("│ \t") for line in plain.splitlines() if line[:1] not in "╭╰"]
    told: list[str] = []
    for line in lines:
        if not line or line.startswith("─"):
            break
        told.append(line)
    return " ".join(told).rstrip(".") or "a flag could not be read"
