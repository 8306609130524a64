"""`glassformer train`, `demo` and `recipes`: train a recipe, or resume a run."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from glassformer.cli.explain import watching
from glassformer.cli.flags import Command, Result, run_folder, use_of
from glassformer.cli.use import scores
from glassformer.config import Config
from glassformer.config.recipes import config_to_dict, load_recipe, recipe_names, recipe_text
from glassformer.errors import UsageError
from glassformer.runs.folder import RunFolder, SeedsFolder, lock_folder
from glassformer.utils import console
from glassformer.utils.formatting import glassformer_command
from glassformer.utils.safe_read import read_json

if TYPE_CHECKING:
    from glassformer.runs.records import StepMetrics

    OnStep = Callable[[StepMetrics], None]

logger = logging.getLogger(__name__)

N_SHOWN = 8
"""Predictions in the table of the demo."""


class Trains(Command):
    """A command that trains."""

    sections: ClassVar = ("data", "text", "model", "train", "decode")
    out: str | None = None
    """Folder of the new run; without it, runs/RECIPE, or runs/demo, runs/demo-2 … of the demo."""

    def configured(self, base: Config) -> Config:
        """Return a recipe with the settings that were given, over those of the run to initialise from, if any."""
        if begin := self.given.get("init_from", base.train.init_from):
            from glassformer.training.finetune import with_pretrained_settings

            base = with_pretrained_settings(base, begin)
        return self.laid_over(base)


class Train(Trains):
    """Train a recipe, by name or as a TOML file; `train RECIPE --help` shows its own flags and values.

    `glassformer recipes` lists those that come with the package.
    """

    usage: ClassVar = "train [RECIPE]"
    example: ClassVar = "train imdb --out runs/imdb"
    dry_run: bool = False
    """Print what would be trained and how long it would take, without training."""
    overfit_batch: bool = False
    """Train on a single batch; its loss must go to zero."""
    seeds: int | None = None
    """Number of seeds to train, into OUT/seed-1 …; reports mean, standard deviation and the best by validation."""
    resume: str | None = None
    """Run to resume, as it was configured, instead of starting a new one."""
    finish: bool = False
    """With --resume: end the run as it is, evaluate its best weights and write the report; it trains no more."""
    auto_resume: bool = False
    """Resume the run in OUT if there is one, else start it, for schedulers that repeat the command."""
    watch: bool = False
    """Show the training in the browser while it runs; turns --snapshots on."""
    browser: bool = True
    """With --watch, open the page in the browser; --no-browser only prints an address."""

    @classmethod
    def base_of(cls, words: Sequence[str]) -> Config | None:
        return load_recipe(words[0]) if words else None

    def run(self) -> Iterator[Result]:
        from glassformer.api import train_into, try_out

        if self.resume is not None:
            alone = {"resume", "finish", "json", "watch", "browser"}
            if extra := [*self.words, *(f"--{name.replace('_', '-')}" for name in self.given if name not in alone)]:
                message = f"a resumed run keeps its own configuration; it takes no {' '.join(extra)}"
                raise UsageError(message, "resume it as it is, or start a new run with these values")
            yield from self.resumed(run_folder(self.resume, all_seeds=True))
            return
        if self.finish:
            raise UsageError("--finish ends a run that was stopped", "name the run: train --resume RUN --finish")
        if self.base is None:
            raise UsageError("train takes a recipe", f"there are: {', '.join(recipe_names())}; or --resume RUN")
        kinds = [name for name in ("dry_run", "overfit_batch", "seeds", "watch") if getattr(self, name)]
        if len(kinds) > 1:
            both = (f"--{name.replace('_', '-')}" for name in reversed(kinds[:2]))
            raise UsageError(" does not go with ".join(both), "leave one of them out")
        out = Path(self.out or Path("runs") / self.base.recipe)
        again = self.auto_resume or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
        if again and (RunFolder(out).resumable or SeedsFolder(out).exists):
            logger.info(f"{out} holds a run: resuming it as it was configured")
            yield from self.resumed(out)  # before the run to initialise from is read, which may be gone
            return
        config = self.configured(self.base)
        if self.dry_run or self.overfit_batch:
            try_out(config, progress_of(config), self.overfit_batch)
            return
        if again and out.is_dir() and console.is_main_process():
            with lock_folder(out):
                RunFolder(out).remove_incomplete_start()
        if self.watch:
            config = replace(config, train=replace(config.train, snapshots=True))
        with self.progress(config, out) as on_step:
            train_into(out, config, on_step, self.seeds)
            yield from trained(out)

    def resumed(self, out: Path) -> Iterator[Result]:
        """Resume a run, or several seeds."""
        from glassformer.api import train_into

        several = SeedsFolder(out).exists
        if self.watch and several:
            raise UsageError("--watch shows one training, and this folder holds several", "resume them without it")
        with self.progress(SeedsFolder(out).read()[0] if several else RunFolder(out).read_config(), out) as on_step:
            train_into(out, on_step=on_step, finish=self.finish)
            yield from trained(out)

    def progress(self, config: Config, out: Path) -> AbstractContextManager[OnStep]:
        """Return what shows each step, as lines and perhaps on a page."""
        return watching(out, self.browser, progress_of(config)) if self.watch else nullcontext(progress_of(config))


def trained(out: Path) -> Iterator[Result]:
    """Yield the scores of a training, and log what to do next, in the first of its processes."""
    if not console.is_main_process():
        return
    seeds, folder = SeedsFolder(out), RunFolder(out)
    if seeds.exists:
        yield (report := read_json(seeds.report)), console.lines_of(report)
    elif evaluation := folder.read_evaluation():
        yield scores(evaluation.as_json())
    if (path := seeds.report if seeds.exists else folder.report).is_file():
        logger.info(f"report: {path}")
    logger.info(f"use it:  {use_of(out, (seeds.best if seeds.exists else folder).read_tokenizer())}")
    logger.info(f"look inside: {glassformer_command('explain', out)}")


def progress_of(config: Config) -> OnStep:
    """Return what writes lines of the progress of a training to stderr."""
    from glassformer.tasks import task_class
    from glassformer.training.progress import TrainingProgress

    return TrainingProgress(task_class(config.task).report.loss_unit)


class Demo(Trains):
    """Train the recipe `dates`, evaluate it on held-out dates, show a few predictions and where the report is.

    Dates as people write them in many languages become ISO 8601, in a few minutes, with nothing to download.
    """

    usage: ClassVar = "demo"
    example: ClassVar = "demo"

    @classmethod
    def base_of(cls, words: Sequence[str]) -> Config | None:
        return load_recipe("dates")

    def run(self) -> Iterator[Result]:
        from glassformer.api import train_into

        config = self.configured(self.base or Config())
        names = itertools.chain(["demo"], (f"demo-{i}" for i in itertools.count(2)))
        free = (path for name in names if not RunFolder(path := Path("runs") / name).not_empty)
        out = Path(self.out) if self.out else next(free)
        logger.info("Dates as people write them, in many languages → ISO 8601. Training a small Transformer …")
        train_into(out, config, progress_of(config))
        yield from trained(out)
        evaluation = RunFolder(out).read_evaluation()
        examples = [] if evaluation is None or self.json else evaluation.examples[:N_SHOWN]
        rows = [{name: one[name] for name in ("text", "translation", "reference")} for one in examples]
        yield from [({"examples": rows}, console.lines_of({"examples": rows}))] if rows else []


class Recipes(Command):
    """List the recipes, or print one with its comments, to edit and pass by path; in JSON with every setting."""

    usage: ClassVar = "recipes [RECIPE]"
    example: ClassVar = "recipes imdb"

    def run(self) -> Iterator[Result]:
        for name in self.words:
            yield config_to_dict(load_recipe(name)), [recipe_text(name).rstrip("\n")]
        if self.words:
            return
        listed = map(load_recipe, recipe_names())
        facts = {"recipes": [{"recipe": c.recipe, "task": c.task, "note": c.note} for c in listed]}
        yield facts, console.lines_of(facts)
