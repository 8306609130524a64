"""The sentences and tables of `report.md`, section by section, and those that the model card shares.

How a single number is written is decided in `utils/formatting.py`; nothing here reads or writes files.

It takes a run's facts and returns Markdown, to be read once from top to bottom, the result first; what is
unknown is said, not left out. Sentences that the model card says too are in `sentences.py`.
"""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter
from collections.abc import Iterable
from typing import Any

from glassformer.evaluate.significance import FEW, wilson_interval
from glassformer.report.run_record import RunRecord
from glassformer.runs.folder import PLOTS, RunFolder
from glassformer.runs.records import Evaluation, SplitRecord
from glassformer.utils.formatting import (
    cell_text,
    code,
    counted,
    duration,
    fenced,
    glassformer_command,
    number,
    percent,
    quoted,
    table,
)

UNCLEAN = "The test split was used as validation, so the weights were chosen on it: no clean test score."
NO_TEST = "There was no test split: these scores are on the validation split, which also chose the weights."


def headline(facts: RunRecord) -> str:
    """Return the score to quote in one sentence, with its interval, split and size; or that there is none."""
    evaluation, (metric, value, interval) = facts.evaluation, facts.score
    if evaluation is None:
        return "It was not evaluated on a test split."
    if value is None:
        return "Its evaluation holds no score."
    spread = f" (95% interval {metric.between(interval)})" if interval else ""
    over = f"over {counted(evaluation.n, facts.task_report.unit)}"
    if shared := evaluation.value("also_in_training"):
        n = evaluation.value("compared_with_training") or 0
        what = "of them" if n == evaluation.n else f"of {n:,} texts or lines"
        over += f", {shared:,} {what} also in training"
    return f"{metric.title} on the {evaluation.split} split: **{metric.write(value)}**{spread}, {over}."


def model(facts: RunRecord) -> str:
    """Return what the model is: family, layers, width, heads, parameters, tokenizer."""
    model, tokenizer, family = facts.config.model, facts.data.tokenizer, facts.task_report.family
    n = model.n_layers
    parts = [f"{counted(n, 'layers')}, d_model {model.d_model}, {model.n_heads} heads"]
    if facts.n_parameters:
        parts.append(f"{facts.n_parameters:,} parameters{' in all' if model.ensemble_size > 1 else ''}")
    if tokenizer:
        parts.append(f"{tokenizer.get('kind')} tokenizer of {tokenizer.get('vocab_size', 0):,} entries")
        if tokenizer.get("has_ngrams"):
            parts.append("words read with their n-grams")
    what = f"{family[0].upper()}{family[1:]} Transformer" if family else "Transformer"
    if model.ensemble_size > 1:
        averaged = facts.task_report.averaged[1]
        what = f"An ensemble of {model.ensemble_size}, averaging {averaged}. Each is one {what[0].lower()}{what[1:]}"
    begin = facts.config.train.init_from
    parts.append(f"trained from {f'the weights of {code(begin)}' if begin else 'random weights'}")
    return f"{what}, {'; '.join(parts)}."


def dataset(facts: RunRecord) -> str:
    """Return what it was trained on and how long that took, for a sentence."""
    data, took = facts.config.data, f" in {duration(facts.seconds)}" if facts.seconds else ""
    match data.dataset:
        case "multi30k":
            return f"Multi30k, {data.multi30k.src_lang} → {data.multi30k.tgt_lang}{took}"
        case "files":
            file = data.files.train_file or data.files.src_file or facts.data.source
            return f"own data ({code(file)}){took}" if file else f"own data{took}"
        case name:
            return {"imdb": "IMDB", "imdb-texts": "IMDB without labels", "shakespeare": "tiny Shakespeare"}.get(
                name, name
            ) + took


def cautions(facts: RunRecord) -> list[str]:
    """Return what a reader must know before believing the score: of the data, and of the evaluation."""
    found = map(str, facts.data.findings)
    unclean = [UNCLEAN] if facts.config.data.use_test_as_validation else []
    return [*unclean, *(f"{each[0].upper()}{each[1:]}." for each in found), *caveats(facts)]


def caveats(facts: RunRecord) -> list[str]:
    """Return what the evaluation itself says against its score; nothing before there is one."""
    evaluation = facts.evaluation
    if evaluation is None:
        return []
    caveats_found = [NO_TEST] if evaluation.split != "test" else []
    return caveats_found + [
        *_changed_threads(facts),
        *_few_scored(facts),
        *facts.task_report.warnings(evaluation),
        *(evaluation.scores.get("notes") or []),
    ]


def warnings(facts: RunRecord) -> list[str]:
    """Return `cautions` as quotations."""
    return [quoted(f"**Mind:** {caution}") for caution in cautions(facts)]


def _changed_threads(facts: RunRecord) -> list[str]:
    """Return that the number of threads changed beside other programs, since the last bits depend on it."""
    counts = Counter(row.threads for row in facts.training if row.threads)
    steps = ", ".join(f"{n} in {steps:,} steps" for n, steps in sorted(counts.items(), reverse=True))
    again = "the same run again may differ in its last bits; `--threads` fixes the number"
    return [f"The number of threads changed beside other programs ({steps}): {again}."] if len(counts) > 1 else []


def _few_scored(facts: RunRecord) -> list[str]:
    """Return a warning about the wide interval if few examples were scored."""
    evaluation, (metric, value, interval) = facts.evaluation, facts.score
    if evaluation is None or value is None or not 0 < evaluation.n < FEW or not interval:
        return []
    n, unit = evaluation.n, facts.task_report.unit
    few = f"Only {counted(n, unit)} {'was' if n == 1 else 'were'} scored"
    low, high = map(metric.write, interval)
    return [f"{few}: {metric.title} may be anything from {low} to {high}."]


def example_command(facts: RunRecord, run: str) -> str:
    """Return a line for the shell that uses the run, also where each text is a pair."""
    run = shlex.quote(run)
    if facts.config.data.files.pair_column is not None:
        return f'glassformer predict {run} "the first text" --pair "the second text" --json'
    return f"glassformer predict {run} {facts.task_report.example_text}"


def use(facts: RunRecord, run: str) -> str:
    """Return how to predict with and evaluate the run, in the shell and in Python."""
    predict, pairs = example_command(facts, run), facts.config.data.files.pair_column is not None
    on_valid = ("--split", "valid") if facts.evaluation and facts.evaluation.split == "valid" else ()
    shell = f"{predict}\n{glassformer_command('evaluate', run, *on_valid, '--json')}"
    given = '("…", "…")' if pairs else '"…"'
    literal = json.dumps(run, ensure_ascii=False)  # a string of Python too
    python = f"import glassformer\n\nrun = glassformer.load({literal})\nprint(run.predict({given}))"
    parts = [fenced(shell, "sh"), fenced(python, "python")]
    if facts.config.data.dataset == "files":
        parts.append(
            "`evaluate` reads the run's data again, by the paths that the training was given: a relative one from the "
            "folder in which the training was started. Or name test files."
        )
    return "\n\n".join(parts)


MOST_VALIDATIONS = 12
"""Longest table of validations."""

CAPTIONS = {
    "loss": "Grey: every step; black: the mean of the last 1/25 of the run; red: validation. Dotted: the weights kept.",
    "metric": "The validation metric, with the score of the evaluation and its 95% interval beside it.",
}
"""Of the plots every run has; those of its scores are the task's."""

OPTIMIZERS = {"adamw": "AdamW", "adam": "Adam", "sgd": "SGD", "muon": "Muon and AdamW"}


def report_markdown(facts: RunRecord, plots: list[str]) -> str:
    """Return the whole report of a run that has `plots` of these names."""
    parts = [
        *_opening(facts),
        *("## Result", *_result(facts, plots)),
        *("## Training", *_training(facts, plots)),
        *("## Data", *_data(facts)),
        *("## Use it", "From the folder that holds this one:", use(facts, facts.path.name)),
        *("## Reproduce it", *_reproduce(facts)),
    ]
    return "\n\n".join(parts) + "\n"


def _images(facts: RunRecord, plots: list[str], names: Iterable[str]) -> list[str]:
    """Return pictures with their captions, those of them that exist."""
    captions = CAPTIONS | {name: caption for name, (_, caption) in facts.task_report.plots.items()}
    return [f"![{n.replace('_', ' ')}]({PLOTS}/{n}.png)\n\n*{captions[n]}*" for n in names if n in plots]


def _opening(facts: RunRecord) -> list[str]:
    device = facts.env.get("device_name") or facts.env.get("device")
    on = f" on {cell_text(device)}" if device else ""
    return [
        f"# {cell_text(facts.name)}",
        f"A {facts.task_report.model_name} trained on {dataset(facts)}{on}. {headline(facts)}",
        f"*{model(facts)}*",
        *([quoted(facts.config.note)] if facts.config.note else []),
        *warnings(facts),
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
    parts += [*task_report.details(evaluation), *_images(facts, plots, task_report.plots)]
    if evaluation.examples:
        parts += ["### Examples", task_report.examples_note, task_report.example_table(evaluation.examples)]
    return parts


def _training(facts: RunRecord, plots: list[str]) -> list[str]:
    if not facts.training:
        return ["No step was logged."]
    images = _images(facts, plots, ("loss", "metric"))
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
    elif (value := facts.initial_score) is not None:
        score = f"{facts.metric.title} on validation: {facts.metric.write(value)}{_interval(facts, value)}"
        lines.append(f"Kept: the weights before the first step ({score}).")
    return lines


PROPORTIONS = ("accuracy", "exact_match")
"""Scores that are the share of examples that are right; an F1 score is none."""


def _interval(facts: RunRecord, share: float) -> str:
    """Return the interval of a validation score that is a proportion of few examples."""
    n = facts.data.splits.get("valid", SplitRecord()).n
    if not 0 < n < FEW or facts.metric.name not in PROPORTIONS:
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


def _data(facts: RunRecord) -> list[str]:
    if not facts.data.splits:
        return ["The run does not say what it was trained on."]
    header = ["split", "examples", "tokens", "cut short", "tokens cut off", "left out", "empty", "twice"]
    header += ["also in training", "unknown", "texts with unknown"]
    spelled = ", which are read by how they are spelled" if facts.data.tokenizer.get("has_ngrams") else ""
    tokenizer = "The tokenizer saw the training split alone."
    if facts.config.train.init_from:
        tokenizer = "The tokenizer is that of the pretrained run."
    return [
        table(header, [[name, *_split_cells(split)] for name, split in facts.data.splits.items()]),
        f"*Cut short*: longer than the limit of {facts.config.text.max_len} tokens. *Left out*: pairs too long. "
        "*Empty*: pairs with an empty side, or texts without a token to predict, left out of training. "
        "*Twice*: examples equal to one before, kept. *Also in training*: texts (of running text, long lines) that are "
        f"in the training part too. *Unknown*: tokens the vocabulary lacks{spelled}; of the test split only the texts "
        f"were looked at before it was scored. {tokenizer}",
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
        "From the folder of the first training, with the same versions, processor and number of threads, which follows "
        "the load of the machine without `--threads` or `OMP_NUM_THREADS`, it gives the same run on a CPU.",
    ]
