"""What several seeds of one recipe say together: mean, spread and the best by validation.

One seed's score is one draw; a recipe is judged by the mean, and a difference by the spread. The best is chosen on
validation, and its own score is not the recipe's.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from glassformer.report.run_record import RunRecord, load_run_record, readable_records
from glassformer.runs.folder import SeedsFolder
from glassformer.runs.records import Evaluation, JsonObject
from glassformer.tasks.reporting import Score
from glassformer.utils.atomic_io import write_json


@dataclass(frozen=True)
class SeedsRecord:
    """The runs of a seeds folder that were scored, and the seeds that were asked for.

    Attributes:
        evaluation: of all runs as one, an ensemble; None where they were not scored so.
    """

    path: Path
    seeds: list[int]
    runs: list[RunRecord]
    evaluation: Evaluation | None = None

    @property
    def best(self) -> RunRecord:
        """Return the run with the best validation; the first if there was none."""
        sign = 1 if self.runs[0].metric.higher_is_better else -1
        scored = [run for run in self.runs if run.kept_score is not None] or self.runs[:1]
        return max(scored, key=lambda run: sign * (run.kept_score or 0.0))

    @property
    def missing(self) -> list[int]:
        there = {run.config.train.seed for run in self.runs}
        return [seed for seed in self.seeds if seed not in there]

    @property
    def unfinished(self) -> list[int]:
        """Return the seeds that may still be trained: those missing that did not diverge."""
        return [seed for seed in self.missing if SeedsFolder(self.path).run(seed).read_divergence() is None]

    @property
    def ensemble(self) -> Score | None:
        return None if self.evaluation is None else self.runs[0].task_report.score(self.evaluation)


def load_seeds(folder: SeedsFolder) -> SeedsRecord:
    """Read what the runs of a seeds folder say; a CheckpointError names a damaged file, or that none was scored."""
    runs = [load_run_record(run.path) for run in folder.finished or [folder.best]]
    return SeedsRecord(folder.path, folder.read()[1], runs, folder.read_ensemble())


def summary_stats(values: Sequence[float]) -> JsonObject:
    """Return n, mean, sd (of a sample; None for one value), min and max."""
    sd = statistics.stdev(values) if len(values) > 1 else None
    return {"n": len(values), "mean": statistics.fmean(values), "sd": sd, "min": min(values), "max": max(values)}


def write_seeds_report(folder: SeedsFolder) -> SeedsRecord:
    """Write report.json of a seeds folder, and return what it was made from.

    It holds of the scores on `split` their mean and spread; `best` is a folder's name, None while seeds that may still
    be trained are missing.

    Raises:
        CheckpointError: no seed was scored, or a file is damaged.
    """
    facts = load_seeds(folder)
    with readable_records(folder.path):
        first, ensemble = facts.runs[0], facts.ensemble
        scores = [value for run in facts.runs if (value := run.score.value) is not None]
        of_all = ensemble and {"metric": ensemble.metric.name, "value": ensemble.value, "ci95": ensemble.interval}
        report = {
            "missing": facts.missing,
            "best": None if facts.unfinished else facts.best.path.name,
            "split": first.evaluation and first.evaluation.split,
            "score": {"metric": first.score.metric.name, **summary_stats(scores)} if scores else None,
            "ensemble": of_all,
            "runs": [{"run": run.path.name, "valid": run.kept_score, "score": run.score.value} for run in facts.runs],
        }
    write_json(folder.report, report)
    return facts
