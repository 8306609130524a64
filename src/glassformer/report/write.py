"""The report of a run: `report.md` for people, with `plots/*.png`; and its model card.

Both are lists of parts in Markdown, to be read once from top to bottom, the result first; what is unknown is said, not
left out. The card must make sense to someone who has the `model/` folder alone, so it begins as the report does.
Everything is read back from the run folder, so a report can be written again at any time, without the data and without
the model. How pictures look is in `utils/plotting.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import fields
from typing import Any

import numpy as np

from glassformer.report.findings import of_scores
from glassformer.report.run_record import RunRecord, readable_records
from glassformer.runs.folder import PLOTS, RunFolder
from glassformer.runs.records import IMPORT, Evaluation, Origin, SplitRecord, StepMetrics
from glassformer.utils import plotting as ps
from glassformer.utils.atomic_io import atomic_write_bytes, atomic_write_text
from glassformer.utils.formatting import (
    cell_text,
    code,
    counted,
    duration,
    fenced,
    glassformer_command,
    number,
    quoted,
    table,
)

CAPTIONS = {
    "loss": "Grey: every step, with label smoothing and dropout; black: their mean; red: validation; dotted: kept.",
    "metric": "The validation metric.",
}
"""Of the plots every run has; those of its scores are the task's."""


def dataset(facts: RunRecord) -> str:
    """Return what it was trained on and how long that took, for a sentence."""
    data, took = facts.config.data, f" in {duration(facts.seconds)}" if facts.seconds else ""
    file = data.train_file or data.src_file or facts.data.source
    return (f"own data ({code(file)})" if data.dataset == "files" else data.dataset) + took


def model(facts: RunRecord) -> str:
    """Return what the model is: layers, width, heads, parameters, tokenizer, and where its weights began."""
    model, tokenizer, begin = facts.config.model, facts.data.tokenizer, facts.config.train.init_from
    layers = f"{counted(model.n_layers, 'layers')}, d_model {model.d_model}, {model.n_heads} heads"
    parts = [f"Transformer, {layers}"]
    if model.ensemble_size > 1:
        parts.append(f"an ensemble of {model.ensemble_size} of them")
    if n_parameters := facts.data.preflight.get("n_parameters"):
        parts.append(f"{n_parameters:,} parameters")
    if tokenizer:
        parts.append(f"{tokenizer.get('kind')} tokenizer of {tokenizer.get('vocab_size', 0):,} entries")
    how, weights = ("fine-tuned", f"the weights of {code(begin)}") if begin else ("trained", "random weights")
    parts.append(f"{how} with Glassformer from {weights}")
    return "; ".join(parts) + "."


def headline(facts: RunRecord) -> str:
    """Return the score to quote in one sentence, with its interval, split and size; or that there is none."""
    evaluation, (metric, value, interval) = facts.evaluation, facts.score
    if evaluation is None or value is None:
        return "It was not evaluated on a test split."
    spread = f" (95% interval {metric.between(interval)})" if interval else ""
    over = counted(evaluation.n, facts.task_report.unit)
    return f"{metric.title} on the {evaluation.split} split: **{metric.write(value)}**{spread}, over {over}."


def opening(facts: RunRecord) -> list[str]:
    """Return what report and card begin with: the data, the score, the model and what makes the score doubtful."""
    cautions = map(str, [*facts.data.findings, *of_scores(facts)])
    device = facts.env.get("device_name") or facts.env.get("device")
    on = f" on {cell_text(device)}" if device else ""
    return [
        f"# {cell_text(facts.name)}",
        f"A {facts.task_report.model_name} trained on {dataset(facts)}{on}. {headline(facts)}",
        f"*{model(facts)}*",
        *([quoted(facts.config.note)] if facts.config.note else []),
        *(quoted(f"**Mind:** {text[0].upper()}{text[1:]}.") for text in cautions),
    ]


def kept(facts: RunRecord) -> str:
    """Return which weights were kept, and their validation score."""
    if (score := facts.kept_score) is None:
        return "There was no validation."
    best = facts.best_validation()
    when = f"of step {best.step:,}" if best else "before the first step"
    return f"Kept: the weights {when} ({facts.metric.title} on validation: {facts.metric.write(score)})."


def use(facts: RunRecord, run: str) -> str:
    """Return how to predict with the run and evaluate it, in the shell."""
    split = facts.evaluation.split if facts.evaluation else "test"
    evaluate = glassformer_command("evaluate", run, "--split", split, "--json")
    return fenced(f"{glassformer_command('predict', run)} < texts.txt\n{evaluate}", "sh")


def model_card(facts: RunRecord) -> str:
    """Return the card of a run's model as Markdown; its metadata are those of a Hugging Face model card."""
    origin = Origin.from_json(facts.data.base.get(IMPORT), RunFolder(facts.path).data)
    parts = [
        "\n".join(["---", "library_name: glassformer", *(origin.front_matter() if origin else []), "---"]),
        *opening(facts),
        *("## Limits", facts.task_report.limits, f"It reads texts up to {facts.config.text.max_len:,} tokens."),
        *(("## Pretrained weights", *origin.of_descendant()) if origin else ()),
        *("## Use it", use(facts, "path/to/run")),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def report_markdown(facts: RunRecord, plots: Collection[str]) -> str:
    """Return the whole report of a run that has `plots` of these names."""
    report, train = facts.task_report, facts.config.train
    captions = CAPTIONS | {name: caption for name, (_, caption) in report.plots.items()}
    images = {n: f"![{n.replace('_', ' ')}]({PLOTS}/{n}.png)\n\n*{captions[n]}*" for n in captions if n in plots}
    steps, rate = "No step was logged.", f"peak rate {train.lr:g}, {train.schedule} schedule"
    if facts.training:
        steps = f"{facts.steps:,} steps, {facts.training[-1].epoch:.2f} epochs; {train.optimizer}, {rate}, "
        steps += f"label smoothing of {train.label_smoothing:g}, seed {train.seed}. {kept(facts)}"
    parts = [
        *opening(facts),
        *("## Result", *_result(facts), *(image for name, image in images.items() if name in report.plots)),
        *("## Training", steps, *(image for name, image in images.items() if name in CAPTIONS)),
        *("## Data", *_data(facts)),
        *("## Use it", "From the folder around it; to evaluate, of the training:", use(facts, facts.path.name)),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _result(facts: RunRecord) -> list[str]:
    """Return the table of scores, the baselines beside them, what the task adds, and examples."""
    evaluation, report = facts.evaluation, facts.task_report
    if evaluation is None:
        return [f"Not evaluated yet. Run {code(glassformer_command('train', '--resume', facts.path.name))}."]
    names, settings = report.names(evaluation), list[str]()
    scores = [report.score(evaluation, name) for name in names]
    columns = {"": [score.metric.title for score in scores], "this model": [score.text for score in scores]}
    columns["95% interval"] = [score.metric.between(score.interval) for score in scores]
    for key, row in evaluation.baselines.items():
        title = report.baselines.get(key, cell_text(key.replace("_", " ")))
        columns[title] = [report.score(Evaluation(scores=row), name).text for name in names]
        settings += [f"- {title}: {row['settings']}"] if row.get("settings") else []
    parts = [table([*columns], [*zip(*columns.values(), strict=True)]), "\n".join(settings)]
    parts += report.details(evaluation)
    if evaluation.examples:
        parts += ["### Examples", "The first of the split, not chosen.", report.example_table(evaluation.examples)]
    return parts


def _data(facts: RunRecord) -> list[str]:
    """Return what was counted of each split, and what was met in the files."""
    if not (splits := facts.data.splits):
        return ["The run does not say what it was trained on."]
    names = [field.name for field in fields(SplitRecord) if field.name not in ("sha256", "counts")]
    rows = [[name, *(_count(getattr(split, of)) for of in names)] for name, split in splits.items()]
    return [
        table(["split", *(name.removeprefix("n_").replace("_", " ") for name in names)], rows),
        f"*Truncated*: longer than {facts.config.text.max_len} tokens. *Dropped*, *empty*: left out, as too long, or "
        "without a side or token to predict. *Duplicates* are kept. *In training*: so many of those *compared*.",
        "\n".join(f"- {cell_text(note)}" for note in facts.data.notes),
        "\n".join(f"- {cell_text(name)}: {n:,}" for name, n in facts.data.counts.items()),
    ]


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}" if isinstance(value, float) else f"{value:,}"


def write_report(facts: RunRecord) -> None:
    """Write report.md and plots/ into a run folder; what its record lacks is missed in words.

    Raises:
        CheckpointError: its records cannot be shown.
    """
    folder = RunFolder(facts.path)
    images = draw_all(facts)
    with readable_records(folder.path):
        markdown = report_markdown(facts, images)
    folder.plots.mkdir(exist_ok=True)
    for name, image in images.items():
        atomic_write_bytes(folder.plots / f"{name}.png", image)
    atomic_write_text(folder.report, markdown)


# --- plots ----------------------------------------------------------------------------------------------------------


CURVE: Any = {"color": ps.ACCENT, "linewidth": 1.6, "marker": "o", "markersize": 3.4, "clip_on": False}


def draw_all(facts: RunRecord) -> dict[str, bytes]:
    """Draw every plot a run has numbers for: PNG bytes by file name without suffix."""
    metric = facts.metric
    with ps.style():
        plots = facts.task_report.plots if facts.evaluation else {}
        drawn = {name: image for name, (draw, _) in plots.items() if (image := draw(facts.evaluation or Evaluation()))}
        if len(facts.training) > 1:
            drawn["loss"] = curve(facts, "loss", "Loss", "In training and on validation; lower is better")
        if metric.name != "loss" and any(row.valid for row in facts.validations):
            drawn["metric"] = curve(facts, metric.name, metric.title, metric.unit)
    return drawn


def curve(facts: RunRecord, name: str, title: str, subtitle: str) -> bytes:
    """Draw a metric of the validations over training, and mark the weights kept.

    Of the loss also that of each step, and its mean over 1/25 of the run.
    """
    figure, axes = ps.new_figure(3.7, title, subtitle, right=1.45)
    write, labels = facts.task_report.metric(name).write, list[Any]()
    axes.yaxis.set_major_formatter(lambda value, _: write(value))
    steps, losses = _series(facts.training, lambda row: row.loss)
    if name == "loss" and len(steps) > 1:
        n = 1 + len(losses) // 25
        means = np.convolve(losses, np.ones(n) / n, "valid")
        axes.plot(steps, losses, color=ps.SOFT, linewidth=0.7, alpha=0.7)
        axes.plot(steps[n - 1 :], means, color=ps.INK, linewidth=1.3)
        labels.append((steps[-1], means[-1], f"training {number(means[-1])}", ps.INK))
    if best := facts.best_validation():
        axes.axvline(best.step, color=ps.ACCENT, linewidth=0.8, linestyle=(0, (1, 2.5)))
    steps, values = _series(facts.validations, lambda row: (row.valid or {}).get(name))
    if len(steps):
        axes.plot(steps, values, **CURVE)
        labels.append((steps[-1], values[-1], f"validation {write(values[-1])}", ps.ACCENT))
    axes.set_xlim(left=0)
    axes.set_ylim(axes.get_ylim())  # the labels need the final limits
    axes.set_xlabel("optimizer steps")
    ps.thousands(axes.xaxis)
    ps.end_labels(axes, labels)
    return ps.png(figure)


def _series(rows: list[StepMetrics], value: Callable[[StepMetrics], float | None]) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps at which there is a finite value, and the values."""
    steps = np.array([row.step for row in rows], dtype=float)
    values = np.array([value(row) for row in rows], dtype=float)  # None becomes NaN
    there = np.isfinite(values)
    return steps[there], values[there]
