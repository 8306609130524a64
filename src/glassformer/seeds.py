"""Several runs that differ in their seed alone, one after the other; each is the run that `train` alone would give.

There is no second way of training here: every seed goes through `start_run` and `resume_run`. What the seeds say
together is told by `report/seeds.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from glassformer import console
from glassformer.config import Config
from glassformer.errors import DivergedError, Interrupted, UsageError
from glassformer.report.seeds import SeedsFacts, write_seeds_report
from glassformer.runs.folder import RunFolder
from glassformer.runs.seeds_folder import SeedsFolder
from glassformer.runtime import choose_device, tuned
from glassformer.session import OnReport, resume_run, start_run


def start_seeds(config: Config, path: Path, n: int, on_report: OnReport | None = None) -> SeedsFacts:
    """Train seeds seed, seed + 1, … of a configuration into `path`, each into a run folder of its own.

    Raises:
        UsageError: fewer than two seeds, or a folder that holds something already.
        DivergedError: all of them ended in no number; one that does is told, and the others go on.
    """
    if n < 2:
        raise UsageError(f"seeds counts runs to compare, so 2 or more, not {n}", "leave it out for one run")
    RunFolder(path).check_new()
    first = config.train.seed
    SeedsFolder(path).begin(config, [first + i for i in range(n)])
    return go_on(SeedsFolder(path), on_report)


def go_on(folder: SeedsFolder, on_report: OnReport | None = None) -> SeedsFacts:
    """Train what is still to be trained of a seeds folder, and tell what the seeds say together.

    A budget in minutes is measured by the first seed; the others take as many updates, for runs that differ in more
    than their seed would not be comparable.
    """
    config, seeds = folder.read()
    diverged: DivergedError | None = None
    for number, seed in enumerate(seeds, start=1):
        run, first = folder.run(seed), folder.run(seeds[0])
        if run.finished and run.report.is_file():
            continue
        console.say(f"seed {seed}, run {number} of {len(seeds)}: {run.path}")
        settled = first.read_config() if first.resumable else config
        try:
            _train(replace(settled, train=replace(settled.train, seed=seed)), run, on_report)
        except DivergedError as error:
            console.warn(f"seed {seed}: {error.message}")
            diverged = error
        except Interrupted as error:
            hint = f"go on with: glassformer train --resume {folder.path}"
            raise Interrupted(error.message, hint, error.exit_code) from None
    if diverged is not None and not any(folder.run(seed).finished for seed in seeds):
        raise diverged
    return write_seeds_report(folder)


def _train(config: Config, run: RunFolder, on_report: OnReport | None) -> None:
    with tuned(choose_device(config.train.device), config.train.deterministic):
        resume_run(run, on_report) if run.resumable else start_run(config, run, on_report)
