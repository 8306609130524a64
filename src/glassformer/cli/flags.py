"""Flags: the fields of a command's dataclass, and those of the configuration that it takes.

A setting's flag is its name without the section (`--minutes`, `--train-file`, `--beam-size`), except in `text` and
`model` (`--text.vocab-size`, `--model.n-layers`). What was given becomes a dictionary of plain values: `override` lays
the settings over a recipe and checks them. Help shows usable flags only: the settings of the selected data set and
optimizer, and none that the task ignores.

A command's dataclass has the class variables `usage` and `example`, and may have `sections`, those of the configuration
whose settings are its flags, and `settings`, single ones.
"""

from __future__ import annotations

import inspect
import re
import shutil
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from types import NoneType
from typing import Any, Generic, Literal, NoReturn, TypeVar, get_args, get_origin

from glassformer.config import Config, docstrings, idle
from glassformer.config.recipes import ALIASES, convert, interval, limited_kinds, nearest, override, sections, tables
from glassformer.errors import UsageError
from glassformer.runs.folder import RunFolder
from glassformer.utils import console

PREFIXED = ("text", "model")
"""Sections whose flags carry their name."""
PLACEHOLDERS = {"file": "FILE", "_dir": "DIR", "_column": "NAME", "_lang": "LANG", "out": "PATH", "init_from": "RUN"}
"""The end of a text field's name, and what stands for its value in the help."""
A = TypeVar("A")


@dataclass(frozen=True)
class Flag:
    """A flag; `key` is the field's place, such as `train.adamw.beta1`, and `off` is a switch's other flag."""

    name: str
    off: str
    key: str
    field: str
    kind: Any
    help: str


@cache
def flags_of(cls: type) -> list[Flag]:
    """Return all flags of a command: of its own fields, then those of the configuration, section by section."""
    whole, single, found = getattr(cls, "sections", ()), getattr(cls, "settings", ()), list[Flag]()
    for table, kind in {"": cls, **tables()}.items():
        prefix, docs = f"{table}." if table in PREFIXED else "", docstrings(kind)
        for name, of in limited_kinds(kind).items():
            taken = not table or name in single or table.partition(".")[0] in whole
            if taken and name in docs and not is_dataclass(of):
                dashed = name.replace("_", "-")
                off, key = f"--{prefix}no-{dashed}" if of is bool else "", f"{table}.{name}".removeprefix(".")
                found.append(Flag(f"--{prefix}{dashed}", off, key, name, of, " ".join(docs[name].split())))
    return found


def read(cls: Any, argv: Sequence[str]) -> Given[Any]:
    """Return the words and the flags of a command; everything after a lone `--` is a word, and -o is --out.

    Raises:
        UsageError: an unknown flag, with the nearest known one, a value that is missing or too much, or other words
            than the command takes; these are not checked where its help is wanted.
    """
    known = {name: flag for flag in flags_of(cls) for name in (flag.name, flag.off) if name}
    words, values, rest, wants_help = list[str](), dict[str, Any](), iter(argv), False
    verb, *takes = cls.usage.split()
    for token in rest:
        name, equals, value = re.sub("^-o(?==|$)", "--out", token).partition("=")
        if token == "--":
            words += rest
        elif token in ("-h", "--help"):
            wants_help = True
        elif not re.match(r"--?[A-Za-z]", token):
            words.append(token)
        elif name not in known:
            _refuse(name, known, cls.usage)
        elif (flag := known[name]).off:
            if equals:
                raise UsageError(f"{name} takes no value, and {value!r} came", "leave out the value")
            values[flag.field] = name == flag.name
        else:
            text = value if equals else next(rest, None)
            if text is None or (text in known and not equals):
                raise UsageError(f"{name} needs a value", f"what it takes: glassformer {verb} --help")
            values[flag.field] = _plain(flag, text)
    least = sum(not word.startswith("[") for word in takes)
    if not wants_help and not least <= len(words) <= (len(words) if cls.usage.endswith("...]") else len(takes)):
        came = f"{len(words)} came: {' '.join(words)}" if words else "none came"
        raise UsageError(f"{verb} takes {' '.join(takes) or 'no words'}; {came}", f"as in: glassformer {cls.example}")
    return Given(cls, words, values, wants_help)


def _refuse(name: str, known: dict[str, Flag], usage: str) -> NoReturn:
    """Raise a UsageError for an unknown flag, which names the one that was meant: a word, in a section, or alike."""
    bare = name.lstrip("-").rpartition(".")[2].replace("-", "_")
    bare = ALIASES.get(bare, bare)
    hint = next((f"did you mean {each!r}? " for each, flag in known.items() if flag.field == bare), "")
    hint = f"{bare.upper()} is written without a flag: {usage}" if bare.upper() in usage.split() else hint
    hint = hint or nearest(f"--{name.lstrip('-')}", [*known, "--help", "--debug"]) or "see --help for all"
    raise UsageError(f"{usage.split()[0]} has no flag {name}", hint.strip())


def _plain(flag: Flag, text: str) -> Any:
    """Return a flag's value as a plain value; what is no number is left as text, which `convert` refuses."""
    try:
        return _of(flag)(text) if _of(flag) in (int, float) else text
    except ValueError:
        return text


def _of(flag: Flag) -> Any:
    """Return the type of a flag's value, without its limits and None."""
    kind = flag.kind
    while NoneType in get_args(kind) or hasattr(kind, "__metadata__"):
        kind = get_args(kind)[0]
    return kind


@dataclass(frozen=True)
class Given(Generic[A]):
    """What was given to a command: its words, and the value of each flag by the name of its field."""

    cls: type[A]
    words: list[str]
    values: dict[str, Any]
    wants_help: bool = False

    def arguments(self, base: Config | None = None, task: Any = None) -> A:
        """Return the command's own arguments.

        Args:
            base: what the settings will be laid over. Help shows those of all data sets and optimizers without it.
            task: the task, whose `ignores` are refused.

        Raises:
            UsageError: an argument does not fit, or this task has no such flag.
            SystemExit: help was printed.
        """
        given = [flag for flag in flags_of(self.cls) if flag.field in self.values]
        ignores = task.ignores if task else frozenset[str]()
        if wrong := [flag for flag in given if _within(flag.key, ignores)]:
            name = wrong[0].off if self.values[wrong[0].field] is False else wrong[0].name
            raise UsageError(f"the task {base.task if base else ''} has no use for {name}", "leave it out")
        if self.wants_help:
            _write_help(self.cls, self.laid_over(base) if base else None, ignores)
            raise SystemExit(0)
        own = [flag for flag in given if "." not in flag.key]
        return self.cls(**{f.field: convert(self.values[f.field], f.kind, f.name, "flags") for f in own})

    def settings(self, single: bool = False) -> dict[str, Any]:
        """Return the settings of the configuration that were given, of whole sections or single ones, by name."""
        named = getattr(self.cls, "settings", ())
        own = {flag.field for flag in flags_of(self.cls) if "." not in flag.key}
        return {name: value for name, value in self.values.items() if name not in own and (name in named) == single}

    def laid_over(self, base: Config, settings: dict[str, Any] | None = None) -> Config:
        """Return a configuration with settings, those of whole sections when absent; errors name them as flags."""
        try:
            return override(base, self.settings() if settings is None else settings, "flags")
        except UsageError as error:
            names = {flag.key: flag.name for flag in reversed(flags_of(self.cls))}
            names |= {f"{key.partition('.')[0]}.{key.rpartition('.')[2]}": name for key, name in names.items()}
            message, hint = error.message, error.hint
            for key in sorted((key for key in names if "." in key), key=len, reverse=True):
                message, hint = message.replace(key, names[key]), hint.replace(key, names[key])
            raise UsageError(message, hint) from error

    def for_recipe(self, base: Config) -> tuple[A, Config]:
        """Return a command's arguments, and a recipe's configuration with the settings that were given.

        A command that trains takes the sizes of the run to initialise from, if one is named; settings come on top.
        """
        from glassformer.tasks import task_class

        arguments = self.arguments(base, task_class(base.task))
        begin = self.values.get("init_from", base.train.init_from)
        if begin and "train" in getattr(self.cls, "sections", ()):
            from glassformer.training.finetune import with_pretrained_settings

            base = with_pretrained_settings(base, begin)
        return arguments, self.laid_over(base)

    def for_run(self, path: Path) -> tuple[A, Config]:
        """Return a command's arguments and the configuration of the run that it uses, without the settings given.

        A model folder alone has the default configuration. Errors as in `arguments` and `RunFolder.read_config`.
        """
        from glassformer.tasks import TASKS
        from glassformer.tasks.restoring import settings_of

        config = settings_of(RunFolder(path)) or Config()
        arguments = self.arguments(config, TASKS.get(config.task))
        self.laid_over(config)  # refuses what is wrong before anything is loaded
        return arguments, config


def _write_help(cls: Any, config: Config | None, ignores: Collection[str]) -> None:
    """Print what a command takes, with the values of a configuration as defaults."""
    hidden = set(ignores)
    if config is not None:
        hidden |= {f"{section}.{inner}" for section in sections(Config) for inner in idle(getattr(config, section))}
    about = f"usage: glassformer {cls.usage} [--flags]\n\n{inspect.getdoc(cls)}\n\nas in: glassformer {cls.example}"
    lines, seen, width = [about], set[str](), min(shutil.get_terminal_size().columns, 120)
    for table, flags in groupby(flags_of(cls), key=lambda flag: flag.key.rpartition(".")[0]):
        shown = [flag for flag in flags if flag.name not in seen and not _within(flag.key, hidden)]
        seen |= {flag.name for flag in shown}  # several optimizers have some
        lines += [f"\n{tables()[table].__doc__ if table else 'flags:'}"] if shown else []
        for flag in shown:
            head, *notes = _head_and_notes(flag, cls, config or Config())
            text = flag.help + (f" ({', '.join(notes)})" if notes else "")
            lines += textwrap.wrap(text, width, initial_indent=f"{head:30}  ", subsequent_indent=" " * 32)
    console.write("\n".join(lines))


def _head_and_notes(flag: Flag, cls: Any, config: Config) -> Iterator[str]:
    """Yield a flag with what it takes, such as `--optimizer {adam,sgd}`, its interval, and its default."""
    default: Any = config if "." in flag.key else cls()
    for part in flag.key.split("."):
        default = getattr(default, part)
    takes = {int: "INT", float: "FLOAT", bool: ""}.get(_of(flag))
    if takes is None:
        takes = next((name for end, name in PLACEHOLDERS.items() if flag.field.endswith(end)), "TEXT")
    if get_origin(_of(flag)) is Literal:
        takes = f"{{{','.join(get_args(_of(flag)))}}}"
    named = f"{flag.name}, {flag.off}" if flag.off and default in (None, True) else flag.name
    yield f"  {named} {takes}".rstrip()
    if limits := interval(flag.kind):
        least = f"{'≥' if limits[0] == '[' else '>'} {limits[1:].partition(',')[0]}"
        yield least if limits.endswith("inf)") else f"in {limits}"
    if str(default) not in ("None", "False", ""):
        yield f"default {'on' if default is True else default}"


def _within(key: str, tables: Collection[str]) -> bool:
    """Return True if a key, or a table that holds it, is among these."""
    return any(key == table or key.startswith(f"{table}.") for table in tables)
