"""The sentences and tables of `report.md`, section by section.

It takes a run's facts and returns Markdown, to be read once from top to bottom, the result first; what is
unknown is said, not left out. Sentences that the model card says too are in `sentences.py`.
"""

from __future__ import annotations

from typing import Any

from glassformer.report.sentences import (
    SHOWN,
    WHAT,
    dataset_words,
    headline_sentence,
    model_sentence,
    use_commands,
    warnings_of,
)
from glassformer.runs.facts import Facts, RunFacts, interval_of
from glassformer.style.words import (
    BASELINE_NAMES,
    between,
    cell_text,
    code,
    duration,
    fenced,
    metric_words,
    number,
    percent,
    quoted,
    table,
)

MOST_CLASSES, MOST_VALIDATIONS = 30, 12
"""Longest tables of classes and validations."""

CAPTIONS = {
    "loss": "Loss. Grey: every update; black: smoothed; red: validation. The dotted line marks the weights kept.",
    "metric": "The validation metric, with the test score and its 95% interval beside it.",
    "learning_rate": "Learning rate, and the gradient norm before clipping.",
    "lengths": "Lengths in tokens.",
    "confusion": "What is taken for what.",
    "reliability": "Confidence against accuracy, with 95% intervals.",
    "bleu_by_length": "BLEU by length of the reference.",
}


_EXAMPLES = {
    "classify": "The first of the split, not chosen.",
    "translate": "The first of the split, not chosen.",
    "lm": "The model goes on from a prompt.",
}


def report_markdown(facts: RunFacts, plots: list[str]) -> str:
    """Return the whole report.

    Args:
        facts: of the run.
        plots: names of the plots that exist under plots/.
    """
    sections = [
        _opening(facts),
        _result(facts, plots),
        _training(facts, plots),
        _data(facts, plots),
        _use(facts),
        _reproduce(facts),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _opening(facts: RunFacts) -> str:
    took = f" in {duration(facts.seconds)}" if facts.seconds else ""
    device = facts.env.get("device_name") or facts.env.get("device")
    lines = [
        f"# {cell_text(facts.name)}",
        f"A {WHAT[facts.task]} trained on {dataset_words(facts)}{took}{f' on {cell_text(device)}' if device else ''}. "
        f"{headline_sentence(facts)}",
        f"*{model_sentence(facts)}*",
    ]
    if facts.config.get("note"):
        lines.append(quoted(facts.config["note"]))
    lines += [quoted(f"**Mind:** {warning}") for warning in warnings_of(facts)]
    return "\n\n".join(lines)


def _result(facts: RunFacts, plots: list[str]) -> str:
    evaluation = facts.evaluation
    if evaluation is None:
        return f"## Result\n\nNot evaluated yet. Run `glassformer evaluate {facts.path.name}`."
    baselines = evaluation.get("baselines") or {}
    names = [name for name in SHOWN[facts.task] if evaluation.get(name) is not None]
    spreads = [between(name, interval_of(name, evaluation)) for name in names]
    columns = {"this model": [_shown(name, evaluation) for name in names], "95% interval": spreads}
    columns |= {_baseline(key): [_shown(name, row) for name in names] for key, row in baselines.items()}
    if not any(spreads):
        del columns["95% interval"]
    rows = [[metric_words(name)[0], *cells] for name, *cells in zip(names, *columns.values(), strict=True)]
    parts = ["## Result", table(["", *columns], rows)]
    if baselines:
        settings = [
            f"{_baseline(key)}: {row['settings']}" for key, row in baselines.items() if row.get("settings")
        ]
        parts.append(
            "Beside it, on the same data. " + ". ".join(s[0].upper() + s[1:] for s in settings) + "."
        )
    signatures = [f"`{evaluation[key]}`" for key in ("bleu_signature", "chrf_signature") if key in evaluation]
    if signatures:
        beam = f"Decoded with beam {evaluation['beam_size']}. " if "beam_size" in evaluation else ""
        parts.append(f"{beam}sacreBLEU signatures: {', '.join(signatures)}.")
    per_class = evaluation.get("per_class") or []
    if 2 <= len(per_class) <= MOST_CLASSES:
        rows = [[r["label"], percent(r["precision"]), percent(r["recall"]), percent(r["f1"]), f"{r['support']:,}"]
                for r in per_class]  # fmt: skip
        parts.append(table(["class", "precision", "recall", "F1", "examples"], rows))
    parts += _images(("confusion", "reliability", "bleu_by_length"), plots)
    return "\n\n".join([*parts, *_examples(facts)])


def _examples(facts: RunFacts) -> list[str]:
    examples = (facts.evaluation or {}).get("examples") or []
    if not examples:
        return []
    if facts.task == "classify":
        rows = [
            [e["text"], e.get("truth", ""), f"{e['label']} ({percent(e['probability'])})"] for e in examples
        ]
        shown = table(["text", "true", "predicted"], rows, left=3)
    elif facts.task == "translate":
        rows = [[e["text"], e["translation"], e.get("reference", "")] for e in examples]
        shown = table(["source", "this model", "reference"], rows, left=3)
    else:
        shown = "\n\n".join(fenced(f"{e['prompt']}{e['text']}") for e in examples)
    return [
        "### Examples",
        _EXAMPLES[facts.task],
        shown,
    ]


def _training(facts: RunFacts, plots: list[str]) -> str:
    if not facts.training:
        return "## Training\n\nNo update was logged."
    last, train = facts.training[-1], facts.config.get("train", {})
    length = [f"{last['step']:,} updates, {last.get('epoch', 0):.2f} epochs"]
    if facts.seconds:
        length.append(f"{duration(facts.seconds)} with validation")
    sentences = [", ".join(length) + "."]
    speeds = sorted(row["tokens_per_s"] for row in facts.training if "tokens_per_s" in row)
    padding = [row["padding"] for row in facts.training if "padding" in row]
    if speeds and padding:
        share = percent(sum(padding) / len(padding))
        sentences.append(
            f"{speeds[len(speeds) // 2]:,.0f} tokens a second (median); padding was {share} of a batch."
        )
    if train:
        optimizer = {"adamw": "AdamW", "adam": "Adam", "sgd": "SGD"}.get(train.get("optimizer"), "")
        rate, schedule = number(float(train.get("lr", 0))), train.get("schedule")
        sentences.append(f"{optimizer}, peak rate {rate}, {schedule} schedule, seed {train.get('seed')}.")
    if train.get("label_smoothing"):
        smoothing = f"label smoothing of {train['label_smoothing']:g}"
        sentences.append(
            f"The training loss includes {smoothing} and dropout; the validation loss has neither."
        )
    best = facts.best_validation()
    if best:
        words, _, show = metric_words(facts.metric)
        value, averaged = facts.validation_score(best)
        whose = "the average of the last validations' weights, at" if averaged else "the weights of"
        sentences.append(f"Kept: {whose} update {best['step']:,} ({words} on validation: {show(value)}).")
    parts = ["## Training", " ".join(sentences), *_images(("loss", "metric", "learning_rate"), plots)]
    return "\n\n".join([*parts, *_validations(facts)])


def _validations(facts: RunFacts) -> list[str]:
    rows = facts.validations
    if not rows:
        return ["There was no validation."]
    every = -(-len(rows) // MOST_VALIDATIONS)
    chosen = rows[::-1][::every][::-1]  # counted from the end: the last is always there
    keys = [key for key in rows[-1]["valid"] if not key.startswith("averaged_")]
    body = [
        [
            f"{row['step']:,}",
            f"{row.get('epoch', 0):.2f}",
            duration(row["seconds"]) if "seconds" in row else "",
            *(_shown(key, row["valid"]) for key in keys),
        ]
        for row in chosen
    ]
    shown = table(["update", "epoch", "time", *(metric_words(key)[0] for key in keys)], body, left=0)
    return [shown, f"One validation in {every} is shown."] if every > 1 else [shown]


def _data(facts: RunFacts, plots: list[str]) -> str:
    splits = facts.data.get("splits", {})
    if not splits:
        return "## Data\n\nThe run does not say what it was trained on."
    body = [[name, *_split_cells(split)] for name, split in splits.items()]
    header = ["split", "examples", "tokens", "cut short", "tokens cut off", "left out", "unknown"]
    parts = ["## Data", table(header, body)]
    parts.append(
        "*Cut short*: longer than the limit of "
        f"{facts.config.get('text', {}).get('max_len', '?')} tokens. *Unknown*: tokens the vocabulary lacks. "
        "The tokenizer saw the training split alone."
    )
    parts += _images(("lengths",), plots)
    notes = facts.data.get("notes") or []
    if notes:
        parts.append("\n".join(f"- {cell_text(note)}" for note in notes))
    return "\n\n".join(parts)


def _split_cells(split: Facts) -> list[str]:
    """Return the counts of a split; what was not counted is a dash, not a zero."""

    def count(key: str) -> str:
        return f"{split[key]:,}" if key in split else "–"

    n = max(split.get("n", 0), 1)
    truncated = (
        f"{split['n_truncated']:,} ({percent(split['n_truncated'] / n)})" if "n_truncated" in split else "–"
    )
    unknown = percent(split["unknown_rate"], 2) if "unknown_rate" in split else "–"
    return [count("n"), count("n_tokens"), truncated, count("n_tokens_cut"), count("n_dropped"), unknown]


def _use(facts: RunFacts) -> str:
    return "## Use it\n\nFrom the folder that holds this one:\n\n" + use_commands(facts, facts.path.name)


def _reproduce(facts: RunFacts) -> str:
    env, data = facts.env, facts.data
    parts = [
        "## Reproduce it",
        fenced(f"glassformer train {facts.path.name}/config.toml --out another-run", "sh"),
    ]
    if env.get("command"):
        parts.append(f"It was started with {code(env['command'])}.")
    versions = ", ".join(f"{name} {version}" for name, version in (env.get("versions") or {}).items())
    rows: list[list[Any]] = [
        ["versions", versions],
        *([name, env.get(name)] for name in ("python", "platform", "precision", "threads", "started")),
        ["device", env.get("device_name") or env.get("device")],
        ["tokenizer", data.get("tokenizer", {}).get("sha256")],
        *([f"data: {name}", f"sha256 {sha}"] for name, sha in list((data.get("hashes") or {}).items())[:20]),
    ]
    known = [row for row in rows if row[1]]
    if known:
        parts.append(table(["", ""], known, left=2))
    parts.append(
        "The same seed, machine and versions give the same run on a CPU; others give one that is close."
    )
    return "\n\n".join(parts)


def _baseline(key: str) -> str:
    return BASELINE_NAMES.get(key, cell_text(key.replace("_", " ")))


def _images(wanted: tuple[str, ...], plots: list[str]) -> list[str]:
    return [
        f"![{name.replace('_', ' ')}](plots/{name}.png)\n\n*{CAPTIONS[name]}*"
        for name in wanted
        if name in plots
    ]


def _shown(name: str, scores: Facts) -> str:
    """Return a score as it is written, or nothing where there is none."""
    return metric_words(name)[2](scores[name]) if scores.get(name) is not None else ""
