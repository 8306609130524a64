"""`glassformer data`: what would be read, looked at before anything trains on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import tyro

from glassformer import console
from glassformer.cli import flags
from glassformer.config import Config, DataConfig
from glassformer.errors import DataError, UsageError
from glassformer.recipes import load_recipe

N_SHOWN = 3
"""Examples `data show` prints of each split."""
SHOWN_CHARS = 100


@dataclass(frozen=True)
class DataArguments:
    """Check own files (data check classify --train-file …), or show what is read (data show imdb).

    The word after check or show is a recipe: classify, translate and lm for files of your own.
    """

    json: bool = False
    """Print one JSON object."""
    data: tyro.conf.OmitArgPrefixes[DataConfig] = field(default_factory=DataConfig)


def run(argv: Sequence[str]) -> int:
    """The verb."""
    words, given = flags.split_words(DataArguments, argv, "data")
    if "--help" in given:
        flags.parse(DataArguments, given, "data check|show RECIPE")
    if not words or words[0] not in ("check", "show"):
        came = f"not {words[0]!r}" if words else "and none came"
        raise UsageError(
            f"data takes check or show, {came}", "as in: glassformer data check classify --train-file a.csv"
        )
    what, rest = words[0], words[1:]
    base = load_recipe(flags.one_word(rest, "recipe", f"data {what} classify --train-file a.csv"))
    arguments = flags.parse(DataArguments, given, "data", replace(DataArguments(), data=base.data))
    config = flags.config_of(arguments, base)
    return _check(config, arguments.json) if what == "check" else _show(config, arguments.json)


def _check(config: Config, as_json: bool) -> int:
    """All problems with file and line; exit code 3 if one of them is an error."""
    from glassformer.data.check import check_data

    report = check_data(config.task, config.data)
    if as_json:
        errors = [asdict(problem) for problem in report.errors]
        console.write_json({"ok": not errors, "errors": errors, "counts": report.counts})
        return DataError.exit_code if errors else 0
    for problem in report.errors:
        console.write(str(problem))
    console.write_table(("found", "count"), sorted(report.counts.items()))
    if report.errors:
        raise DataError(
            f"{len(report.errors):,} problems to mend before training", "each is listed with file and line"
        )
    console.say("nothing stands in the way of training")
    return 0


def _show(config: Config, as_json: bool) -> int:
    """Sizes and first examples of each split; fetches a built-in data set that is not here yet."""
    from glassformer.data.datasets import load_text_data

    data = load_text_data(config.task, config.data)
    for note in data.notes:
        console.say(note)
    splits = {
        name: split for name in ("train", "valid", "test") if (split := getattr(data, name)) is not None
    }
    sizes = {name: {"n": len(split), "source": split.source} for name, split in splits.items()}
    if as_json:
        facts = {"task": config.task, "splits": sizes, "label_names": data.label_names, "hashes": data.hashes}
        console.write_json(facts)
        return 0
    console.write_table(
        ("split", "examples", "source"), [(k, f"{v['n']:,}", v["source"]) for k, v in sizes.items()]
    )
    rows = [
        (name, _short(split.text[i]), _answer(split, i, data.label_names))
        for name, split in splits.items()
        for i in range(min(N_SHOWN, len(split)))
    ]
    console.write("")
    console.write_table(("split", "text", "answer"), rows)
    return 0


def _answer(split: Any, i: int, label_names: list[str] | None) -> str:
    if split.target is not None:
        return _short(split.target[i])
    return label_names[split.labels[i]] if split.labels is not None and label_names else ""


def _short(text: str) -> str:
    line = " ".join(text[: 2 * SHOWN_CHARS].split())
    return line if len(line) <= SHOWN_CHARS else line[: SHOWN_CHARS - 1] + "…"
