"""`glassformer train`, `demo` and `recipes`: train a recipe, or resume a run."""

from __future__ import annotations

import itertools
import logging
import os
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from glassformer.cli import flags
from glassformer.cli.evaluate import score_lines, write_scores, write_seeds_scores
from glassformer.cli.folders import run_folder
from glassformer.cli.watch import watching
from glassformer.config import Config
from glassformer.config.recipes import config_to_dict, load_recipe, recipe_names, recipe_text
from glassformer.errors import UsageError
from glassformer.runs.folder import RunFolder, SeedsFolder, lock_folder
from glassformer.runs.records import Evaluation
from glassformer.utils import console
from glassformer.utils.formatting import glassformer_command
from glassformer.utils.safe_read import read_json

if TYPE_CHECKING:
    from glassformer.run import Run
    from glassformer.runs.records import StepMetrics

logger = logging.getLogger(__name__)

N_SHOWN = 8
"""Predictions in the table of the demo."""
OWN = "[de_DE] Mittwoch, 3. September 2014"
AMBIGUOUS = [(month, day) for day in range(1, 13) for month in range(1, 13) if month != day]
"""Months and days that can be exchanged, for `offer_finding`."""
MAX_TRIED = 20
"""Dates for which a head is looked for, about half a second each."""


@dataclass(frozen=True)
class TrainArguments:
    """Train a recipe, by name or as a TOML file; `train RECIPE --help` shows its own flags and values."""

    usage: ClassVar = "train [RECIPE]"
    example: ClassVar = "train imdb --out runs/imdb"
    sections: ClassVar = ("data", "text", "model", "train", "decode")
    out: str | None = None
    """Folder of the new run; without it, runs/RECIPE."""
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
    json: bool = False
    """Print the final scores as one JSON object."""


ONE_OF = ("dry_run", "overfit_batch", "seeds", "watch")
"""What a command trains, or does instead: one of these."""
OF_RESUME = {"resume", "finish", "json", "watch", "browser"}


def run_train(given: flags.Given[TrainArguments]) -> None:
    """Run `glassformer train`."""
    if "resume" in given.values:
        if extra := [*given.words, *(f"--{name.replace('_', '-')}" for name in given.values if name not in OF_RESUME)]:
            message = f"a resumed run keeps its own configuration; it takes no {' '.join(extra)}"
            raise UsageError(message, "resume it as it is, or start a new run with these values")
        arguments = given.arguments()
        _resume(run_folder(str(arguments.resume), all_seeds=True), arguments)
        return
    if "finish" in given.values:
        raise UsageError("--finish ends a run that was stopped", "name the run: train --resume RUN --finish")
    if not given.words:
        if given.wants_help:
            write_recipes()
            given.arguments()
        raise UsageError("train takes a recipe", f"there are: {', '.join(recipe_names())}; or --resume RUN")
    from glassformer.tasks import task_class

    base = load_recipe(given.words[0])
    arguments = given.arguments(base, task_class(base.task))
    if len(both := [name.replace("_", "-") for name in ONE_OF if getattr(arguments, name)]) > 1:
        raise UsageError(f"--{both[1]} does not go with --{both[0]}", "leave one of them out")
    out = Path(arguments.out or Path("runs") / base.recipe)
    again = arguments.auto_resume or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    if again and (RunFolder(out).resumable or SeedsFolder(out).exists):
        logger.info(f"{out} holds a run: resuming it as it was configured")
        _resume(out, arguments)  # before the run to initialise from is read, which may be gone
        return
    _, config = given.for_recipe(base)
    if again and console.is_main_process() and out.is_dir():
        with lock_folder(out):
            RunFolder(out).remove_incomplete_start()
    from glassformer.api import train_checked, try_out

    if arguments.dry_run or arguments.overfit_batch:
        try_out(config, progress_of(config), arguments.overfit_batch)
        return
    if console.is_main_process():
        RunFolder(out).check_new()
    if arguments.watch:
        config = replace(config, train=replace(config.train, snapshots=True))

    def train(on_step: Callable[[StepMetrics], None]) -> Run:
        return train_checked(config, out=out, on_step=on_step, seeds=arguments.seeds)

    _shown(train, config, out, arguments)


def _resume(out: Path, arguments: TrainArguments) -> None:
    import glassformer

    if arguments.watch and SeedsFolder(out).exists:
        raise UsageError("--watch shows one training, and this folder holds several", "resume them without it")
    config = SeedsFolder(out).read()[0] if SeedsFolder(out).exists else RunFolder(out).read_config()
    _shown(lambda on_step: glassformer.resume(out, on_step=on_step, finish=arguments.finish), config, out, arguments)


def progress_of(config: Config) -> Callable[[StepMetrics], None]:
    """Return what writes lines of the progress of a training to stderr."""
    from glassformer.tasks import task_class
    from glassformer.training.progress import TrainingProgress

    return TrainingProgress(task_class(config.task).report.loss_unit)


def _shown(
    train: Callable[[Callable[[StepMetrics], None]], Run], config: Config, out: Path, arguments: TrainArguments
) -> None:
    """Train with lines of its progress, and perhaps with a page; print the scores to stdout and the paths to stderr."""
    progress = progress_of(config)
    with watching(out, arguments.browser) if arguments.watch else nullcontext(lambda report: None) as page:

        def on_step(report: StepMetrics) -> None:
            progress(report)
            page(report)

        train(on_step)
        several, folder = SeedsFolder(out), RunFolder(out)
        if several.exists:
            write_seeds_scores(read_json(several.report), arguments.json)
        elif evaluation := folder.read_evaluation():
            write_scores(evaluation.as_json(), arguments.json)
        if (report := several.report if several.exists else folder.report).is_file():
            logger.info(f"report: {report}")
        logger.info(f"use it:  {glassformer_command('predict', out)} …")
        logger.info(f"look inside: {glassformer_command('explain', out)}")


@dataclass(frozen=True)
class DemoArguments:
    """Train the recipe `dates`, evaluate it on held-out dates, show a few predictions and where the report is.

    Dates as people write them in many languages become ISO 8601, in a few minutes, with nothing to download.
    """

    usage: ClassVar = "demo"
    example: ClassVar = "demo"
    sections: ClassVar = TrainArguments.sections
    out: str | None = None
    """Folder of the new run; without it, runs/demo, or runs/demo-2 and so on where that is in use."""
    json: bool = False
    """Print the final scores as one JSON object."""


def run_demo(given: flags.Given[DemoArguments]) -> None:
    """Run `glassformer demo`."""
    arguments, config = given.for_recipe(load_recipe("dates"))
    numbered = (Path("runs") / f"demo-{i}" for i in itertools.count(2))
    free = (path for path in itertools.chain([Path("runs/demo")], numbered) if not RunFolder(path).not_empty)
    out = Path(arguments.out) if arguments.out else next(free)
    RunFolder(out).check_new()
    logger.info("Dates as people write them, in many languages → ISO 8601. Training a small Transformer from scratch …")
    from glassformer.api import train_checked

    trained = train_checked(config, out=out, on_step=progress_of(config))
    evaluation = RunFolder(trained.path).read_evaluation() or Evaluation()
    if arguments.json:
        write_scores(evaluation.as_json(), as_json=True)
        return
    console.write(next(score_lines(evaluation)) + "\n")
    shown = [(e["text"], e["translation"], e["reference"]) for e in evaluation.examples[:N_SHOWN]]
    rows = [(*row, "right" if row[1] == row[2] else "wrong") for row in shown]
    console.write_table(("as written", "predicted", "true", ""), rows)
    logger.info(f"\none more: {OWN} → {trained.predict(OWN)['translation']}; try your own:")
    logger.info(f'  {glassformer_command("predict", out)} "{OWN}"')
    logger.info(f"the report, with plots: {RunFolder(out).report}")
    logger.info(f"look inside: {glassformer_command('explain', out)}")
    offer_finding(trained)


def offer_finding(trained: Run) -> None:
    """Find the head that decides between month first and day first, and write it for the page to open on."""
    from glassformer.explain.edits.findings import find_head, write_findings

    texts = [f"[en_US] {month:02}/{day:02}/2026" for month, day in AMBIGUOUS]
    answers = [answer["translation"] for answer in trained.predict(texts)]
    true = [f"2026-{month:02}-{day:02}" for month, day in AMBIGUOUS]
    right = [text for text, answer, date in zip(texts, answers, true, strict=True) if answer == date]
    for text in right[:MAX_TRIED]:
        first, second = trained.explain(text), trained.explain(text.replace("[en_US]", "[en_GB]"))
        finding = find_head(first, second) if len(first.streams[0]) == len(second.streams[0]) else None
        if finding is not None:
            break
    else:
        logger.info("no single head decides between month first and day first in this model")
        return
    write_findings(RunFolder(trained.path).findings, trained, [finding])
    layer, head = re.findall(r"\d+", finding.edits[0])[:2]
    logger.info(
        f"that page opens on a finding: kept from attending to {first.streams[0].pieces[0]}, head {int(head) + 1} of "
        f"encoder layer {int(layer) + 1} turns {finding.before} into {finding.after}"
    )


@dataclass(frozen=True)
class RecipesArguments:
    """List the recipes, or print one with its comments, to edit and pass by path."""

    usage: ClassVar = "recipes [RECIPE]"
    example: ClassVar = "recipes imdb"
    json: bool = False
    """Print JSON instead of a table or TOML; of one recipe every setting, defaults included."""


def run_recipes(given: flags.Given[RecipesArguments]) -> None:
    """Run `glassformer recipes`."""
    as_json = given.arguments().json
    for name in given.words:
        config: Any = config_to_dict(load_recipe(name))
        console.write_json(config) if as_json else console.write(recipe_text(name).rstrip("\n"))
    if not given.words and as_json:
        for name, config in _all_recipes():
            console.write_json({"recipe": name, "task": config.task, "note": config.note})
    elif not given.words:
        write_recipes()
        train = "train one: glassformer train imdb --out runs/imdb"
        logger.info(f"print one: glassformer recipes imdb        {train}")


def write_recipes() -> None:
    """Print a table of the shipped recipes: name, task, data and typical time."""
    console.write_table(
        ("recipe", "task", "data, and time on two CPU cores"), [(n, c.task, c.note) for n, c in _all_recipes()]
    )


def _all_recipes() -> list[tuple[str, Config]]:
    return [(name, load_recipe(name)) for name in recipe_names()]
