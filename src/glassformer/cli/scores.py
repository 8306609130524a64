"""Scores on stdout: the headline and the baselines for people, everything as one JSON object for programs."""

from __future__ import annotations

from glassformer.runs.records import Evaluation, JsonObject
from glassformer.tasks.reporting import TaskReport
from glassformer.utils import console
from glassformer.utils.formatting import counted


def write_scores(scores: JsonObject, as_json: bool) -> None:
    """Print the headline score of an evaluation and the baselines' scores, or with `as_json` all scores."""
    if as_json:
        console.write_json({k: v for k, v in scores.items() if k not in ("examples", "predictions")})
        return
    evaluation = Evaluation(scores["task"], scores["split"], scores)
    if joined := scores.get("joined"):
        console.write(f"ensemble of {', '.join(joined)}")
    console.write(headline_of(evaluation))
    for line in baseline_lines(evaluation):
        console.write(line)


def write_seeds_scores(report: JsonObject, as_json: bool) -> None:
    """Print the mean test score of several seeds and the score of their ensemble, or with `as_json` the report."""
    if as_json:
        console.write_json(report)
        return
    if test := report["test"]:
        spread = f", SD {test['sd']:.4f}" if test["sd"] is not None else ""
        between = f"{test['min']:.4f} to {test['max']:.4f}"
        console.write(f"{_title(test['metric'])} {test['mean']:.4f} (mean of {test['n']} seeds{spread}; {between})")
    if ensemble := report["ensemble"]:
        console.write(f"ensemble of all seeds: {ensemble['value']:.4f}{_interval(ensemble['ci95'])}")


def write_edit_scores(scores: JsonObject, report: TaskReport, as_json: bool) -> None:
    """Print the score of a split without and with edits, whether they differ, and where answers were lost."""
    if as_json:
        console.write_json(scores)
        return
    test = scores["test"]
    if scores["member"] is not None:
        console.write(f"model {scores['member']} of the ensemble, alone")
    for edit in scores["edits"]:
        console.write(f"edit        {edit}")
    console.write(f"{_title(scores['metric'])} {scores['before']:.4f} without the edit, {scores['after']:.4f} with it")
    low, high = test["ci95"]
    p = "p < 0.001" if test["p_value"] < 0.001 else f"p = {test['p_value']:.3f}"
    unit = test.get("unit", report.unit)
    console.write(
        f"difference  {test['difference']:+.4f} (95% interval {low:+.4f} to {high:+.4f}; {p}, {test['test']}, "
        f"{test['n']:,} {unit})"
    )
    if groups := scores["groups"]:
        rows = [(g["name"], f"{g['n']:,}", f"{g['before']:.1%}", f"{g['after']:.1%}") for g in groups]
        console.write_table(("changed most", "examples", "right without", "right with it"), rows)


def headline_of(evaluation: Evaluation) -> str:
    """Return the headline score in words: `accuracy 0.988 (95% interval 0.982 to 0.992) on 2,000 test examples`."""
    from glassformer.tasks import task_class

    report = task_class(evaluation.task).report
    metric, value, interval = report.score(evaluation)
    text = "none" if value is None else f"{value:.4f}"
    scored = counted(evaluation.n, f"{evaluation.split} {report.unit}")
    return f"{_title(metric.name)} {text}{_interval(interval)} on {scored}{_seen(evaluation)}"


def _seen(evaluation: Evaluation) -> str:
    """Return how many of the scored texts are in training too; empty if none is."""
    shared, n = evaluation.value("also_in_training"), evaluation.value("compared_with_training")
    if not shared or not n:
        return ""
    what = "" if n == evaluation.n else f" of {n:,} lines"
    return f" ({shared:,}{what} also in training)"


def baseline_lines(evaluation: Evaluation) -> list[str]:
    """Return each baseline that has the headline score, as a line."""
    from glassformer.tasks import task_class

    report = task_class(evaluation.task).report
    metric, lines = report.score(evaluation).metric, []
    for name, scores in evaluation.baselines.items():
        _, value, interval = report.score(Evaluation(scores=scores), metric.name)
        if value is not None:
            lines.append(f"baseline {report.baselines.get(name, _title(name))}: {value:.4f}{_interval(interval)}")
    return lines


def _title(name: str) -> str:
    return name.replace("_", " ")


def _interval(interval: list[float | int] | None) -> str:
    return f" (95% interval {interval[0]:.4f} to {interval[1]:.4f})" if interval else ""
