"""The sentences and tables of `report.md`, section by section.

It takes a run's facts and returns Markdown, to be read once from top to bottom, the result first; what is
unknown is said, not left out. Sentences that the model card says too are in `sentences.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from glassformer.report.facts import RunFacts
from glassformer.report.sentences import (
    dataset_words,
    headline_sentence,
    model_sentence,
    use_commands,
    warnings_of,
)
from glassformer.runs.folder import PLOTS, RunFolder
from glassformer.runs.values import Evaluation, SplitFacts
from glassformer.style.words import cell_text, code, duration, fenced, number, percent, quoted, table

MOST_VALIDATIONS = 12
"""Longest table of validations."""

CAPTIONS = {
    "loss": "Loss. Grey: every update; black: smoothed; red: validation. The dotted line marks the weights kept.",
    "metric": "The validation metric, with the test score and its 95% interval beside it.",
    "learning_rate": "Learning rate, and the gradient norm before clipping.",
    "lengths": "Lengths in tokens.",
}
"""Of the plots every run has; those of its scores are the task's."""

OPTIMIZERS = {"adamw": "AdamW", "adam": "Adam", "sgd": "SGD"}


def report_markdown(facts: RunFacts, plots: list[str]) -> str:
    """Return the whole report.

    Args:
        facts: of the run.
        plots: names of the plots that exist.
    """
    shown = _Images(facts, plots)
    sections = [
        _opening(facts),
        _result(facts, shown),
        _training(facts, shown),
        _data(facts, shown),
        _use(facts),
        _reproduce(facts),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


class _Images:
    """Pictures with their captions, those of them that exist."""

    def __init__(self, facts: RunFacts, there: list[str]) -> None:
        self.captions, self.there = {**CAPTIONS, **facts.telling.captions}, there

    def __call__(self, names: Iterable[str]) -> list[str]:
        return [
            f"![{name.replace('_', ' ')}]({PLOTS}/{name}.png)\n\n*{self.captions[name]}*"
            for name in names
            if name in self.there
        ]


def _opening(facts: RunFacts) -> str:
    took = f" in {duration(facts.seconds)}" if facts.seconds else ""
    device = facts.env.get("device_name") or facts.env.get("device")
    on = f" on {cell_text(device)}" if device else ""
    lines = [
        f"# {cell_text(facts.name)}",
        f"A {facts.telling.what} trained on {dataset_words(facts)}{took}{on}. {headline_sentence(facts)}",
        f"*{model_sentence(facts)}*",
    ]
    if facts.config.note:
        lines.append(quoted(facts.config.note))
    lines += [quoted(f"**Mind:** {warning}") for warning in warnings_of(facts)]
    return "\n\n".join(lines)


def _result(facts: RunFacts, images: _Images) -> str:
    evaluation, telling = facts.evaluation, facts.telling
    if evaluation is None:
        return f"## Result\n\nNot evaluated yet. Run `glassformer train --resume {facts.path.name}`."
    names = telling.names(evaluation)
    scores = [telling.score(evaluation, name) for name in names]
    called = {
        key: telling.baselines.get(key, cell_text(key.replace("_", " "))) for key in evaluation.baselines
    }
    columns = {"this model": [score.text for score in scores]}
    if any(score.interval for score in scores):
        columns["95% interval"] = [score.metric.between(score.interval) for score in scores]
    for key, row in evaluation.baselines.items():
        columns[called[key]] = [telling.score(Evaluation(scores=row), name).text for name in names]
    rows = [[score.metric.title, *cells] for score, *cells in zip(scores, *columns.values(), strict=True)]
    parts = ["## Result", table(["", *columns], rows)]
    settings = [
        f"{called[key]}: {row['settings']}"
        for key, row in evaluation.baselines.items()
        if row.get("settings")
    ]
    if settings:
        parts.append(
            "Beside it, on the same data. " + ". ".join(s[0].upper() + s[1:] for s in settings) + "."
        )
    parts += [*telling.details(evaluation), *images(telling.captions)]
    if evaluation.examples:
        parts += ["### Examples", telling.examples_note, telling.example_table(evaluation.examples)]
    return "\n\n".join(parts)


def _training(facts: RunFacts, images: _Images) -> str:
    if not facts.training:
        return "## Training\n\nNo update was logged."
    parts = ["## Training", " ".join(_how_it_went(facts)), *images(("loss", "metric", "learning_rate"))]
    return "\n\n".join([*parts, *_validations(facts)])


def _how_it_went(facts: RunFacts) -> list[str]:
    """Return sentences: how long, how fast, with what, and which weights were kept."""
    train, took = facts.config.train, f", {duration(facts.seconds)} with validation" if facts.seconds else ""
    sentences = [f"{facts.steps:,} updates, {facts.training[-1].epoch or 0:.2f} epochs{took}."]
    speeds = sorted(row.tokens_per_s for row in facts.training if row.tokens_per_s is not None)
    padding = [row.padding for row in facts.training if row.padding is not None]
    if speeds and padding:
        share = percent(sum(padding) / len(padding))
        sentences.append(
            f"{speeds[len(speeds) // 2]:,.0f} tokens a second (median); padding was {share} of a batch."
        )
    sentences.append(
        f"{OPTIMIZERS.get(train.optimizer, train.optimizer)}, peak rate {number(train.lr)}, {train.schedule} "
        f"schedule, seed {train.seed}."
    )
    if train.label_smoothing:
        sentences.append(
            f"The training loss includes label smoothing of {train.label_smoothing:g} and dropout; the "
            "validation loss has neither."
        )
    best = facts.best_validation()
    if best:
        value, averaged = facts.validation_score(best)
        whose = "the average of the last validations' weights, at" if averaged else "the weights of"
        told = f"{facts.metric.title} on validation: {facts.metric.write(value)}"
        sentences.append(f"Kept: {whose} update {best.step:,} ({told}).")
    return sentences


def _validations(facts: RunFacts) -> list[str]:
    rows = facts.validations
    if not rows:
        return ["There was no validation."]
    every = -(-len(rows) // MOST_VALIDATIONS)
    chosen = rows[::-1][::every][::-1]  # counted from the end: the last is always there
    metrics = [facts.telling.metric(key) for key in rows[-1].valid or {} if not key.startswith("averaged_")]

    def cells(scores: dict[str, float]) -> list[str]:
        return [m.write(scores[m.name]) if scores.get(m.name) is not None else "" for m in metrics]

    body = [
        [
            f"{row.step:,}",
            f"{row.epoch or 0:.2f}",
            duration(row.seconds) if row.seconds is not None else "",
            *cells(row.valid or {}),
        ]
        for row in chosen
    ]
    shown = table(["update", "epoch", "time", *(m.title for m in metrics)], body, left=0)
    return [shown, f"One validation in {every} is shown."] if every > 1 else [shown]


def _data(facts: RunFacts, images: _Images) -> str:
    if not facts.data.splits:
        return "## Data\n\nThe run does not say what it was trained on."
    body = [[name, *_split_cells(split)] for name, split in facts.data.splits.items()]
    header = ["split", "examples", "tokens", "cut short", "tokens cut off", "left out", "unknown"]
    parts = ["## Data", table(header, body)]
    parts.append(
        f"*Cut short*: longer than the limit of {facts.config.text.max_len} tokens. *Unknown*: tokens the "
        "vocabulary lacks. The tokenizer saw the training split alone."
    )
    parts += images(("lengths",))
    if facts.data.notes:
        parts.append("\n".join(f"- {cell_text(note)}" for note in facts.data.notes))
    return "\n\n".join(parts)


def _split_cells(split: SplitFacts) -> list[str]:
    """Return the counts of a split; what was not counted is a dash, not a zero."""

    def count(n: int | None) -> str:
        return "–" if n is None else f"{n:,}"

    cut = count(split.n_truncated)
    if split.n_truncated is not None:
        cut += f" ({percent(split.n_truncated / max(split.n, 1))})"
    unknown = "–" if split.unknown_rate is None else percent(split.unknown_rate, 2)
    return [
        count(split.n),
        count(split.n_tokens),
        cut,
        count(split.n_tokens_cut),
        count(split.n_dropped),
        unknown,
    ]


def _use(facts: RunFacts) -> str:
    return "## Use it\n\nFrom the folder that holds this one:\n\n" + use_commands(facts, facts.path.name)


def _reproduce(facts: RunFacts) -> str:
    env, config = facts.env, RunFolder(facts.path.name).config
    parts = [
        "## Reproduce it",
        fenced(f"glassformer train {config.as_posix()} --out another-run", "sh"),
    ]
    if env.get("command"):
        parts.append(f"It was started with {code(env['command'])}.")
    versions = ", ".join(f"{name} {version}" for name, version in (env.get("versions") or {}).items())
    rows: list[list[Any]] = [
        ["versions", versions],
        *([name, env.get(name)] for name in ("python", "platform", "precision", "threads", "started")),
        ["device", env.get("device_name") or env.get("device")],
        ["tokenizer", facts.data.tokenizer.get("sha256")],
        *([f"data: {name}", f"sha256 {sha}"] for name, sha in list(facts.data.hashes.items())[:20]),
    ]
    known = [row for row in rows if row[1]]
    if known:
        parts.append(table(["", ""], known, left=2))
    parts.append(
        "The same seed, machine and versions give the same run on a CPU; others give one that is close."
    )
    return "\n\n".join(parts)
