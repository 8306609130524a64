"""`glassformer train`: train a recipe, or resume a run."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from glassformer.cli import flags
from glassformer.cli.evaluate import write_scores, write_seeds_scores
from glassformer.cli.explain_follow import watching
from glassformer.config import Config
from glassformer.config.recipes import load_recipe, recipe_names
from glassformer.errors import UsageError
from glassformer.runs.folder import RunFolder, SeedsFolder
from glassformer.runs.lock import lock_folder
from glassformer.utils import console
from glassformer.utils.formatting import glassformer_command
from glassformer.utils.safe_read import read_json

if TYPE_CHECKING:
    from glassformer.cli.explain_follow import Watching
    from glassformer.runs.records import StepMetrics

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class NewRunArguments:
    """Flags of the commands that start a run."""

    sections: ClassVar = ("data", "text", "model", "train", "decode")
    out: str | None = None
    """Folder of the new run; without it, runs/RECIPE."""
    dry_run: bool = False
    """Print what would be trained and how long it would take, without training."""
    overfit_batch: bool = False
    """Train on a single batch; its loss must go to zero."""
    seeds: int | None = None
    """Number of seeds to train, into OUT/seed-1 …; reports mean, standard deviation and the best by validation."""
    json: bool = False
    """Print the final scores as one JSON object."""


@dataclass(frozen=True)
class TrainArguments(NewRunArguments):
    """Train a recipe, by name or as a TOML file; `train RECIPE --help` shows its own flags and values."""

    resume: str | None = None
    """Run to resume instead of starting a new one."""
    finish: bool = False
    """With --resume: train no more, evaluate the best weights so far and write the report."""
    auto_resume: bool = False
    """Resume the run in OUT if there is one, else start it, for schedulers that repeat the command."""
    watch: bool = False
    """Show the training in the browser while it runs; turns --snapshots on."""
    browser: bool = True
    """With --watch, open the page in the browser; --no-browser only prints an address."""


def run(argv: Sequence[str]) -> int:
    """Run the command."""
    words, flag_args = flags.split_words(TrainArguments, argv, "train")
    if any(flag.startswith("--resume=") for flag in flag_args):
        return _resume(words, flag_args)
    if not words:
        if "--help" in flag_args:
            from glassformer.cli.recipes import write_recipes

            write_recipes()
            flags.parse(TrainArguments, flag_args, "train RECIPE")
        raise UsageError("train takes a recipe", f"there are: {', '.join(recipe_names())}; or --resume RUN")
    from glassformer.tasks import task_class

    recipe = flags.one_word(words, "recipe", "train RECIPE --out DIR")
    base, usage = load_recipe(recipe), f"train {recipe}"
    arguments = flags.read(TrainArguments, flag_args, usage, base, task_class(base.task))[0]
    out = Path(arguments.out or Path("runs") / base.recipe)
    again = arguments.auto_resume or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    if again and (RunFolder(out).resumable or SeedsFolder(out).exists):
        logger.info(f"{out} holds a run: resuming it as it was configured")
        return _resume_run(out, arguments)  # before the run to initialise from is read, which may be gone
    arguments, config = flags.parse_for_recipe(TrainArguments, flag_args, base, usage)
    if arguments.finish:
        raise UsageError("--finish ends a run that was stopped", "name the run: train --resume RUN --finish")
    if again and console.is_main_process() and out.is_dir():
        with lock_folder(out):
            RunFolder(out).remove_incomplete_start()
    if not (arguments.dry_run or arguments.overfit_batch) and console.is_main_process():
        RunFolder(out).check_new()
    if arguments.watch:
        config = _watched(config, arguments)
    with watching(out, arguments.browser) if arguments.watch else nullcontext() as page:
        if (trained := train(config, out, arguments, page)) is not None:
            _finish(trained, out, arguments.json)
        if page is not None:
            page.stay()
    return 0


def train(config: Config, out: Path, arguments: NewRunArguments, page: Watching | None = None) -> Any:
    """Train with lines of its progress, and perhaps with a page; return the run, or None after a dry run."""
    from glassformer.api import train_checked

    modes: dict[str, Any] = {name: getattr(arguments, name, None) for name in ("dry_run", "overfit_batch", "seeds")}
    return train_checked(config, out=out, on_step=_shown(config, page), **modes)


def _watched(config: Config, arguments: TrainArguments) -> Config:
    """Return the configuration with snapshots; raise UsageError where there is no one training to watch."""
    for name in ("dry_run", "overfit_batch", "seeds"):
        if getattr(arguments, name):
            message = f"--watch shows one training, and does not go with --{name.replace('_', '-')}"
            raise UsageError(message, "leave one of them out")
    return replace(config, train=replace(config.train, snapshots=True))


def _shown(config: Config, page: Watching | None) -> Callable[[StepMetrics], None]:
    """Return what shows a step on the terminal, and begins to show it in the browser."""
    from glassformer.tasks import task_class
    from glassformer.training.progress import TrainingProgress

    task = task_class(config.task)
    of_numbers = "squared error" if task.schema.target == "number" else "nats per label"
    progress = TrainingProgress("nats per token" if task.metric == "nats_per_token" else of_numbers)

    def on_step(report: StepMetrics) -> None:
        progress(report)
        if page is not None:
            page.on_step(report)

    return on_step


def _resume(words: list[str], flag_args: list[str]) -> int:
    """Resume a run with its own configuration."""
    names = [flag.partition("=")[0] for flag in flag_args]
    kept = ("--resume", "--finish", "--json", "--help", "--watch", "--browser", "--no-browser")
    if extra := words + [name for name in names if name not in kept]:
        message = f"a resumed run keeps its own configuration; it takes no {' '.join(extra)}"
        raise UsageError(message, "resume it as it is, or start a new run with these values")
    arguments = flags.parse(TrainArguments, flag_args, "train --resume RUN")
    return _resume_run(flags.run_folder(str(arguments.resume), all_seeds=True), arguments)


def _resume_run(out: Path, arguments: TrainArguments) -> int:
    """Resume with lines of its progress, and print the scores."""
    import glassformer

    if arguments.watch and SeedsFolder(out).exists:
        raise UsageError("--watch shows one training, and this folder holds several", "resume them without it")
    with watching(out, arguments.browser) if arguments.watch else nullcontext() as page:
        config = SeedsFolder(out).read()[0] if SeedsFolder(out).exists else RunFolder(out).read_config()
        run = glassformer.resume(out, on_step=_shown(config, page), finish=arguments.finish)
        if run is not None:
            _finish(run, out, arguments.json)
        if page is not None:
            page.stay()
    return 0


def _finish(run: Any, out: Path, as_json: bool) -> None:
    """Print the scores to stdout and the paths to stderr."""
    several, folder = SeedsFolder(out), RunFolder(out)
    if several.exists:
        write_seeds_scores(read_json(several.report), as_json)
    elif evaluation := folder.read_evaluation():
        write_scores(evaluation.as_json(), as_json)
    if (report := several.report if several.exists else folder.report).is_file():
        logger.info(f"report: {report}")
    logger.info(f"use it:  {glassformer_command('predict', out)} …")
    logger.info(f"look inside: {glassformer_command('explain', out)}")
