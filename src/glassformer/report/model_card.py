"""The model card, `model/README.md`: what these weights are, what they are good for, and how to load them.

It must make sense to someone who has the `model/` folder alone, so it repeats the score and the limits that
the report holds in full.
"""

from __future__ import annotations

import json

from glassformer.report import sentences
from glassformer.report.run_record import RunRecord
from glassformer.utils.formatting import cell_text, code, percent

FILES = """\
- `config.json`: the architecture, the text settings and the hash of the tokenizer
- `model.safetensors`: the weights; safetensors, no pickle
- `tokenizer.json`: the tokenizer, trained on the training split alone
- `manifest.json`: sizes and SHA-256 of these files; loading checks them"""


def model_card(facts: RunRecord) -> str:
    """Return the card of a run's model as Markdown."""
    share = (facts.data.train.n_truncated or 0) / max(facts.data.train.n, 1)
    cut = f"; {percent(share)} of the {facts.task_report.inputs_name} were longer" if share else ""
    labels = facts.data.label_names or []
    shown, more = ", ".join(map(code, labels[:50])), len(labels) - 50
    classes = f"{shown} and {more} more" if more > 0 else shown
    parts = [
        _front_matter(facts),
        f"# {cell_text(facts.name)}",
        f"A {facts.task_report.model_name} trained from scratch with Glassformer on {sentences.dataset(facts)}. "
        f"{sentences.model(facts)}",
        *("## Score", sentences.headline(facts), *_scores(facts), *sentences.warnings(facts)),
        *("## Limits", facts.task_report.limits),
        f"It reads texts up to {facts.config.text.max_len:,} tokens{cut}.",
        *(("## Classes", classes) if labels else ()),
        *("## Use it", sentences.use(facts, "path/to/run"), "## Files", FILES),
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(facts: RunRecord) -> str:
    """Return the metadata of a Hugging Face model card; licence and languages are for the owner to add."""
    report, task = facts.task_report, facts.task_report.pipeline_tag
    lines = ["library_name: glassformer", *([f"pipeline_tag: {task}"] if task else []), "tags:", "- transformer"]
    evaluation = facts.evaluation
    metric, value, _ = report.score(evaluation) if evaluation else (None, None, None)
    if evaluation and metric and value is not None:
        lines += ["model-index:", f"- name: {json.dumps(facts.name)}", "  results:", "  - task:"]
        lines += [f"      type: {task or facts.config.task}", "    dataset:"]
        lines += [
            f"      name: {json.dumps(facts.data.source)}",
            f"      type: {json.dumps(facts.config.data.dataset)}",
        ]
        lines += [f"      split: {evaluation.split}", "    metrics:", f"    - type: {metric.name}"]
        lines += [f"      value: {value:.6g}"]
    return "\n".join(["---", *lines, "---"])


def _scores(facts: RunRecord) -> list[str]:
    """Return the test scores in a list; before a test, the validation that chose the weights."""
    if facts.evaluation:
        names = facts.task_report.names(facts.evaluation)
        scores = [facts.task_report.score(facts.evaluation, name) for name in names]
        return ["\n".join(f"- {score.metric.title}: {score.text}" for score in scores)] if scores else []
    best = facts.best_validation()
    if best is None:
        return []
    value = facts.metric.write(facts.validation_score(best))
    return [f"On validation, at step {best.step:,}: {facts.metric.title} {value}."]
