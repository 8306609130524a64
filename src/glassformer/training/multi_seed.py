"""Train several runs that differ in their seed only, one after the other, each as `train` alone would.

Every seed goes through `start_run` or `resume_run`; `report/seeds.py` summarises them.
"""

from __future__ import annotations

import logging
import shlex
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
"""Scores the runs of several folders as an ensemble."""


def start_seeds(
    config: Config, path: Path, n: int, evaluate: EvaluateEnsemble, on_step: OnStep | None = None
) -> SeedsRecord:
    """Train `n` consecutive seeds of a configuration, each into a run folder in `path`; see `resume_seeds`.

    Raises:
        UsageError: there are fewer than two seeds, or the folder is not empty.
        DivergedError: all seeds diverged; a warning is logged for some.
    """
    if n < 2:
        raise UsageError(f"seeds is the number of runs to compare, at least 2; got {n}", "leave it out for one run")
    RunFolder(path).check_new()
    first = config.train.seed
    SeedsFolder(path).begin(config, [first + i for i in range(n)])
    return resume_seeds(SeedsFolder(path), evaluate, on_step)


def resume_seeds(folder: SeedsFolder, evaluate: EvaluateEnsemble, on_step: OnStep | None = None) -> SeedsRecord:
    """Train the unfinished seeds of a seeds folder, score all as an ensemble, and write and return the summary.

    The first seed converts a budget in minutes to steps; the others take as many, so that runs are comparable.

    Args:
        folder: the seeds folder.
        evaluate: scores the runs of several folders as an ensemble.
        on_step: called with each `StepReport`.
    """
    config, seeds = folder.read()
    diverged: DivergedError | None = None
    for number, seed in enumerate(seeds, start=1):
        run, first = folder.run(seed), folder.run(seeds[0])
        if run.finished and run.report.is_file():
            continue
        logger.info(f"seed {seed}, run {number} of {len(seeds)}: {run.path}")
        # An earlier ensemble was of fewer runs.
        folder.ensemble.unlink(missing_ok=True)
        settled = first.read_config() if first.resumable else config
        try:
            _train(replace(settled, train=replace(settled.train, seed=seed)), run, on_step)
        except DivergedError as error:
            logger.warning(f"seed {seed}: {error.message}")
            diverged = error
        except Interrupted as error:
            hint = f"resume with: glassformer train --resume {shlex.quote(str(folder.path))}"
            raise Interrupted(error.message, hint, error.exit_code) from None
    if diverged is not None and not any(folder.run(seed).finished for seed in seeds):
        raise diverged
    _evaluate_ensemble(folder, evaluate)
    return write_seeds_report(folder)


def _evaluate_ensemble(folder: SeedsFolder, evaluate: EvaluateEnsemble) -> None:
    runs = folder.finished
    if len(runs) < 2 or folder.ensemble.is_file():
        return
    logger.info(f"evaluating the {len(runs)} runs as an ensemble, by the mean of their probabilities")
    try:
        folder.write_ensemble(evaluate([run.path for run in runs]))
    except (DataError, UsageError) as error:
        logger.warning(f"the runs are not scored as an ensemble: {error.message}")


def _train(config: Config, run: RunFolder, on_step: OnStep | None) -> None:
    with tuned(choose_device(config.train.device), config.train.deterministic):
        resume_run(run, on_step) if run.resumable else start_run(config, run, on_step)
