"""A run in the sentences that its report and its model card share: what it is, its score, what to mind.

How a single number is written is decided in `words.py`; nothing here reads or writes files.
"""

from __future__ import annotations

from glassformer.runs.facts import RunFacts, headline
from glassformer.style.words import between, code, fenced, metric_words, percent

SHOWN = {
    "classify": ("accuracy", "macro_f1", "roc_auc", "ece", "log_loss"),
    "translate": ("bleu", "chrf", "exact_match", "length_ratio"),
    "lm": ("bits_per_char", "nats_per_char", "bits_per_byte", "nats_per_token", "perplexity"),
}
"""Scores of the result table, by task."""

WHAT = {"classify": "text classifier", "translate": "translator", "lm": "language model"}
FAMILY = {"classify": "encoder", "translate": "encoder–decoder", "lm": "decoder-only"}


def headline_sentence(facts: RunFacts) -> str:
    """Return the score to quote in one sentence, with its interval, split and size; or that there is none."""
    evaluation = facts.evaluation
    if evaluation is None:
        return "It was not evaluated on a test split."
    name, value, interval = headline(facts.task, evaluation)
    words, _, show = metric_words(name)
    if value is None:
        return "Its evaluation holds no score."
    spread = f" (95% interval {between(name, interval)})" if interval else ""
    unit = {"classify": "examples", "translate": "sentences", "lm": "tokens"}[facts.task]
    split = evaluation.get("split", "test")
    return f"{words} on the {split} split: **{show(value)}**{spread}, over {evaluation.get('n', 0):,} {unit}."


def model_sentence(facts: RunFacts) -> str:
    """Return what the model is: family, layers, width, heads, parameters, tokenizer."""
    model, tokenizer = facts.config.get("model", {}), facts.data.get("tokenizer", {})
    family = FAMILY[facts.task]
    parts = [f"{family[0].upper()}{family[1:]} Transformer"]
    if model:
        n, width, heads = (model.get(key) for key in ("n_layers", "d_model", "n_heads"))
        parts.append(f"{n} {'layer' if n == 1 else 'layers'}, d_model {width}, {heads} heads")
    if facts.n_parameters:
        parts.append(f"{facts.n_parameters:,} parameters")
    if tokenizer:
        parts.append(f"{tokenizer.get('kind')} tokenizer of {tokenizer.get('vocab_size', 0):,} entries")
    return ", ".join([parts[0], "; ".join([*parts[1:], "trained from random weights"])]) + "."


def dataset_words(facts: RunFacts) -> str:
    """Return what it was trained on, for a sentence."""
    data = facts.config.get("data", {})
    name = data.get("dataset", facts.data.get("dataset", "unknown data"))
    match name:
        case "multi30k":
            return f"Multi30k, {data.get('src_lang')} → {data.get('tgt_lang')}"
        case "files":
            own = data.get("train_file") or data.get("src_file") or facts.data.get("source", "")
            return f"own data ({code(own)})" if own else "own data"
        case _:
            return {"imdb": "IMDB", "shakespeare": "tiny Shakespeare"}.get(name, str(name))


def warnings_of(facts: RunFacts) -> list[str]:
    """Return what a reader must know before believing the score."""
    data, evaluation = facts.config.get("data", {}), facts.evaluation or {}
    found = []
    if data.get("use_test_as_validation"):
        found.append(
            "The test split was used as validation, so the weights were chosen on it: no clean test score."
        )
    if data.get("limit"):
        found.append(f"Only the first {data['limit']:,} training examples were used.")
    if evaluation and evaluation.get("split") != "test":
        found.append(
            "There was no test split: these scores are on the validation split, which also chose the weights."
        )
    yardstick = (evaluation.get("baselines") or {}).get("tfidf_logistic", {}).get("accuracy")
    accuracy = evaluation.get("accuracy")
    if yardstick is not None and accuracy is not None and yardstick >= accuracy:
        found.append(f"A bag of words does as well or better here ({percent(yardstick)}).")
    return found + list(evaluation.get("notes") or [])


def use_commands(facts: RunFacts, run: str) -> str:
    """Return how to predict with and evaluate the run, in the shell and in Python."""
    shell = {
        "classify": f'glassformer predict {run} "I loved every minute" --json',
        "translate": f"glassformer predict {run} --beam-size 5 < source.txt > translation.txt",
        "lm": f'glassformer predict {run} --prompt "Once" --max-new-tokens 200 --top-p 0.9 --seed 1',
    }[facts.task]
    python = f'import glassformer\n\nrun = glassformer.load("{run}")\nprint(run.predict(["…"]))'
    return "\n\n".join(
        [fenced(f"{shell}\nglassformer evaluate {run} --json", "sh"), fenced(python, "python")]
    )
