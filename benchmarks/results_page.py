"""Render RESULTS.md and its plots from the facts that `results.py` collects."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from glassformer.evaluate.metrics import Metric
from glassformer.tasks import task_class
from glassformer.utils import plotting as ps
from glassformer.utils.formatting import duration, fenced, table

JsonObject = dict[str, Any]

INTRODUCTION = """\
# Results

Models were trained from random weights, with a tokenizer fitted on the training split; those of the section on
all-MiniLM-L6-v2 begin with its weights and tokenizer. Choices were made on validation data; the test split was
evaluated once a run was finished.

Disclosure: two configurations were changed after a look at the test set, the Shakespeare validation split (first score
1.709 nats) and the one-minute IMDB run (first score 89.0%, SD 0.9).

- **Score**: the mean over several seeds with standard deviation, minimum and maximum, or the score of one run with its
  95% interval over the test examples. BLEU on validation uses greedy decoding, on the test split a beam of 5.
- **Baselines**: the majority class is the most frequent label of the training split, so its accuracy on a test split
  can be below 1 / number of classes.
- **Cost** is that of one run: steps and validations, without the final test. FLOPs count the steps, forward and
  backward.

`make results` generates this page from finished run folders; their facts are kept in `benchmarks/results.json`.
`make results-train` trains missing runs one after the other and resumes interrupted ones. Commands with
`$GLASSFORMER_DATA` read files that are not part of this repository."""


def page(results: dict[str, JsonObject], ablations: str, images: list[str]) -> str:
    """Return the page as Markdown; `ablations` ends it."""
    parts = [INTRODUCTION]
    if not results:
        parts.append("No result has been measured yet.")
    for section in sections(results):
        inside = {name: facts for name, facts in results.items() if facts["section"] == section}
        parts += [f"## {section}", results_table(inside), fenced("\n".join(commands(inside)), "sh")]
        if notes := [f"- {name}: {facts['note']}" for name, facts in inside.items() if facts.get("note")]:
            parts.append("\n".join(notes))
        if (image := image_name(section)) in images:
            parts.append(f"![Learning curves of {section}](docs/images/{image})")
    parts += [ablations.strip()] if ablations else []
    return "\n\n".join(parts) + "\n"


def sections(results: dict[str, JsonObject]) -> list[str]:
    """Return the sections, in the order of their first results."""
    return list(dict.fromkeys(facts["section"] for facts in results.values()))


def results_table(results: dict[str, JsonObject]) -> str:
    """Return a table with one row per result."""
    header = [
        "result",
        "test score",
        "seeds",
        "validation",
        "other scores",
        "baselines",
        "parameters",
        "steps",
        "FLOPs",
        "time",
        "hardware",
    ]
    rows = []
    for name, facts in results.items():
        others = "; ".join(f"{title} {text}" for title, text in facts["also"].items())
        baselines = "; ".join(f"{title} {text}" for title, text in facts["baselines"].items())
        rows.append(
            [
                name,
                score_text(facts),
                facts["score"]["n"],
                _validated(facts),
                others or "–",
                baselines or "–",
                f"{facts['parameters'] or 0:,}",
                f"{facts['steps']:,}",
                in_powers(facts["flops"]),
                duration(facts["seconds"]),
                facts["hardware"],
            ]
        )
    return table(header, rows)


def score_text(facts: JsonObject) -> str:
    """Return `Accuracy 87.3% (sd 0.4, 86.9–87.7%)`, for one run `Accuracy 87.3% (95%: 86.9–87.7%)`."""
    metric, score = task_class(facts["task"]).report.metric(facts["metric"]), facts["score"]
    if score["n"] > 1:
        return f"{metric.title} {mean_text(metric, score)}"
    spread = metric.between(facts["ci95"])
    return f"{metric.title} {metric.write(score['mean'])}{f' (95%: {spread})' if spread else ''}"


def mean_text(metric: Metric, score: JsonObject) -> str:
    """Return the mean of several scores with their spread, whose standard deviation has the decimals of the mean."""
    text = metric.write(score["mean"])
    decimals, unit = len(text.removesuffix("%").partition(".")[2]), 100 if text.endswith("%") else 1
    spread = "" if score["sd"] is None else f"sd {unit * score['sd']:.{decimals}f}, "
    return f"{text} ({spread}{metric.between([score['min'], score['max']])})"


def _validated(facts: JsonObject) -> str:
    """Return the validation score, with its name if it differs from the test score's."""
    metric = task_class(facts["task"]).report.metric(facts["valid_metric"])
    return f"{'' if metric.name == facts['metric'] else f'{metric.title} '}{metric.write(facts['valid']['mean'])}"


def commands(results: dict[str, JsonObject]) -> list[str]:
    """Return the command of each result."""
    return [typed(facts, f"runs/results/{name}") for name, facts in results.items()]


def typed(facts: JsonObject, out: object) -> str:
    """Return the command of a result at `out`, a run folder."""
    return f"{facts['command']} --out {out}"


def in_powers(flops: float) -> str:
    """Return `1.3e15`; a dash if nothing was counted."""
    return f"{flops:.1e}".replace("e+", "e") if flops else "–"


def image_name(section: str) -> str:
    """Return the file name of a section's learning curves."""
    return f"results-{re.sub('[^a-z0-9]+', '-', section.partition(':')[0].lower()).strip('-')}.png"


def curves_png(results: dict[str, JsonObject]) -> dict[str, bytes]:
    """Return the learning curves of each section that has some, by file name."""
    images = {}
    for section in sections(results):
        # Two points make no curve.
        inside = {n: f for n, f in results.items() if f["section"] == section and len(f["curve"]) > 2}
        if inside:
            with ps.style():
                images[image_name(section)] = _curves(section, inside)
    return images


def _curves(section: str, results: dict[str, JsonObject]) -> bytes:
    """Plot the validation score of each result over the minutes of its first run."""
    metric = task_class((first := next(iter(results.values())))["task"]).report.metric(first["valid_metric"])
    subtitle = f"{metric.title} on validation over minutes of training"
    figure, axes = ps.new_figure(3.2, section.partition(":")[0], subtitle, right=1.9)
    labels, all_values = [], []
    best = max(results, key=lambda name: results[name]["valid"]["mean"] * (1 if metric.higher_is_better else -1))
    for name, facts in results.items():
        seconds, values = np.array(facts["curve"]).T
        colour = ps.ACCENT if name == best else ps.QUIET
        axes.plot(seconds / 60, values, color=colour, linewidth=1.5, marker="o", markersize=2.6)
        labels.append((seconds[-1] / 60, values[-1], name, colour))
        all_values += list(values)
    low, high = np.percentile(all_values, [0, 100] if metric.higher_is_better else [0, 97])
    axes.set_ylim(low - 0.06 * (high - low) - 1e-9, high + 0.08 * (high - low) + 1e-9)
    ends = [minutes for minutes, *_ in labels]
    if max(ends) > 8 * min(ends):  # runs of a minute and of an hour
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlim(None if axes.get_xscale() == "log" else 0, max(ends) * 1.01)
    axes.set_xlabel("minutes")
    if metric.write(0.5).endswith("%"):
        axes.yaxis.set_major_formatter(lambda value, _: metric.write(value))
    ps.end_labels(axes, labels)
    return ps.png(figure)
