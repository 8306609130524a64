"""The sentences and tables of `report.md`, section by section.

It takes a run's facts and returns Markdown, to be read once from top to bottom, the result first; what is
unknown is said, not left out. Sentences that the model card says too are in `sentences.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from glassformer.evaluate.intervals import FEW, wilson_interval
from glassformer.report import sentences
from glassformer.report.run_record import RunRecord
from glassformer.runs.folder import PLOTS, RunFolder
from glassformer.runs.records import Evaluation, SplitRecord
from glassformer.utils.formatting import (
    cell_text,
    code,
    duration,
    fenced,
    glassformer_command,
    number,
    percent,
    quoted,
    table,
)

MOST_VALIDATIONS = 12
"""Longest table of validations."""

CAPTIONS = {
    "loss": "Loss. Grey: every step; black: smoothed; red: validation. The dotted line marks the weights kept.",
    "metric": "The validation metric, with the test score and its 95% interval beside it.",
    "learning_rate": "Learning rate, and the gradient norm before clipping.",
    "lengths": "Lengths in tokens.",
}
"""Of the plots every run has; those of its scores are the task's."""

OPTIMIZERS = {"adamw": "AdamW", "adam": "Adam", "sgd": "SGD", "muon": "Muon and AdamW"}


def report_markdown(facts: RunRecord, plots: list[str]) -> str:
    """Return the whole report of a run that has `plots` of these names."""
    parts = [
        *_opening(facts),
        *("## Result", *_result(facts, plots)),
        *("## Training", *_training(facts, plots)),
        *("## Data", *_data(facts, plots)),
        *("## Use it", "From the folder that holds this one:", sentences.use(facts, facts.path.name)),
        *("## Reproduce it", *_reproduce(facts)),
    ]
    return "\n\n".join(parts) + "\n"


def _images(facts: RunRecord, plots: list[str], names: Iterable[str]) -> list[str]:
    """Return pictures with their captions, those of them that exist."""
    captions, there = {**CAPTIONS, **facts.task_report.captions}, [name for name in names if name in plots]
    return [f"![{name.replace('_', ' ')}]({PLOTS}/{name}.png)\n\n*{captions[name]}*" for name in there]


def _opening(facts: RunRecord) -> list[str]:
    device = facts.env.get("device_name") or facts.env.get("device")
    on = f" on {cell_text(device)}" if device else ""
    return [
        f"# {cell_text(facts.name)}",
        f"A {facts.task_report.model_name} trained on {sentences.dataset(facts)}{on}. {sentences.headline(facts)}",
        f"*{sentences.model(facts)}*",
        *([quoted(facts.config.note)] if facts.config.note else []),
        *sentences.warnings(facts),
    ]


def _result(facts: RunRecord, plots: list[str]) -> list[str]:
    evaluation, task_report = facts.evaluation, facts.task_report
    if evaluation is None:
        return [f"Not evaluated yet. Run {code(glassformer_command('train', '--resume', facts.path.name))}."]
    names, rivals = task_report.names(evaluation), evaluation.baselines
    scores = [task_report.score(evaluation, name) for name in names]
    called = {key: task_report.baselines.get(key, cell_text(key.replace("_", " "))) for key in rivals}
    columns = {"this model": [score.text for score in scores]}
    if any(score.interval for score in scores):
        columns["95% interval"] = [score.metric.between(score.interval) for score in scores]
    for key, row in rivals.items():
        columns[called[key]] = [task_report.score(Evaluation(scores=row), name).text for name in names]
    rows = [[score.metric.title, *cells] for score, *cells in zip(scores, *columns.values(), strict=True)]
    parts = [table(["", *columns], rows)]
    settings = [f"{called[key]}: {row['settings']}" for key, row in rivals.items() if row.get("settings")]
    if settings:
        parts.append(f"Beside it, on the same data. {'. '.join(s[0].upper() + s[1:] for s in settings)}.")
    parts += [*task_report.details(evaluation), *_images(facts, plots, task_report.captions)]
    if evaluation.examples:
        parts += ["### Examples", task_report.examples_note, task_report.example_table(evaluation.examples)]
    return parts


def _training(facts: RunRecord, plots: list[str]) -> list[str]:
    if not facts.training:
        return ["No step was logged."]
    images = _images(facts, plots, ("loss", "metric", "learning_rate"))
    return [" ".join(_how_it_went(facts)), *images, *_validations(facts)]


def _how_it_went(facts: RunRecord) -> list[str]:
    """Return sentences: how long, how fast, with what, and which weights were kept."""
    train, took = facts.config.train, f", {duration(facts.seconds)} with validation" if facts.seconds else ""
    lines = [f"{facts.steps:,} steps, {facts.training[-1].epoch:.2f} epochs{took}."]
    speeds, padding = sorted(facts.logged("tokens_per_s")), facts.logged("padding")
    if speeds and padding:
        speed, share = speeds[len(speeds) // 2], percent(sum(padding) / len(padding))
        lines.append(f"{speed:,.0f} tokens per second (median); padding was {share} of a batch.")
    optimizer = OPTIMIZERS.get(train.optimizer, train.optimizer)
    lines.append(f"{optimizer}, peak rate {number(train.lr)}, {train.schedule} schedule, seed {train.seed}.")
    if train.label_smoothing:
        more = f"label smoothing of {train.label_smoothing:g} and dropout"
        lines.append(f"The training loss includes {more}; the validation loss has neither.")
    if best := facts.best_validation():
        value = facts.validation_score(best)
        score = f"{facts.metric.title} on validation: {facts.metric.write(value)}{_interval(facts, value)}"
        lines.append(f"Kept: the weights of step {best.step:,} ({score}).")
    return lines


def _interval(facts: RunRecord, share: float) -> str:
    """Return the interval of a validation score that is a proportion of few examples."""
    n = facts.data.splits.get("valid", SplitRecord()).n
    if not 0 < n < FEW or not facts.metric.write(0.5).endswith("%"):
        return ""
    return f" of {n} examples, 95% interval {facts.metric.between(wilson_interval(round(share * n), n))}"


def _validations(facts: RunRecord) -> list[str]:
    rows = facts.validations
    if not rows:
        return ["There was no validation."]
    every = -(-len(rows) // MOST_VALIDATIONS)
    metrics = [facts.task_report.metric(key) for key in rows[-1].valid or {}]
    body = []
    for row in rows[::-1][::every][::-1]:  # counted from the end: the last is always there
        scores = [(metric, (row.valid or {}).get(metric.name)) for metric in metrics]
        cells = ["" if value is None else metric.write(value) for metric, value in scores]
        took = "" if math.isnan(row.seconds) else duration(row.seconds)
        body.append([f"{row.step:,}", f"{row.epoch:.2f}", took, *cells])
    shown = table(["step", "epoch", "time", *(metric.title for metric in metrics)], body, left=0)
    return [shown, f"One validation in {every} is shown."] if every > 1 else [shown]


def _data(facts: RunRecord, plots: list[str]) -> list[str]:
    if not facts.data.splits:
        return ["The run does not say what it was trained on."]
    header = ["split", "examples", "tokens", "cut short", "tokens cut off", "left out", "empty", "twice"]
    header += ["also in training", "unknown", "texts with unknown"]
    spelled = ", which are read by how they are spelled" if facts.data.tokenizer.get("has_ngrams") else ""
    return [
        table(header, [[name, *_split_cells(split)] for name, split in facts.data.splits.items()]),
        f"*Cut short*: longer than the limit of {facts.config.text.max_len} tokens. *Left out*: pairs too long. "
        "*Empty*: pairs with an empty side, or texts without a token to predict, left out of training. "
        "*Twice*: examples equal to one before, kept. *Also in training*: texts (of running text, long lines) that are "
        f"in the training part too. *Unknown*: tokens the vocabulary lacks{spelled}; of the test split only the texts "
        "were looked at before it was scored. The tokenizer saw the training split alone.",
        *_images(facts, plots, ("lengths",)),
        *(
            ["\n".join(f"- {cell_text(note)}" for note in notes)]
            if (notes := [*facts.data.notes, *_met(facts)])
            else []
        ),
    ]


def _met(facts: RunRecord) -> list[str]:
    """Return what was met in the files, with its count."""
    return [f"{name}: {n:,}" for name, n in facts.data.counts.items()]


def _split_cells(split: SplitRecord) -> list[str]:
    """Return the counts of a split; what was not counted is a dash, not a zero."""
    counted = (split.n, split.n_tokens, split.n_truncated, split.n_tokens_cut, split.n_dropped)
    counted += (split.n_empty, split.n_duplicates, split.n_in_training)
    cells = ["–" if n is None else f"{n:,}" for n in counted]
    if split.n_truncated is not None:
        cells[2] += f" ({percent(split.n_truncated / max(split.n, 1))})"
    texts = "–" if split.n_texts_unknown is None else f"{split.n_texts_unknown:,}"
    return [*cells, "–" if split.unknown_rate is None else percent(split.unknown_rate, 2), texts]


def _reproduce(facts: RunRecord) -> list[str]:
    env, config = facts.env, RunFolder(facts.path.name).config
    versions = ", ".join(f"{name} {version}" for name, version in (env.get("versions") or {}).items())
    rows: list[list[Any]] = [
        ["versions", versions],
        *([name, env.get(name)] for name in ("python", "platform", "precision", "threads", "started")),
        ["device", env.get("device_name") or env.get("device")],
        ["tokenizer", facts.data.tokenizer.get("sha256")],
        *([f"data: {name}", f"sha256 {sha}"] for name, sha in list(facts.data.hashes.items())[:20]),
    ]
    known = [row for row in rows if row[1]]
    return [
        fenced(glassformer_command("train", config.as_posix(), "--out", "another-run"), "sh"),
        *([f"It was started with {code(env['command'])}."] if env.get("command") else []),
        *([table(["", ""], known, left=2)] if known else []),
        "The same number of steps, seed, versions, processor and number of threads give the same run on a CPU; others "
        "give one that is close. Without `--threads` or `OMP_NUM_THREADS` that number follows the load of the machine.",
    ]
