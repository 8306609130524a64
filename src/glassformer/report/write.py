"""The report of a run: `report.md` for people, `report.json` for programs, `plots/*.png`; and its model card.

It must make sense to someone who has the `model/` folder alone, so it repeats the score and the limits that
the report holds in full.

Everything is read back from the run folder, so a report can be written again at any time, without the data
and without the model. The sentences are in `text.py`, the pictures in `plots.py`.
"""

from __future__ import annotations

import json

from glassformer.config.recipes import config_to_dict
from glassformer.report import text
from glassformer.report.plots import draw_all
from glassformer.report.run_record import RunRecord, readable_records
from glassformer.report.text import report_markdown
from glassformer.runs.folder import PLOTS, RunFolder
from glassformer.runs.records import JsonObject
from glassformer.utils.atomic_io import atomic_write_bytes, atomic_write_text, write_json
from glassformer.utils.formatting import cell_text, code, percent

FILES = """\
- `config.json`: the architecture, the text settings and the hash of the tokenizer
- `model.safetensors`: the weights; safetensors, no pickle
- `tokenizer.json`: the tokenizer, {tokenizer}
- `manifest.json`: sizes and SHA-256 of these files; loading checks them"""


def model_card(facts: RunRecord) -> str:
    """Return the card of a run's model as Markdown."""
    share = (facts.data.train.n_truncated or 0) / max(facts.data.train.n, 1)
    cut = f"; {percent(share)} of the {facts.task_report.inputs_name} were longer" if share else ""
    labels = facts.data.label_names or []
    shown, more = ", ".join(map(code, labels[:50])), len(labels) - 50
    classes = f"{shown} and {more} more" if more > 0 else shown
    how, origin = "fine-tuned" if facts.config.train.init_from else "trained from scratch", facts.origin
    tokenizer = "that of the pretrained run" if facts.config.train.init_from else "trained on the training split alone"
    parts = [
        _front_matter(facts),
        f"# {cell_text(facts.name)}",
        f"A {facts.task_report.model_name} {how} with Glassformer on {text.dataset(facts)}. {text.model(facts)}",
        *("## Score", text.headline(facts), *_scores(facts), *text.warnings(facts)),
        *("## Limits", facts.task_report.limits),
        f"It reads texts up to {facts.config.text.max_len:,} tokens{cut}.",
        *(("## Classes", classes) if labels else ()),
        *(("## Pretrained weights", *origin.of_descendant()) if origin else ()),
        *("## Use it", text.use(facts, "path/to/run"), "## Files", FILES.format(tokenizer=tokenizer)),
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(facts: RunRecord) -> str:
    """Return the metadata of a Hugging Face model card; languages, and the licence of own weights, are the owner's."""
    report, task = facts.task_report, facts.task_report.pipeline_tag
    lines = ["library_name: glassformer", *(facts.origin.front_matter() if facts.origin else [])]
    lines += [*([f"pipeline_tag: {task}"] if task else []), "tags:", "- transformer"]
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


def write_report(facts: RunRecord) -> None:
    """Write report.json, report.md and plots/ into a run folder; what its record lacks is missed in words.

    Raises:
        CheckpointError: a part of the folder is a link, or its records cannot be shown.
    """
    folder = RunFolder(facts.path)
    folder.refuse_links(folder.plots)
    with readable_records(folder.path):
        images = draw_all(facts)
        report, markdown = report_facts(facts, sorted(images)), report_markdown(facts, sorted(images))
    folder.plots.mkdir(exist_ok=True)
    for name, image in images.items():
        atomic_write_bytes(folder.plots / f"{name}.png", image)
    for stale in folder.plots.glob("*.png"):  # of an earlier report: it would be read as current
        if stale.stem not in images:
            stale.unlink()
    write_json(folder.report_json, report)
    atomic_write_text(folder.report, markdown)


def report_facts(facts: RunRecord, plots: list[str]) -> JsonObject:
    """Return the report as data: the scores, the training in short, the data, the machine, the plots."""
    (metric, value, interval), best, rows = facts.score, facts.best_validation(), facts.training
    means = {name: facts.logged(name) for name in ("tokens_per_s", "padding")}
    training = {
        "steps": facts.steps,
        "epochs": rows[-1].epoch if rows else None,
        "seconds": facts.seconds,
        **{name: sum(values) / len(values) if values else None for name, values in means.items()},
        "n_parameters": facts.n_parameters,
        "metric": facts.metric.name,
        "best": {"step": best.step, "epoch": best.epoch, **(best.valid or {})} if best else None,
    }
    return {
        "task": facts.config.task,
        "recipe": facts.name,
        "headline": {"metric": metric.name, "value": value, "ci95": interval},
        "evaluation": facts.evaluation.as_json() if facts.evaluation else None,
        "training": training,
        "data": facts.data.as_json(),
        "environment": facts.env,
        "config": config_to_dict(facts.config),
        "plots": [f"{PLOTS}/{name}.png" for name in plots],
    }
