"""`glassformer train`: a recipe becomes a run, or a run goes on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tyro

from glassformer import console
from glassformer.cli import flags
from glassformer.cli.scores import write_scores
from glassformer.config import Config, DataConfig, DecodeConfig, ModelConfig, TextConfig, TrainConfig
from glassformer.errors import UsageError
from glassformer.recipes import BUDGETS, load_recipe, recipe_names, without_budget
from glassformer.runs.folder import RunFolder


@dataclass(frozen=True)
class TrainArguments:
    """Train a recipe (a shipped one by name, or a TOML file by path); `train RECIPE --help` shows what it can use."""

    out: str | None = None
    """Folder of the new run; runs/RECIPE when absent."""
    resume: str | None = None
    """Go on with this run instead of starting one."""
    dry_run: bool = False
    """Say what would be trained and how long it would take, and stop."""
    overfit_batch: bool = False
    """Train on one batch only: the loss must go to zero, or something is broken."""
    json: bool = False
    """Print the final scores as one JSON object."""
    data: tyro.conf.OmitArgPrefixes[DataConfig] = field(default_factory=DataConfig)
    text: TextConfig = field(default_factory=TextConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: tyro.conf.OmitArgPrefixes[TrainConfig] = field(default_factory=TrainConfig)
    decode: tyro.conf.OmitArgPrefixes[DecodeConfig] = field(default_factory=DecodeConfig)


def run(argv: Sequence[str]) -> int:
    """The verb."""
    words, given = flags.split_words(TrainArguments, argv, "train")
    if any(flag.startswith("--resume=") for flag in given):
        return _resume(words, given)
    if not words:
        if "--help" in given:
            flags.parse(TrainArguments, given, "train RECIPE")
        raise UsageError("train takes a recipe", f"there are: {', '.join(recipe_names())}; or --resume RUN")
    recipe = flags.one_word(words, "recipe", "train RECIPE --out DIR")
    arguments, config = parse(TrainArguments, given, load_recipe(recipe), f"train {recipe}")
    out = Path(arguments.out or Path("runs") / config.recipe)
    if not (arguments.dry_run or arguments.overfit_batch):
        check_new_folder(out)
    if train(config, out, arguments) is not None:
        _finish(out, arguments.json)
    return 0


def parse(
    cls: type[TrainArguments], given: list[str], base: Config, usage: str
) -> tuple[TrainArguments, Config]:
    """`flags.parse_for_recipe`, where a budget that is given replaces the recipe's."""
    if {flag.partition("=")[0].removeprefix("--") for flag in given} & set(BUDGETS):
        base = without_budget(base)
    return flags.parse_for_recipe(cls, given, base, usage)


def train(config: Config, out: Path, arguments: TrainArguments) -> Any:
    """Train with a progress bar; returns the run, or None where none was made (a dry run)."""
    import glassformer
    from glassformer.report.progress import TrainingProgress

    special = {name: True for name in ("dry_run", "overfit_batch") if getattr(arguments, name)}
    with TrainingProgress() as progress:
        return glassformer.train(config, out=out, on_report=progress, **special)


def check_new_folder(out: Path) -> None:
    """Refuse a run folder that is in use or cannot be written, before anything is loaded.

    Raises:
        UsageError: which, and what to do.
    """
    if out.is_dir() and any(out.iterdir()):
        hint = f"go on with it: glassformer train --resume {out}; or " if RunFolder(out).resumable else ""
        raise UsageError(f"{out} is not empty", f"{hint}name another --out")
    nearest = next((p for p in (out, *out.parents) if p.exists()), Path("."))
    if not nearest.is_dir():
        raise UsageError(f"{out} cannot be a folder: {nearest} is a file", "name another --out")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UsageError(f"{out} cannot be written: no permission in {nearest}", "name another --out")


def _resume(words: list[str], given: list[str]) -> int:
    """Go on with a run; its configuration is what it was."""
    names = [flag.partition("=")[0] for flag in given]
    if extra := words + [name for name in names if name not in ("--resume", "--json", "--help")]:
        told = f"a resumed run keeps its own configuration; it takes no {' '.join(extra)}"
        raise UsageError(told, "resume it as it is, or start a new run with these values")
    arguments = flags.parse(TrainArguments, given, "train --resume RUN")
    out = flags.run_folder(str(arguments.resume))

    import glassformer
    from glassformer.report.progress import TrainingProgress

    with TrainingProgress() as progress:
        glassformer.resume(out, on_report=progress)
    _finish(out, arguments.json)
    return 0


def _finish(out: Path, as_json: bool) -> None:
    """The scores to stdout, and where everything is to stderr."""
    folder = RunFolder(out)
    if evaluation := folder.read_evaluation():
        write_scores(evaluation.as_json(), as_json)
    if folder.report.is_file():
        console.say(f"report: {folder.report}")
    console.say(f"use it:  glassformer predict {out} …")
    console.say(f"look inside: glassformer explain {out}")
