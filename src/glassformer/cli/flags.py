"""Flags from dataclasses, parsed by tyro after words and misspellings are handled here.

A section's fields are flags without a prefix (`--minutes`, `--train-file`, `--beam-size`), except those of `text` and
`model` (`--text.vocab-size`, `--model.n-layers`). Only usable flags are offered: the settings of the selected data set
and optimizer, and none that the task ignores.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar, get_origin, get_type_hints

import tyro

from glassformer.cli.parsed_dataclass import PREFIXED, fill, offer, switches
from glassformer.config import Config, idle
from glassformer.config.recipes import (
    BUDGETS,
    check_config,
    nearest,
    override,
    remaining_auto,
    section_fields,
    without_budget,
)
from glassformer.config.validation import chooser, kinds, refuse, sections
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.exported import is_exported
from glassformer.runs.folder import RunFolder
from glassformer.runs.seeds_folder import SeedsFolder

if TYPE_CHECKING:
    from glassformer.tasks import Task

logger = logging.getLogger(__name__)

CHOOSERS = ("dataset", "optimizer")
"""Flags whose value decides which others there are."""

A = TypeVar("A")
"""The dataclass of a verb's flags."""


def split_words(cls: type, argv: Sequence[str], verb: str) -> tuple[list[str], list[str]]:
    """Split a command's arguments into words and flags with their values, spelled as tyro expects them.

    Everything after a lone `--` is a word.

    Raises:
        UsageError: an unknown flag, with the nearest known one, or a value that is missing or too much.
    """
    known = known_flags(cls)
    words, flags, rest = list[str](), list[str](), iter(argv)
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
                off = "leave it out"
                if "no-" not in name:
                    off = f"{name} turns it on; {off}, or turn it off with no- before it"
                raise UsageError(f"{name} takes no value, and {value!r} came", off)
            if known[name] and not equals:  # its value is the next word, whatever that looks like
                value = next(rest, None)
                if value is None or _canonical(value, known) in known:
                    raise UsageError(f"{name} needs a value", f"what it takes: glassformer {verb} --help")
            flags.append(f"{name}={value}" if known[name] else name)
        else:
            words.append(token)
    return words, flags


def parse(cls: type[A], flags: list[str], usage: str, default: A | None = None, task: type[Task] | None = None) -> A:
    """Parse the flags of a command into its dataclass with tyro, which also prints the help.

    Args:
        cls: dataclass of the command's flags.
        flags: the flags, as `--name=value`.
        usage: the command and its words, for the help, such as `train RECIPE`.
        default: values of absent flags. Settings that it does not select are not offered; without it, all are.
        task: the task, whose `ignores` are not offered either.

    Raises:
        UsageError: a value does not fit, or this task, data set or optimizer has no such flag.
        SystemExit: help was printed.
    """
    start = cls() if default is None else default
    values = switches(start)
    last = {
        name: flag for flag in flags for name in [flag.partition("=")[0].replace("--no-", "--").replace(".no-", ".")]
    }
    offered = offer(start, everything=default is None, ignores=task.ignores if task else frozenset())
    usable = known_flags(offered)
    for name in (flag.partition("=")[0] for flag in flags):
        if name not in usable and name != "--help":
            _refuse(start, name, task)
    output = io.StringIO()
    try:
        with contextlib.redirect_stderr(output):
            # Of a switch only the flag that changes it exists, and the last one counts.
            args = [flag for name, flag in last.items() if name not in values or (flag == name) != values[name]]
            cli = tyro.conf.FlagCreatePairsOff[offered]
            return fill(start, tyro.cli(cli, args=args, prog=f"glassformer {usage}"))
    except SystemExit as stop:
        if not stop.code:
            raise
        hint = f"what it takes: glassformer {usage.split()[0]} --help"
        raise UsageError(_flatten(output.getvalue()), hint) from None


def parse_for_recipe(cls: type[A], flag_args: list[str], base: Config, usage: str) -> tuple[A, Config]:
    """Return a command's arguments, with the recipe's values as defaults, and the resulting configuration.

    A budget given as a flag replaces the recipe's. Flags are excluded from automatic configuration. A data set or
    optimizer selected by a flag has its own defaults.

    Raises:
        UsageError: a value or a flag that the recipe cannot use; SystemExit after help was printed.
    """
    from glassformer.tasks import task_class

    values = dict(flag[2:].split("=", 1) for flag in flag_args if "=" in flag)
    if values.keys() & set(BUDGETS):
        base = without_budget(base)
    named = [name.rpartition(".")[2].replace("-", "_") for name in values]
    base = replace(base, auto=remaining_auto(base, named))
    base = override(base, {name: values[name] for name in CHOOSERS if name in values}, "flags")
    sections_of_command = section_fields().keys() & get_type_hints(cls).keys()
    start = cls(**{name: getattr(base, name) for name in sections_of_command})
    arguments = parse(cls, flag_args, usage, start, task_class(base.task))
    return arguments, config_of(arguments, base)


def parse_for_run(cls: type[A], flag_args: list[str], path: Path, verb: str) -> tuple[A, Config, dict[str, Any]]:
    """Return the arguments, the configuration and the changed decoding options of a command that uses a run.

    A model folder alone has the default configuration. Errors as in `parse_for_recipe` and `RunFolder.read_config`.
    """
    from glassformer.tasks import TASKS

    config = RunFolder(path).read_config() if RunFolder(path).resumable else Config()
    start = cls(decode=config.decode)  # pyright: ignore[reportCallIssue]
    arguments = parse(cls, flag_args, f"{verb} {path}", start, TASKS.get(config.task))
    return arguments, config, changed(config_of(arguments, config).decode, config.decode)


def config_of(arguments: Any, base: Config) -> Config:
    """Return the configuration with the flags' values, checked."""
    sections_given = {name: getattr(arguments, name) for name in section_fields() if hasattr(arguments, name)}
    return check_config(replace(base, **sections_given), "flags")


def one_word(words: list[str], what: str, usage: str) -> str:
    """Return the single word that a command takes."""
    if len(words) != 1:
        got = f"{len(words)} came: {' '.join(words)}" if words else "none came"
        raise UsageError(f"{usage.split()[0]} takes one {what}; {got}", f"as in: glassformer {usage}")
    return words[0]


def run_folder(word: str, all_seeds: bool = False) -> Path:
    """Return a run folder that exists.

    Of several seeds the best by validation, or with `all_seeds` the folder of all seeds.

    Raises:
        CheckpointError: there is no run here; the runs in the same folder are named.
        UsageError: it is an exported model.
    """
    path = Path(word)
    if SeedsFolder(path).exists:
        if all_seeds:
            return path
        best = SeedsFolder(path).best.path
        logger.info(f"{path} holds several seeds; {best} is the best by validation")
        return best
    if is_exported(path):  # other libraries call a file of theirs config.json, too
        raise UsageError(f"{path} is an exported model, not a run", "use it with glassformer predict")
    if RunFolder(path).resumable or RunFolder(path).model_folder:
        return path
    wrong = "holds no run" if path.is_dir() else "is not a folder" if path.exists() else "does not exist"
    parent, hint = path.parent, "give the folder that --out named when training"
    if siblings := [p.name for p in parent.glob("*") if RunFolder(p).resumable or SeedsFolder(p).exists]:
        hint = f"in {parent} there are: {', '.join(sorted(siblings)[:8])}"
    raise CheckpointError(f"{path} {wrong}", nearest(path.name, siblings).strip() or hint)


def run_folders(word: str) -> list[Path]:
    """Return the run folders of `RUN` or `RUN,RUN,…`, which form an ensemble; errors as in `run_folder`."""
    return [run_folder(part) for part in ([word] if Path(word).exists() else word.split(","))]


def changed(new: Any, old: Any) -> dict[str, Any]:
    """Return the fields in which two configurations of one type differ, with the new values."""
    return {f.name: getattr(new, f.name) for f in fields(new) if getattr(new, f.name) != getattr(old, f.name)}


def known_flags(cls: type, prefix: str = "") -> dict[str, bool]:
    """Return all flags of a dataclass, and whether each takes a value."""
    known: dict[str, bool] = {}
    for name, kind in get_type_hints(cls, include_extras=True).items():
        inner = kind.__origin__ if get_origin(kind) is Annotated else kind
        if is_dataclass(inner) and isinstance(inner, type):
            known |= known_flags(inner, f"{name}." if name in PREFIXED else "")
        else:
            flag = name.replace("_", "-")
            known[f"--{prefix}{flag}"] = inner is not bool
            if inner is bool:
                known[f"--{prefix}no-{flag}"] = False
    return known


def _refuse(arguments: Any, flag: str, task: type[Task] | None) -> NoReturn:
    """Say why a flag that exists is of no use here: another data set or optimizer is chosen, or the task ignores it."""
    name = flag.split(".")[-1].removeprefix("--").removeprefix("no-").replace("-", "_")
    section = next(section for section, names in section_fields().items() if name in names)
    part = getattr(arguments, section)
    owners = [inner for inner, kind in sections(type(part)).items() if name in kinds(kind)]
    if owners and set(owners) <= set(idle(part)):
        refuse(section, getattr(part, chooser(type(part), owners[0])), name, "flags")
    raise UsageError(f"the task {task.name if task else ''} has no use for {flag}", "leave it out")


def _canonical(flag: str, known: dict[str, bool]) -> str:
    """Return `--max_tokens` and `--train.max-tokens` as `--max-tokens`."""
    flag = flag.replace("_", "-")
    section, _, rest = flag[2:].partition(".")
    bare = f"--{rest.rpartition('.')[2]}"
    prefixless = rest and section not in PREFIXED and section in section_fields()
    return bare if prefixless and bare in known else flag


def _similar(flag: str, known: dict[str, bool]) -> str:
    """Return a hint at the flag that was meant: the same name in a section, or a similar spelling."""
    name = flag.lstrip("-")
    same = [k for k in known if k.partition(".")[2] == name]
    return (
        f"did you mean {same[0]}?"
        if same
        else nearest(f"--{name}", [*known, "--help", "--debug"]).strip() or "see --help for all"
    )


def _flatten(box: str) -> str:
    """Return the first paragraph of tyro's framed message on one line."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [line.strip("│ \t") for line in plain.splitlines() if line[:1] not in "╭╰"]
    paragraph = itertools.takewhile(lambda line: line and not line.startswith("─"), lines)
    return " ".join(paragraph).rstrip(".") or "a flag could not be read"
