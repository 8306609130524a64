"""Several runs: two side by side, and whether they differ by more than chance; and all seeds of a recipe together.

Two intervals that overlap do not prove two models equal; on the same examples a paired test sees more. It
needs the predictions that both runs kept when they were evaluated.

One seed's score is one draw; a recipe is judged by the mean, and a difference by the spread. The best is chosen on
validation, and its own score is not the recipe's.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError
from glassformer.evaluate.metrics import Metric
from glassformer.evaluate.scoring import CHANCE, paired
from glassformer.report.run_record import RunRecord, load_run_record, readable_records
from glassformer.runs.folder import RunFolder, SeedsFolder
from glassformer.runs.records import Evaluation, JsonObject
from glassformer.tasks.reporting import Score, answer_text
from glassformer.utils.atomic_io import write_json

OTHER_EXAMPLES = "they were not evaluated on the same examples: train both with the same --test-file or --split-seed."


@dataclass(frozen=True)
class Comparison:
    """Two rows for a table, and a test.

    Attributes:
        rows: run, task, split, n, metric, value, ci95.
        test: test, metric, difference (first − second), ci95, p_value, n; None where there is none.
        verdict: what the test says, or why there is none.
    """

    rows: list[dict[str, Any]]
    test: dict[str, Any] | None
    verdict: str


def compare_runs(first: Path | str, second: Path | str) -> Comparison:
    """Put two run folders side by side.

    Raises:
        CheckpointError: one is no run folder, or a file in it is damaged.
    """
    with readable_records(Path(first), Path(second)):
        one, two = load_run_record(first), load_run_record(second)
        rows, outcome, report = [_row(one), _row(two)], _tested(one, two), one.task_report
    if isinstance(outcome, str):
        return Comparison(rows, None, f"{first} and {second} were not tested: {outcome}")
    unit = outcome.get("unit", report.unit)
    sentence = verdict(str(first), str(second), outcome, report.metric(outcome["metric"]), unit)
    return Comparison(rows, outcome, sentence)


def verdict(first: str, second: str, test: dict[str, Any], metric: Metric, unit: str) -> str:
    """Say in a sentence who is better by how much, and whether that is more than chance; n counts `unit`."""
    difference, p_value = test["difference"], test["p_value"]
    value = metric.write(abs(difference))
    what = f"{value.removesuffix('%')} points" if value.endswith("%") else f"{value} ({metric.title})"
    p = "p < .001" if p_value < 0.001 else f"p = {f'{p_value:.3f}'.removeprefix('0')}"
    how = f"{p}, {test['test']}, {test['n']:,} {unit}"
    if p_value >= CHANCE:
        return f"{first} and {second} differ by {what}, which may be chance ({how})."
    better, than = (first, second) if (difference > 0) == metric.higher_is_better else (second, first)
    return f"{better} is better than {than} by {what}, which is more than chance ({how})."


def _row(run: RunRecord) -> dict[str, Any]:
    """Return a line of the table; what is unknown is None."""
    (metric, value, interval), evaluation = run.score, run.evaluation or Evaluation()
    scored = {"metric": metric.name, "value": value, "ci95": interval}
    place = {"split": evaluation.split if run.evaluation else None, "n": evaluation.n or None}
    return {"run": str(run.path), "task": run.config.task, **place, **scored}


def _tested(one: RunRecord, two: RunRecord) -> dict[str, Any] | str:
    """Return the test of two runs, or the reason why there is none."""
    keys = one.task_report.comparison_keys
    if one.config.task != two.config.task:
        return f"one is {one.config.task}, the other {two.config.task}."
    if one.score.metric != two.score.metric:
        return f"one is scored in {one.score.metric.title}, the other in {two.score.metric.title}."
    splits = (run.data.splits.get(run.evaluation.split if run.evaluation else "test") for run in (one, two))
    if len({split.sha256 for split in splits if split and split.sha256}) > 1:
        return OTHER_EXAMPLES
    tokenizers = [run.data.tokenizer.get("sha256") for run in (one, two)]
    if one.score.metric.name.endswith("_per_token") and tokenizers[0] != tokenizers[1]:
        return "a score for each token does not compare where the tokenizers differ."
    if keys is None:
        return f"there is no paired test of a {one.task_report.model_name}."
    folders = RunFolder(one.path), RunFolder(two.path)
    of_first, of_second = both = [[*(folder.read_predictions() or [])] for folder in folders]
    for folder, rows in zip(folders, both, strict=True):
        if not rows:
            return f"no predictions.jsonl in {folder.path}, which `glassformer train --resume` would finish."
        if not all(isinstance(row, dict) and row.keys() >= {*keys} for row in rows):
            raise CheckpointError(f"{folder.predictions} does not hold {' and '.join(keys)} in each line")
    if [answer_text(row[keys[0]]) for row in of_first] != [answer_text(row[keys[0]]) for row in of_second]:
        return OTHER_EXAMPLES
    ours, theirs = (run.task_report.scoring(run.evaluation.scores if run.evaluation else {}) for run in (one, two))
    if ours.settings != theirs.settings:
        return f"one was scored with {ours.settings}, the other with {theirs.settings} (--bleu-tokenize)."
    return paired(ours, of_first, of_second)


# --- several seeds --------------------------------------------------------------------------------------------------


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
