"""Runs side by side: one row each, and for each pair whether they differ by more than chance.

Two intervals that overlap do not prove two models equal; on the same examples a paired test sees more. It
needs the predictions that both runs kept when they were evaluated. Where both are folders of several seeds their
means are compared: that asks about the recipes and not about two models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError
from glassformer.evaluate.metrics import Metric
from glassformer.evaluate.scoring import paired
from glassformer.evaluate.significance import CHANCE, holm, welch
from glassformer.report.run_record import RunRecord, load_run_record, readable_records
from glassformer.report.seeds import SeedsRecord, load_seeds, summary_stats
from glassformer.runs.folder import RunFolder, SeedsFolder
from glassformer.runs.records import JsonObject
from glassformer.tasks.reporting import answer_text

OTHER_EXAMPLES = "they were not evaluated on the same examples: train both with the same --test-file or --split-seed."


@dataclass(frozen=True)
class Comparison:
    """Rows for a table, tests, sentences on them, and what stood in the way of others.

    Attributes:
        rows: run, task, dataset, split, n, metric, value, ci95, seeds, sd, parameters, steps, seconds. Of several
            seeds: value is the mean, sd their spread, the rest the best's by validation.
        tests: first, second, test, metric, difference (first − second), ci95, p_value, p_holm (corrected for the
            number of pairs), n.
        verdicts: a sentence a test, in their order.
        notes: sentences on pairs that could not be tested.
    """

    rows: list[dict[str, Any]]
    tests: list[dict[str, Any]] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def compare_runs(paths: Sequence[Path | str]) -> Comparison:
    """Put run folders, or folders of seeds, side by side, in their order.

    Raises:
        CheckpointError: one is no run folder, or a file in it is damaged.
    """
    with readable_records(*map(Path, paths)):
        return _comparison([_read(Path(path)) for path in paths])


def _read(path: Path) -> SeedsRecord:
    """Read a folder of several seeds, or a run, which is the only one of its kind."""
    folder = SeedsFolder(path)
    return load_seeds(folder) if folder.exists else SeedsRecord(path, [], [load_run_record(path)])


def _comparison(compared: Sequence[SeedsRecord]) -> Comparison:
    comparison, tested = Comparison([_row(one) for one in compared]), list[RunRecord]()
    for first, second in combinations(compared, 2):
        outcome = _tested(first, second)
        if isinstance(outcome, str):
            comparison.notes.append(f"{first.path} and {second.path} were not tested: {outcome}")
            continue
        comparison.tests.append({"first": str(first.path), "second": str(second.path), **outcome})
        tested.append(first.best)
        for one, other in ((first, second), (second, first)):
            if len(one.scores) > 1 >= len(other.scores):
                best = f"its best by validation, {one.best.path.name}"
                comparison.notes.append(f"{one.path} stands beside {other.path} with {best}.")
    corrected = holm([test["p_value"] for test in comparison.tests])
    for run, test, p_value in zip(tested, comparison.tests, corrected, strict=True):
        test["p_holm"] = p_value
        unit = test.get("unit", run.task_report.unit)
        comparison.verdicts.append(verdict(test, run.task_report.metric(test["metric"]), unit, len(corrected)))
    return comparison


def verdict(test: dict[str, Any], metric: Metric, unit: str, n_tests: int) -> str:
    """Say in a sentence who is better by how much, and whether that is more than chance.

    `unit` is what the test's n counts. The p-value is corrected for `n_tests`.
    """
    first, second, difference, p_value = test["first"], test["second"], test["difference"], test["p_holm"]
    value = metric.write(abs(difference))
    what = f"{value.removesuffix('%')} points" if value.endswith("%") else f"{value} ({metric.title})"
    p = "p < .001" if p_value < 0.001 else f"p = {f'{p_value:.3f}'.removeprefix('0')}"
    how = f"{p}, {test['test']}, {test['n']:,} {unit}" + (f"; corrected for {n_tests} pairs" if n_tests > 1 else "")
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
