"""The report of a run: `report.md` for people, `report.json` for programs, `plots/*.png` for both.

Everything is read back from the run folder, so a report can be written again at any time, without the data
and without the model. The sentences are in `text.py`, the pictures in `plots.py`.
"""

from __future__ import annotations

from glassformer.config.recipes import config_to_dict
from glassformer.report.plots import draw_all
from glassformer.report.run_record import RunRecord, readable_records
from glassformer.report.text import report_markdown
from glassformer.runs.folder import PLOTS, RunFolder
from glassformer.runs.records import JsonObject
from glassformer.utils.atomic_io import atomic_write_bytes, atomic_write_text, write_json


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
