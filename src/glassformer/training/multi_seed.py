"""Several runs that differ in their seed alone, one after the other; each is the run that `train` alone would give.

There is no second way of training here: every seed goes through `start_run` and `resume_run`. What the seeds say
together is told by `report/seeds.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from glassformer.config import Config
from glassformer.errors import DataError, DivergedError, Interrupted, UsageError
from glassformer.report.seeds import SeedsRecord, write_seeds_report
from glassformer.runs.folder import RunFolder
from glassformer.runs.records import Evaluation
from glassformer.runs.seeds_folder import SeedsFolder
from glassformer.training.trainer import OnStep, resume_run, start_run
from glassformer.utils.device import choose_device, tuned

logger = logging.getLogger(__name__)

EvaluateEnsemble: TypeAlias = Callable[[Sequence[Path]], Evaluation]
"""Scores the runs of several folders as one."""


def start_seeds(
    config: Config, path: Path, n: int, evaluate: EvaluateEnsemble, on_step: OnStep | None = None
) -> SeedsRecord:
    """Train seeds seed, seed + 1, … of a configuration into `path`, each into a run folder of its own; see `go_on`.

    Raises:
        UsageError: fewer than two seeds, or a folder that holds something already.
        DivergedError: all of them ended in no number; one that does is told, and the others go on.
    """
    if n < 2:
        raise UsageError(f"seeds counts runs to compare, so 2 or more, not {n}", "leave it out for one run")
    RunFolder(path).check_new()
    first = config.train.seed
    SeedsFolder(path).begin(config, [first + i for i in range(n)])
    return go_on(SeedsFolder(path), evaluate, on_step)


def go_on(folder: SeedsFolder, evaluate: EvaluateEnsemble, on_step: OnStep | None = None) -> SeedsRecord:
    """Train what is still to be trained of a seeds folder, score all as one, and report what the seeds say together.

    A budget in minutes is measured by the first seed; the others take as many updates, for runs that differ in more
    than their seed would not be comparable.

    Args:
        folder: what is to be trained.
        evaluate: scores the runs of several folders as an ensemble.
        on_report: called with each `StepReport`.
    """
    config, seeds = folder.read()
    diverged: DivergedError | None = None
    for number, seed in enumerate(seeds, start=1):
        run, first = folder.run(seed), folder.run(seeds[0])
        if run.finished and run.report.is_file():
            continue
        logger.info(f"seed {seed}, run {number} of {len(seeds)}: {run.path}")
        folder.ensemble.unlink(missing_ok=True)  # it was of other runs
        settled = first.read_config() if first.resumable else config
        try:
            _train(replace(settled, train=replace(settled.train, seed=seed)), run, on_step)
        except DivergedError as error:
            logger.warning(f"seed {seed}: {error.message}")
            diverged = error
        except Interrupted as error:
            hint = f"go on with: glassformer train --resume {folder.path}"
            raise Interrupted(error.message, hint, error.exit_code) from None
    if diverged is not None and not any(folder.run(seed).finished for seed in seeds):
        raise diverged
    _evaluate_together(folder, evaluate)
    return write_seeds_report(folder)


def _evaluate_together(folder: SeedsFolder, evaluate: EvaluateEnsemble) -> None:
    runs = folder.finished
    if len(runs) < 2 or folder.ensemble.is_file():
        return
    logger.info(f"evaluating the {len(runs)} runs as one, by the mean of their probabilities")
    try:
        folder.write_ensemble(evaluate([run.path for run in runs]))
    except (DataError, UsageError) as error:
        logger.warning(f"the runs are not scored as one: {error.message}")


def _train(config: Config, run: RunFolder, on_step: OnStep | None) -> None:
    with tuned(choose_device(config.train.device), config.train.deterministic):
        resume_run(run, on_step) if run.resumable else start_run(config, run, on_step)
