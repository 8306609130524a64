"""The card of an exported model: Markdown with a YAML head, as model hubs read it."""

from __future__ import annotations

from glassformer.interop.card_examples import example_of
from glassformer.interop.export_facts import ExportFacts
from glassformer.report import sentences
from glassformer.report.run_record import RunRecord
from glassformer.runs.records import Evaluation
from glassformer.tasks.reporting import TaskReport

PIPELINES = {
    "translator": "translation",
    "language_model": "text-generation",
    "classifier": "text-classification",
    "masked_language_model": "fill-mask",
}
LIBRARIES = {"hf": "transformers", "gguf": "llama.cpp"}
"""Names of libraries as model hubs write them, where they are not those of the targets."""


def card(
    facts: ExportFacts, report: TaskReport, record: RunRecord | None, license: str | None, spelled: bool = False
) -> str:
    """Return the card.

    Args:
        facts: the description of the exported folder.
        report: the report of the task, which names its score and its limits.
        record: the record of the run; None without a run folder.
        license: the identifier of a licence; it is never guessed.
        spelled: the model reads the character n-grams of words.
    """
    head = [
        "---",
        f"library_name: {LIBRARIES.get(facts.target, facts.target)}",
        f"pipeline_tag: {PIPELINES[facts.kind]}",
        "tags: [glassformer]",
    ]
    head += [f"license: {license}"] if license else []
    trained = f" on {sentences.dataset(record)}" if record is not None else ""
    intro = f"A {report.model_name} trained from scratch with Glassformer{trained}."
    lines = [*head, "---", "", f"# {facts.run}", "", intro, ""]
    lines += [f"- Exported for {facts.target} as {facts.architecture}, weights in {facts.dtype}."]
    lines += _score(report, record.evaluation) if record is not None and record.evaluation is not None else []
    if facts.check:
        equal, difference = 100 * facts.check["equal_answers"], facts.check["largest_difference"]
        texts = f"{facts.check['n_texts']} validation texts"
        agrees = f"{equal:.1f}% equal answers, largest difference {difference:.1e}"
        lines.append(f"- Compared with the run on {texts}: {agrees}.")
    else:
        lines.append("- Not compared with the run.")
    lines += [f"- {note[0].upper()}{note[1:]}." for note in facts.notes]
    lines += ["", f"Limits: {report.limits} It reads texts up to {min(facts.max_len, facts.context):,} tokens."]
    lines += ["", "```python", example_of(facts, spelled).rstrip(), "```", ""]
    lines += ["With Glassformer: `glassformer predict FOLDER TEXT`, which keeps the run's limits of length.", ""]
    return "\n".join(lines)


def _score(report: TaskReport, evaluation: Evaluation) -> list[str]:
    """Return a line with the headline score and its interval."""
    score = report.score(evaluation)
    if not score.text:
        return []
    low_to_high = " to ".join(map(score.metric.write, score.interval or []))
    interval = f", 95% interval {low_to_high}" if low_to_high else ""
    return [f"- Score before export, {evaluation.split} split: {score.metric.name} {score.text}{interval}."]
