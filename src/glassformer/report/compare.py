"""Two runs side by side: a row each, and whether they differ by more than chance.

Two intervals that overlap do not prove two models equal; on the same examples a paired test sees more. It
needs the predictions that both runs kept when they were evaluated. Where both are folders of several seeds their
means are compared: that asks about the recipes and not about two models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError
from glassformer.evaluate.metrics import Metric
from glassformer.evaluate.scoring import paired
from glassformer.evaluate.significance import CHANCE, welch
from glassformer.report.run_record import load_run_record, readable_records
from glassformer.report.seeds import SeedsRecord, load_seeds, summary_stats
from glassformer.runs.folder import RunFolder, SeedsFolder
from glassformer.runs.records import JsonObject
from glassformer.tasks.reporting import answer_text

OTHER_EXAMPLES = "they were not evaluated on the same examples: train both with the same --test-file or --split-seed."


@dataclass(frozen=True)
class Comparison:
    """Two rows for a table, a test with a sentence on it, or what stood in its way.

    Attributes:
        rows: run, task, dataset, split, n, metric, value, ci95, seeds, sd, parameters, steps, seconds. Of several
            seeds: value is the mean, sd their spread, the rest the best's by validation.
        test: test, metric, difference (first − second), ci95, p_value, n; None where there is none.
        notes: what the test says, or why there is none, and which run stands for several seeds.
    """

    rows: list[dict[str, Any]]
    test: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)


def compare_runs(first: Path | str, second: Path | str) -> Comparison:
    """Put two run folders, or folders of seeds, side by side.

    Raises:
        CheckpointError: one is no run folder, or a file in it is damaged.
    """
    with readable_records(Path(first), Path(second)):
        one, two = _read(Path(first)), _read(Path(second))
        rows, outcome = [_row(one), _row(two)], _tested(one, two)
    if isinstance(outcome, str):
        return Comparison(rows, notes=[f"{first} and {second} were not tested: {outcome}"])
    report = one.best.task_report
    unit = outcome.get("unit", report.unit)
    notes = [verdict(str(first), str(second), outcome, report.metric(outcome["metric"]), unit)]
    for seeds, other in ((one, two), (two, one)):
        if len(seeds.scores) > 1 >= len(other.scores):
            best = f"its best by validation, {seeds.best.path.name}"
            notes.append(f"{seeds.path} stands beside {other.path} with {best}.")
    return Comparison(rows, outcome, notes)


def _read(path: Path) -> SeedsRecord:
    """Read a folder of several seeds, or a run, which is the only one of its kind."""
    folder = SeedsFolder(path)
    return load_seeds(folder) if folder.exists else SeedsRecord(path, [], [load_run_record(path)])


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


def _row(one: SeedsRecord) -> dict[str, Any]:
    """Return a line of the table; what is unknown is None."""
    run, spread = one.best, summary_stats(one.scores) if one.scores else {}
    evaluation = run.evaluation
    return {
        "run": str(one.path),
        "task": run.config.task,
        "dataset": run.config.data.dataset,
        "split": evaluation.split if evaluation else None,
        "n": evaluation.n or None if evaluation else None,
        "metric": run.score.metric.name,
        "value": spread.get("mean"),
        "ci95": run.score.interval if len(one.scores) < 2 else None,
        "seeds": len(one.scores) or 1,
        "sd": spread.get("sd"),
        "parameters": run.data.preflight.get("n_parameters"),
        "steps": run.steps or None,
        "seconds": run.seconds,
    }


def _predictions(folder: RunFolder, keys: Sequence[str]) -> list[JsonObject]:
    """Return what was predicted, each with what was right; raise CheckpointError for lines that do not hold both."""
    rows = [*(folder.read_predictions() or [])]
    if not all(isinstance(row, dict) and row.keys() >= {*keys} for row in rows):
        raise CheckpointError(f"{folder.predictions} does not hold {' and '.join(keys)} in each line")
    return rows


def _tested(first: SeedsRecord, second: SeedsRecord) -> dict[str, Any] | str:
    """Return the test of two runs or of two sets of seeds, or the reason why there is none."""
    one, two, keys = first.best, second.best, first.best.task_report.comparison_keys
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
    if min(len(first.scores), len(second.scores)) > 1:
        return welch(first.scores, second.scores) | {"metric": one.score.metric.name}
    if keys is None:
        return f"there is no paired test of a {one.task_report.model_name}."
    of_first, of_second = (_predictions(RunFolder(run.path), keys) for run in (one, two))
    if not (of_first and of_second):
        where = " or ".join(str(run.path) for run, of in ((one, of_first), (two, of_second)) if not of)
        return f"no predictions.jsonl in {where}, which `glassformer train --resume` would finish."
    if [answer_text(row[keys[0]]) for row in of_first] != [answer_text(row[keys[0]]) for row in of_second]:
        return OTHER_EXAMPLES
    ours, theirs = (run.task_report.scoring(run.evaluation.scores if run.evaluation else {}) for run in (one, two))
    if ours.settings != theirs.settings:
        return f"one was scored with {ours.settings}, the other with {theirs.settings} (--bleu-tokenize)."
    return paired(ours, of_first, of_second)
