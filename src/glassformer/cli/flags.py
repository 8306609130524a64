"""A command: a dataclass whose fields are its flags, and flags from the settings that it takes; and runs by name.

A setting's flag is its name without the section (`--minutes`, `--train-file`, `--beam-size`), except in `text` and
`model` (`--text.vocab-size`, `--model.n-layers`). What was given becomes a dictionary of plain values: `override` lays
the settings over a recipe and checks them. Help shows usable flags only: the settings of the selected data set and
optimizer, and none that the task ignores.
"""

from __future__ import annotations

import inspect
import re
import shutil
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, TypeVar, dataclass_transform, get_args, get_origin

from glassformer.config import Config, docstrings, idle
from glassformer.config.recipes import ALIASES, SECTIONS, convert, interval, limited_kinds, nearest, override
from glassformer.errors import CheckpointError, UsageError
from glassformer.runs.folder import RunFolder, SeedsFolder, is_exported
from glassformer.utils import console
from glassformer.utils.formatting import glassformer_command

if TYPE_CHECKING:
    from glassformer.text.tokenizer import Tokenizer

PREFIXED = ("text", "model")
"""Sections whose flags carry their name."""
PLACEHOLDERS = {"file": "FILE", "_dir": "DIR", "_column": "NAME", "_lang": "LANG", "out": "PATH", "init_from": "RUN"}
"""The end of a text field's name, and what stands for its value in the help."""
Device = Literal["auto", "cpu", "cuda", "mps"]
Result = tuple[Mapping[str, Any], Iterable[str]]
"""What a command found, as JSON and as lines of text."""
C = TypeVar("C", bound="Command")


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True, kw_only=True)
class Command:
    """A command with what was given to it, a dataclass; fields with a docstring, which is their help, are flags."""

    usage: ClassVar[str] = ""
    example: ClassVar[str] = ""
    sections: ClassVar[tuple[str, ...]] = ()
    settings: ClassVar[tuple[str, ...]] = ()
    words: list[str] = field(default_factory=list)
    given: dict[str, Any] = field(default_factory=dict)
    base: Config | None = None

    json: bool = False
    """Print one JSON object a line instead of text."""

    @classmethod
    def base_of(cls, words: Sequence[str]) -> Config | None:
        """Return what the settings are laid over; None where it does not take any, or no word names it."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    def run(self) -> Iterator[Result]:
        """Do it, and yield what it found."""
        raise NotImplementedError

    def of_configuration(self, single: bool = False) -> dict[str, Any]:
        """Return the settings of the configuration that were given, of whole sections or single ones, by name."""
        own = {flag.field for flag in flags_of(type(self)) if "." not in flag.key}
        return {name: v for name, v in self.given.items() if name not in own and (name in self.settings) == single}

    def laid_over(self, base: Config, settings: dict[str, Any] | None = None) -> Config:
        """Return a configuration with settings, those of whole sections when absent; errors name them as flags."""
        try:
            return override(base, self.of_configuration() if settings is None else settings, "flags")
        except UsageError as error:
            names = {flag.key: flag.name for flag in flags_of(type(self)) if "." in flag.key}
            keys = sorted(names, key=len, reverse=True)
            in_words = re.compile("|".join(map(re.escape, keys)))
            texts = (in_words.sub(lambda key: names[key[0]], text) for text in (error.message, error.hint))
            raise UsageError(*texts) from error


@dataclass(frozen=True)
class Flag:
    """A flag; `key` is the field's place, such as `train.lr`, and `off` is a switch's other flag.

    `type` is `kind` without its limits and None.
    """

    name: str
    off: str
    key: str
    field: str
    kind: Any
    type: Any
    help: str

    def is_of(self, keys: Collection[str]) -> bool:
        """Return whether it, or its section, is among these."""
        return self.key in keys or self.key.partition(".")[0] in keys


@cache
def flags_of(cls: type[Command]) -> list[Flag]:
    """Return all flags of a command: of its own fields, then those of the configuration, section by section."""
    found = list[Flag]()
    for table, kind in {"": cls, **SECTIONS}.items():
        prefix, docs = f"{table}." if table in PREFIXED else "", docstrings(kind)
        for name, of in limited_kinds(kind).items():
            if name in docs and (not table or name in cls.settings or table in cls.sections):
                dashed, type = name.replace("_", "-"), of
                off, key = f"--{prefix}no-{dashed}" if of is bool else "", f"{table}.{name}".removeprefix(".")
                while NoneType in get_args(type) or hasattr(type, "__metadata__"):
                    type = get_args(type)[0]
                text = " ".join(docs[name].split())
                found.append(Flag(f"--{prefix}{dashed}", off, key, name, of, type, text))
    return found


def read(cls: type[C], argv: Sequence[str]) -> C:
    """Return a command with its words and flags; everything after a lone `--` is a word, and -o is --out.

    Raises:
        UsageError: a flag that is unknown, which the task has no use for, or with a value that does not fit; or other
            words than the command takes, which are not checked where its help is wanted.
        SystemExit: help was printed.
    """
    words, given, wants_help = parse(cls, argv)
    base, ignores = cls.base_of(words), frozenset[str]()
    if base is not None:
        from glassformer.tasks import TASKS

        ignores = TASKS[base.task].ignores if base.task in TASKS else ignores
    flags = [flag for flag in flags_of(cls) if flag.field in given]
    if wrong := [flag for flag in flags if flag.is_of(ignores)]:
        name = wrong[0].off if given[wrong[0].field] is False else wrong[0].name
        raise UsageError(f"the task {base.task if base else ''} has no use for {name}", "leave it out")
    own = [flag for flag in flags if "." not in flag.key]
    values = {flag.field: convert(given[flag.field], flag.kind, flag.name, "flags") for flag in own}
    command = cls(words=words, given=given, base=base, **values)
    if wants_help:
        console.write("\n".join(_help(command, ignores)))
        raise SystemExit(0)
    return command


def parse(cls: type[Command], argv: Sequence[str]) -> tuple[list[str], dict[str, Any], bool]:
    """Return the words, the plain value of each flag by the name of its field, and whether help is wanted."""
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
            if flag.field in values:
                raise UsageError(f"{name} stands twice: {values[flag.field]} and {text}", "give it once")
            with suppress(ValueError):  # what is no number is left as text, which `convert` refuses
                text = flag.type(text) if flag.type in (int, float) else text
            values[flag.field] = text
    least = sum(not word.startswith("[") for word in takes)
    if not wants_help and not least <= len(words) <= (len(words) if cls.usage.endswith("...]") else len(takes)):
        came = f"{len(words)} came: {' '.join(words)}" if words else "none came"
        raise UsageError(f"{verb} takes {' '.join(takes) or 'no words'}; {came}", f"as in: glassformer {cls.example}")
    return words, values, wants_help


def _refuse(name: str, known: Mapping[str, Flag], usage: str) -> NoReturn:
    """Raise a UsageError for an unknown flag, which names the one that was meant: a word, in a section, or alike."""
    bare = name.lstrip("-").rpartition(".")[2].replace("-", "_")
    bare = ALIASES.get(bare, bare)
    hint = next((f"did you mean {each!r}? " for each, flag in known.items() if flag.field == bare), "")
    hint = f"{bare.upper()} is written without a flag: {usage}" if bare.upper() in usage.split() else hint
    hint = hint or nearest(f"--{name.lstrip('-')}", [*known, "--help", "--debug"]) or "see --help for all"
    raise UsageError(f"{usage.split()[0]} has no flag {name}", hint.strip())


def _help(command: Command, ignores: Collection[str]) -> Iterator[str]:
    """Yield the lines on what a command takes, with the values of a configuration as defaults."""
    cls, config, hidden = type(command), Config(), set(ignores)
    if command.base is not None:
        config = command.laid_over(command.base)
        hidden |= {f"{section}.{inner}" for section in SECTIONS for inner in idle(getattr(config, section))}
    yield f"usage: glassformer {cls.usage} [--flags]\n\n{inspect.getdoc(cls)}\n\nas in: glassformer {cls.example}"
    width = min(shutil.get_terminal_size().columns, 120)
    for table, flags in groupby(flags_of(cls), key=lambda flag: flag.key.rpartition(".")[0]):
        shown = [flag for flag in flags if not flag.is_of(hidden)]
        yield from [f"\n{SECTIONS[table].__doc__ if table else 'flags:'}"] if shown else []
        for flag in shown:
            head, *notes = _head_and_notes(flag, config if table else cls())
            text = flag.help + (f" ({', '.join(notes)})" if notes else "")
            yield from textwrap.wrap(text, width, initial_indent=f"{head:30}  ", subsequent_indent=" " * 32)


def _head_and_notes(flag: Flag, default: Any) -> Iterator[str]:
    """Yield a flag with what it takes, such as `--optimizer {adam,sgd}`, its interval, and its default."""
    for part in flag.key.split("."):
        default = getattr(default, part)
    takes = {int: "INT", float: "FLOAT", bool: ""}.get(flag.type)
    if takes is None:
        takes = next((name for end, name in PLACEHOLDERS.items() if flag.field.endswith(end)), "TEXT")
    if get_origin(flag.type) is Literal:
        takes = f"{{{','.join(get_args(flag.type))}}}"
    named = f"{flag.name}, {flag.off}" if flag.off and default in (None, True) else flag.name
    yield f"  {named} {takes}".rstrip()
    if limits := interval(flag.kind):
        least = f"{'≥' if limits[0] == '[' else '>'} {limits[1:].partition(',')[0]}"
        yield least if limits.endswith("inf)") else f"in {limits}"
    if str(default) not in ("None", "False", ""):
        yield f"default {'on' if default is True else default}"


def run_folder(word: str, all_seeds: bool = False) -> Path:
    """Return a run folder that exists.

    Of several seeds the best by validation, or with `all_seeds` the folder of all seeds.

    Raises:
        CheckpointError: there is no run here; the runs in the same folder are named.
        UsageError: it is an exported model, or several runs are named.
    """
    path = Path(word)
    if SeedsFolder(path).exists:
        return path if all_seeds else SeedsFolder(path).best.path
    if is_exported(path):  # other libraries call a file of theirs config.json, too
        raise UsageError(f"{path} is an exported model, not a run", f"use it with: glassformer predict {word}")
    if RunFolder(path).resumable or RunFolder(path).model_folder:
        return path
    if "," in word and not path.exists():
        several = f"{word} names several runs, which answer together in predict, predict-table and evaluate alone"
        raise UsageError(several, f"name one of them: {word.partition(',')[0]}")
    wrong = "holds no run" if path.is_dir() else "is not a folder" if path.exists() else "does not exist"
    runs = map(RunFolder, path.parent.glob("*"))  # also one without a training: an import, or what learned an answer
    siblings = [run.path.name for run in runs if run.resumable or run.model.is_dir() or SeedsFolder(run.path).exists]
    hint = f"in {path.parent} there are: {', '.join(sorted(siblings)[:8])}" if siblings else ""
    hint = nearest(path.name, siblings).strip() or hint or "give the folder that --out named when training"
    raise CheckpointError(f"{path} {wrong}", hint)


def run_folders(word: str, all_seeds: bool = False) -> list[Path]:
    """Return the folders of `RUN` or `RUN,RUN,…`, which form an ensemble; as `run_folder` does."""
    return [run_folder(part, all_seeds) for part in ([word] if Path(word).exists() else word.split(","))]


def use_of(path: Path, tokenizer: Tokenizer) -> str:
    """Return the command that uses a model, on a pair of texts where it reads pairs."""
    from glassformer.text.pairs import SEPARATOR

    text = f"… {SEPARATOR} …" if tokenizer.separator else "…"
    return f'{glassformer_command("predict", path)} "{text}"'
