"""Flags: the fields of a command's dataclass, and those of the sections of the configuration that it takes.

A section's fields are flags without a prefix (`--minutes`, `--train-file`, `--beam-size`), except those of `text` and
`model` (`--text.vocab-size`, `--model.n-layers`). What was given becomes a dictionary of plain values: `override` lays
the settings over a recipe and checks them. Help shows usable flags only: the settings of the selected data set and
optimizer, and none that the task ignores.
"""

from __future__ import annotations

import argparse
import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

from glassformer.config import Config, docstrings, idle
from glassformer.config.recipes import nearest, override
from glassformer.config.validation import convert, interval, kinds, limited_kinds, sections, tables
from glassformer.errors import CheckpointError, UsageError
from glassformer.runs.folder import MODEL_CONFIG, RunFolder, SeedsFolder, is_exported
from glassformer.utils import console
from glassformer.utils.formatting import glassformer_command

if TYPE_CHECKING:
    from glassformer.tasks import Task


PREFIXED = ("text", "model")
"""Sections whose flags carry their name."""
PLACEHOLDERS = {"file": "FILE", "_dir": "DIR", "_column": "NAME", "_lang": "LANG", "out": "PATH", "init_from": "RUN"}
"""The end of a text field's name, and what stands for its value in the help; a command's `placeholders` are others."""

A = TypeVar("A")
"""The dataclass of a command's flags; `sections`, a class variable, names those of the configuration that it takes."""


@dataclass(frozen=True)
class Flag:
    """A flag; `key` is the field's place, such as `train.adamw.beta1`, and `off` is a switch's other flag."""

    name: str
    off: str
    key: str
    kind: Any
    interval: str
    help: str

    @property
    def field(self) -> str:
        """Return the name of the field."""
        return self.key.rpartition(".")[2]


@cache
def flags_of(cls: type) -> list[Flag]:
    """Return all flags of a command: of its own fields, then those of the sections, and of the sections inside them."""
    taken = {name: kind for name, kind in tables().items() if name.partition(".")[0] in getattr(cls, "sections", ())}
    found = []
    for table, kind in {"": cls, **taken}.items():
        prefix, docs = f"{table}." if table in PREFIXED else "", docstrings(kind)
        for f in fields(kind):
            if not is_dataclass(of := kinds(kind)[f.name]):
                name = f.name.replace("_", "-")
                off, key = f"--{prefix}no-{name}" if of is bool else "", f"{table}.{f.name}".removeprefix(".")
                limits = interval(limited_kinds(kind)[f.name])
                found.append(Flag(f"--{prefix}{name}", off, key, of, limits, docs[f.name]))
    return found


def known_flags(cls: type) -> dict[str, bool]:
    """Return the names of all flags of a command, and whether each takes a value."""
    return {name: not flag.off for flag in flags_of(cls) for name in (flag.name, flag.off) if name}


def long_out(argv: Sequence[str]) -> list[str]:
    """Return the arguments with -o spelled --out."""
    words = list(argv)
    end = words.index("--") if "--" in words else len(words)
    return [re.sub("^-o(?==|$)", "--out", word) for word in words[:end]] + words[end:]


def split_words(cls: type, argv: Sequence[str], verb: str) -> tuple[list[str], list[str]]:
    """Split a command's arguments into words and flags with their values, as `--name=value`.

    Everything after a lone `--` is a word. (argparse takes no value that begins with dashes, nor words between flags.)

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


def read(
    cls: type[A], flag_args: list[str], usage: str, base: Config | None = None, task: type[Task] | None = None
) -> tuple[A, dict[str, Any]]:
    """Return a command's own arguments, and the settings of the configuration that were given, by name.

    Args:
        cls: dataclass of the command's flags.
        flag_args: the flags, as `split_words` returns them.
        usage: the command and its words, for the help, such as `train RECIPE`.
        base: what the settings will be laid over. Help shows those of all data sets and optimizers without it.
        task: the task, whose `ignores` are refused.

    Raises:
        UsageError: an argument does not fit, or this task has no such flag.
        SystemExit: help was printed.
    """
    every, ignores = flags_of(cls), task.ignores if task else frozenset()
    values = vars(_parser(every, cls, usage).parse_args([flag for flag in flag_args if flag != "--help"]))
    if task and (wrong := [f for f in every if f.field in values and _within(f.key, ignores)]):
        name = wrong[0].name if values[wrong[0].field] is not False else wrong[0].off
        raise UsageError(f"the task {task.name} has no use for {name}", "leave it out")
    of, flag_of = kinds(cls), {each.field: each.name for each in every}
    settings = {name: value for name, value in values.items() if name not in of}
    if "--help" in flag_args:
        if base is not None:
            choices = {name: value for name, value in settings.items() if name in ("dataset", "optimizer")}
            base = override(base, choices, "flags")
            unused = {f"{section}.{inner}" for section in sections(Config) for inner in idle(getattr(base, section))}
            every = [flag for flag in every if not _within(flag.key, ignores | unused)]
        console.write(_parser(every, cls, usage, base or Config()).format_help().rstrip())
        raise SystemExit(0)
    own = {n: convert(value, limited_kinds(cls)[n], flag_of[n], "flags") for n, value in values.items() if n in of}
    return cls(**own), settings


def parse(cls: type[A], flag_args: list[str], usage: str) -> A:
    """Return a command's own arguments; errors as in `read`."""
    return read(cls, flag_args, usage)[0]


def parse_for_recipe(cls: type[A], flag_args: list[str], base: Config, usage: str) -> tuple[A, Config]:
    """Return a command's arguments, and the recipe's configuration with the settings that were given.

    A command that trains takes the sizes of the run to initialise from, if one is named; settings come on top.

    Raises:
        UsageError: a value or a flag that the recipe cannot use; SystemExit after help was printed.
    """
    from glassformer.tasks import task_class

    arguments, settings = read(cls, flag_args, usage, base, task_class(base.task))
    begin = settings.get("init_from", base.train.init_from)
    if begin and "train" in getattr(cls, "sections", ()):
        from glassformer.training.finetune import with_pretrained_settings

        base = with_pretrained_settings(base, begin)
    return arguments, override(base, settings, "flags")


def parse_for_run(cls: type[A], flag_args: list[str], path: Path, verb: str) -> tuple[A, Config, dict[str, Any]]:
    """Return the arguments, the configuration and the decoding options given to a command that uses a run.

    A model folder alone has the default configuration. Errors as in `parse_for_recipe` and `RunFolder.read_config`.
    """
    from glassformer.tasks import TASKS
    from glassformer.tasks.restoring import settings_of

    config = settings_of(RunFolder(path)) or Config()
    arguments, options = read(cls, flag_args, f"{verb} {path}", config, TASKS.get(config.task))
    override(config, options, "flags")  # refuses what is wrong before anything is loaded
    return arguments, config, options


class _Switch(argparse.Action):
    """Two flags without a value, of which the first turns a setting on; the last one given counts."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, option_string == self.option_strings[0])


def _parser(flags: list[Flag], cls: type, usage: str, config: Config | None = None) -> argparse.ArgumentParser:
    """Return a parser of these flags, whose help shows the values of a configuration as defaults."""

    def layout(prog: str) -> argparse.HelpFormatter:
        return argparse.HelpFormatter(prog, max_help_position=32)

    parser = argparse.ArgumentParser(
        usage=f"glassformer {usage} [--flags]".replace("%", "%%"),
        description=cls.__doc__,
        formatter_class=layout,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    groups: dict[str, Any] = {"": parser}
    seen = set[str]()
    for flag in flags:
        if flag.name in seen:
            continue  # several optimizers have it
        seen.add(flag.name)
        table = flag.key.rpartition(".")[0]
        if table not in groups:
            groups[table] = parser.add_argument_group(table, tables()[table].__doc__)
        default = _default(flag, cls, config) if config else None
        notes: Any = {"dest": flag.field, "help": _help(flag, default)}
        if flag.off:  # help shows the second where the first changes nothing
            names = [flag.name, flag.off] if default in (None, True) else [flag.name]
            groups[table].add_argument(*names, action=_Switch, nargs=0, **notes)
        else:
            plain = partial(_plain, flag.kind)
            groups[table].add_argument(flag.name, type=plain, metavar=_placeholder(flag, cls), **notes)
    return parser


def _plain(kind: Any, text: str) -> Any:
    """Return a flag's value as a plain value; what is no number is left as text, which `build` refuses."""
    of = get_args(kind) if NoneType in get_args(kind) else (kind,)
    if text == "None" and NoneType in of:
        return None
    try:
        return of[0](text) if of[0] in (int, float) else text
    except ValueError:
        return text


def _placeholder(flag: Flag, cls: type) -> str:
    """Return what stands for a value in the help, such as `INT`, `FILE` or `{adam,sgd}`."""
    kind = get_args(flag.kind)[0] if NoneType in get_args(flag.kind) else flag.kind
    if get_origin(kind) is Literal:
        return f"{{{','.join(get_args(kind))}}}"
    known = PLACEHOLDERS | getattr(cls, "placeholders", {})
    text = next((placeholder for end, placeholder in known.items() if flag.field.endswith(end)), "TEXT")
    return {int: "INT", float: "FLOAT"}.get(kind, text)


def _default(flag: Flag, cls: type, config: Config) -> Any:
    """Return a flag's value when it is absent."""
    value: Any = config if "." in flag.key else cls()
    for part in flag.key.split("."):
        value = getattr(value, part)
    return value


def _help(flag: Flag, default: Any) -> str:
    """Return a flag's help with its interval and its default, as in `Number of layers. (in [1, 1000], default 4)`."""
    interval = flag.interval
    if interval.endswith(", inf)"):
        interval = f"{'≥' if interval[0] == '[' else '>'} {interval[1:].partition(',')[0]}"
    elif interval:
        interval = f"in {interval}"
    value = "on" if default is True else "" if default is None or default is False else str(default)
    notes = [note for note in (interval, f"default {value}" if value else "") if note]
    return (flag.help + (f" ({', '.join(notes)})" if notes else "")).replace("%", "%%")


def _within(key: str, tables: Collection[str]) -> bool:
    """Return True if a key, or a table that holds it, is among these."""
    return any(key == table or key.startswith(f"{table}.") for table in tables)


def _canonical(flag: str, known: dict[str, bool]) -> str:
    """Return `--max_tokens` and `--train.max-tokens` as `--max-tokens`."""
    flag = flag.replace("_", "-")
    section, _, rest = flag[2:].partition(".")
    bare = f"--{rest.rpartition('.')[2]}"
    prefixless = rest and section not in PREFIXED and section in sections(Config)
    return bare if prefixless and bare in known else flag


def _similar(flag: str, known: dict[str, bool]) -> str:
    """Return a hint at the flag that was meant: the same name in a section, or a similar spelling."""
    name = flag.lstrip("-")
    if same := [k for k in known if k.partition(".")[2] == name]:
        return f"did you mean {same[0]}?"
    return nearest(f"--{name}", [*known, "--help", "--debug"]).strip() or "see --help for all"


logger = logging.getLogger(__name__)


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
    if siblings := [p.name for p in parent.glob("*") if _is_run(p) or SeedsFolder(p).exists]:
        hint = f"in {parent} there are: {', '.join(sorted(siblings)[:8])}"
    hint = nearest(path.name, siblings).strip() or hint
    if "," in word and all(_is_run(Path(part)) for part in word.split(",")):
        hint = "name one run: only predict and evaluate take several"
    raise CheckpointError(f"{path} {wrong}", hint)


def _is_run(path: Path) -> bool:
    """Return whether a folder is a run, also one without a training: an import, or what learned an answer."""
    return RunFolder(path).resumable or (RunFolder(path).model / MODEL_CONFIG).is_file()


def run_folders(word: str) -> list[Path]:
    """Return the run folders of `RUN` or `RUN,RUN,…`, which form an ensemble; errors as in `run_folder`."""
    parts = [word] if Path(word).exists() else word.split(",")
    if len(parts) > 1 and (exported := next((part for part in parts if is_exported(Path(part))), None)):
        hint = f"to answer with it alone: {glassformer_command('predict', exported)}; to join models, name their runs"
        raise UsageError(f"{exported} is an exported model, which answers alone", hint)
    return [run_folder(part) for part in parts]
