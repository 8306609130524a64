"""The model card, `model/README.md`: what these weights are, what they are good for, and how to load them.

It must make sense to someone who has the `model/` folder alone, so it repeats the score and the limits that
the report holds in full.
"""

from __future__ import annotations

from pathlib import Path
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
from glassformer.runs.facts import RunFacts, load_facts
from glassformer.style.words import cell_text, code, duration, metric_words, percent, quoted

FILES = (
    ("config.json", "the architecture, the text settings and the hash of the tokenizer"),
    ("model.safetensors", "the weights; safetensors, no pickle"),
    ("tokenizer.json", "the tokenizer, trained on the training split alone"),
    ("manifest.json", "sizes and SHA-256 of these files; loading checks them"),
)

LIMITS = {
    "classify": "It knows the classes below and nothing else: any text gets one of them, and a text unlike its "
    "training data may get one with unearned confidence.",
    "translate": "It translates sentences of the kind it was trained on. Others may come out fluent and wrong.",
    "lm": "It continues text in the manner of its training text. It knows no facts and follows no instructions.",
}


def model_card(run_dir: Path, model: dict[str, Any]) -> str:
    """Return the card of a run's model as Markdown.

    Args:
        run_dir: the run folder, with its config.toml and, where they exist, data.json, metrics.jsonl and
            evaluation.json. Before the evaluation the card says that there is no test score yet.
        model: what `model/config.json` says; its label_names are listed.

    Raises:
        CheckpointError: not a run folder, or one of its files is damaged.
    """
    facts = load_facts(run_dir)
    took = f" in {duration(facts.seconds)}" if facts.seconds else ""
    parts = [
        f"# {cell_text(facts.name)}",
        f"A {WHAT[facts.task]} trained from scratch with Glassformer on {dataset_words(facts)}{took}. "
        f"{model_sentence(facts)}",
        "## Score",
        headline_sentence(facts),
        *_scores(facts),
        *(quoted(f"**Mind:** {warning}") for warning in warnings_of(facts)),
        "## Limits",
        LIMITS[facts.task],
        *_truncation(facts),
    ]
    labels = model.get("label_names")
    if labels:
        shown = ", ".join(code(label) for label in labels[:50])
        parts += ["## Classes", shown + (f" and {len(labels) - 50} more" if len(labels) > 50 else "")]
    parts += ["## Use it", use_commands(facts, "path/to/run")]
    parts += ["## Files", "\n".join(f"- `{name}`: {what}" for name, what in FILES)]
    return "\n\n".join(parts) + "\n"


def _scores(facts: RunFacts) -> list[str]:
    """Return the test scores in a list; before a test, the validation that chose the weights."""
    if facts.evaluation:
        shown = [name for name in SHOWN[facts.task] if facts.evaluation.get(name) is not None]
        return [
            "\n".join(f"- {metric_words(n)[0]}: {metric_words(n)[2](facts.evaluation[n])}" for n in shown)
        ]
    best = facts.best_validation()
    if best is None:
        return []
    words, _, show = metric_words(facts.metric)
    return [f"On validation, at update {best['step']:,}: {words} {show(facts.validation_score(best)[0])}."]


def _truncation(facts: RunFacts) -> list[str]:
    limit = facts.config.get("text", {}).get("max_len")
    train = facts.data.get("splits", {}).get("train", {})
    if not limit:
        return []
    share = train.get("n_truncated", 0) / max(train.get("n", 1), 1)
    cut = f"; {percent(share)} of the training texts were longer" if share else ""
    return [f"It reads texts up to {limit:,} tokens{cut}."]
