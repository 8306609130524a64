"""A run in the sentences that its report and its model card share: what it is, its score, what to mind.

How a single number is written is decided in `utils/formatting.py`; nothing here reads or writes files.
"""

from __future__ import annotations

import json
import shlex

from glassformer.evaluate.intervals import FEW
from glassformer.report.run_record import RunRecord
from glassformer.utils.formatting import code, counted, duration, fenced, glassformer_command, quoted

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
        what = f"An ensemble of {model.ensemble_size}, averaging probabilities. Each is one {what[0].lower()}{what[1:]}"
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
        *_few_scored(facts),
        *facts.task_report.warnings(evaluation),
        *(evaluation.scores.get("notes") or []),
    ]


def warnings(facts: RunRecord) -> list[str]:
    """Return `cautions` as quotations."""
    return [quoted(f"**Mind:** {caution}") for caution in cautions(facts)]


def _few_scored(facts: RunRecord) -> list[str]:
    """Return a warning about the wide interval if few examples were scored."""
    evaluation, (metric, value, interval) = facts.evaluation, facts.score
    if evaluation is None or value is None or not 0 < evaluation.n < FEW or not interval:
        return []
    n, unit = evaluation.n, facts.task_report.unit
    few = f"Only {counted(n, unit)} {'was' if n == 1 else 'were'} scored"
    low, high = map(metric.write, interval)
    if low == high:  # drawn again and again from one sentence, which is always the same
        return [f"{few}, which says nothing of {metric.title} on others."]
    return [f"{few}: {metric.title} may be anything from {low} to {high}."]


def use(facts: RunRecord, run: str) -> str:
    """Return how to predict with and evaluate the run, in the shell and in Python."""
    predict = facts.task_report.example_command(shlex.quote(run))
    on_valid = ("--split", "valid") if facts.evaluation and facts.evaluation.split == "valid" else ()
    shell = f"{predict}\n{glassformer_command('evaluate', run, *on_valid, '--json')}"
    literal = json.dumps(run, ensure_ascii=False)  # a string of Python too
    python = f'import glassformer\n\nrun = glassformer.load({literal})\nprint(run.predict(["…"]))'
    parts = [fenced(shell, "sh"), fenced(python, "python")]
    if facts.config.data.dataset == "files":
        parts.append(
            "`evaluate` reads the run's data again, by the paths that the training was given: a relative one from the "
            "folder in which the training was started. Or name test files."
        )
    return "\n\n".join(parts)
