"""Train several runs that differ in their seed only, one after the other, each as `train` alone would.

Every seed goes through `start_run` or `resume_run`; `report/seeds.py` summarises them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from glassformer.config import Config
from glassformer.config.recipes import config_to_dict
from glassformer.data.corpus import corpora_kept
from glassformer.errors import DataError, DivergedError, Interrupted, UsageError
from glassformer.report.seeds import SeedsRecord, write_seeds_report
from glassformer.runs.folder import RunFolder, SeedsFolder, lock_folder
from glassformer.runs.records import Evaluation
from glassformer.training.signals import stop_requests
from glassformer.training.trainer import OnStep, resume_run, start_run
from glassformer.utils.atomic_io import write_json

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
    folder = SeedsFolder(path)
    with lock_folder(path):
        RunFolder(path).check_new()
        seeds = [config.train.seed + i for i in range(n)]
        write_json(folder.seeds_file, {"seeds": seeds, "config": config_to_dict(config)})
    try:
        return resume_seeds(folder, evaluate, on_step)
    except (DataError, UsageError):
        if not any(path.glob("seed-*")):  # no seed was begun, and the folder is free for another command
            folder.seeds_file.unlink()
            path.rmdir()
        raise


def resume_seeds(folder: SeedsFolder, evaluate: EvaluateEnsemble, on_step: OnStep | None = None) -> SeedsRecord:
    """Train the unfinished seeds of a seeds folder, score all as an ensemble, and write and return the summary.

    The first seed converts a budget in minutes to steps; the others take as many, so that runs are comparable.

    Args:
        folder: the seeds folder.
        evaluate: scores the runs of several folders as an ensemble.
        on_step: called with the metrics of each step.

    Raises:
        UsageError: another process trains into the folder.
        CheckpointError: the settings or the data record of a seed that was begun have changed since.
    """
    RunFolder(folder.path).refuse_links()
    go_on = f"resume with: {RunFolder(folder.path).resume_command}"
    where = f"; the seeds that are trained are saved in {folder.path}", go_on
    with lock_folder(folder.path), stop_requests(lambda: where), corpora_kept():
        try:
            return _train_each(folder, evaluate, on_step)
        except Interrupted as error:
            raise Interrupted(error.message, go_on, error.exit_code) from None


def _train_each(folder: SeedsFolder, evaluate: EvaluateEnsemble, on_step: OnStep | None) -> SeedsRecord:
    config, seeds = folder.read()
    for begun in (run for run in map(folder.run, seeds) if run.resumable):
        begun.check_unchanged()  # the others take its settings, and the report compares them
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
            train_or_resume(replace(settled, train=replace(settled.train, seed=seed)), run, on_step)
        except DivergedError as error:
            logger.warning(f"seed {seed}: {error.message}")
            diverged = error
    if diverged is not None and not any(folder.run(seed).finished for seed in seeds):
        raise diverged
    _evaluate_ensemble(folder, evaluate)
    return write_seeds_report(folder)


def _evaluate_ensemble(folder: SeedsFolder, evaluate: EvaluateEnsemble) -> None:
    runs = folder.finished
    if len(runs) < 2 or folder.ensemble.is_file():
        return
    logger.info(f"evaluating the {len(runs)} runs as an ensemble, by the mean of their outputs")
    try:
        write_json(folder.ensemble, evaluate([run.path for run in runs]).as_json())
    except (DataError, UsageError) as error:
        logger.warning(f"the runs are not scored as an ensemble: {error.message}")


def train_or_resume(config: Config, run: RunFolder, on_step: OnStep | None) -> None:
    """Train a run from its beginning, or resume it where it was begun."""
    if run.resumable:
        resume_run(run, on_step)
        return
    with lock_folder(run.path):
        run.remove_incomplete_start()
    start_run(config, run, on_step)
