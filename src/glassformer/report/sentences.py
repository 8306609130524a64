"""A run in the sentences that its report and its model card share: what it is, its score, what to mind.

How a single number is written is decided in `words.py`; nothing here reads or writes files.
"""

from __future__ import annotations

from glassformer.data import unknown
from glassformer.data.splits import LIMITED
from glassformer.report.facts import RunFacts
from glassformer.runs.values import SplitFacts
from glassformer.style.words import code, duration, fenced, quoted

UNCLEAN = "The test split was used as validation, so the weights were chosen on it: no clean test score."
NO_TEST = "There was no test split: these scores are on the validation split, which also chose the weights."


def headline(facts: RunFacts) -> str:
    """Return the score to quote in one sentence, with its interval, split and size; or that there is none."""
    evaluation, (metric, value, interval) = facts.evaluation, facts.score
    if evaluation is None:
        return "It was not evaluated on a test split."
    if value is None:
        return "Its evaluation holds no score."
    spread = f" (95% interval {metric.between(interval)})" if interval else ""
    over = f"over {evaluation.n:,} {facts.telling.unit}"
    return f"{metric.title} on the {evaluation.split} split: **{metric.write(value)}**{spread}, {over}."


def model(facts: RunFacts) -> str:
    """Return what the model is: family, layers, width, heads, parameters, tokenizer."""
    model, tokenizer, family = facts.config.model, facts.data.tokenizer, facts.telling.family
    n = model.n_layers
    parts = [f"{n} {'layer' if n == 1 else 'layers'}, d_model {model.d_model}, {model.n_heads} heads"]
    if facts.n_parameters:
        parts.append(f"{facts.n_parameters:,} parameters")
    if tokenizer:
        parts.append(f"{tokenizer.get('kind')} tokenizer of {tokenizer.get('vocab_size', 0):,} entries")
    what = f"{family[0].upper()}{family[1:]} Transformer" if family else "Transformer"
    return f"{what}, {'; '.join([*parts, 'trained from random weights'])}."


def dataset(facts: RunFacts) -> str:
    """Return what it was trained on and how long that took, for a sentence."""
    data, took = facts.config.data, f" in {duration(facts.seconds)}" if facts.seconds else ""
    match data.dataset:
        case "multi30k":
            return f"Multi30k, {data.multi30k.src_lang} → {data.multi30k.tgt_lang}{took}"
        case "files":
            own = data.files.train_file or data.files.src_file or facts.data.source
            return f"own data ({code(own)}){took}" if own else f"own data{took}"
        case name:
            return {"imdb": "IMDB", "shakespeare": "tiny Shakespeare"}.get(name, name) + took


def warnings(facts: RunFacts) -> list[str]:
    """Return what a reader must know before believing the score, as quotations."""
    evaluation, found = facts.evaluation, []
    if facts.config.data.use_test_as_validation:
        found.append(UNCLEAN)
    found += [f"{note[0].upper()}{note[1:]}." for note in facts.data.notes if note.endswith(LIMITED)]
    for name, where in (("valid", "validation"), ("test", "test")):
        split = facts.data.splits.get(name, SplitFacts())
        if told := unknown.warning(where, split.unknown_rate, split.n_texts_unknown, split.n):
            found.append(f"{told}.")
    if evaluation:
        found += [NO_TEST] if evaluation.split != "test" else []
        found += [*facts.telling.caveats(evaluation), *(evaluation.scores.get("notes") or [])]
    return [quoted(f"**Mind:** {warning}") for warning in found]


def use(facts: RunFacts, run: str) -> str:
    """Return how to predict with and evaluate the run, in the shell and in Python."""
    shell = f"{facts.telling.example_command(run)}\nglassformer evaluate {run} --json"
    python = f'import glassformer\n\nrun = glassformer.load("{run}")\nprint(run.predict(["…"]))'
    return "\n\n".join([fenced(shell, "sh"), fenced(python, "python")])
