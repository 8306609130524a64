"""The report of a run: `report.md` for people, `report.json` for programs, `plots/*.png` for both.

Everything is read back from the run folder, so a report can be written again at any time, without the data
and without the model. The sentences are in `text.py`, the pictures in `plots.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glassformer.files import atomic_write_bytes, atomic_write_text, write_json
from glassformer.report.plots import draw_all
from glassformer.report.text import report_markdown
from glassformer.runs.facts import Facts, RunFacts, headline, load_facts


def write_report(run_dir: Path) -> None:
    """Write report.json, report.md and plots/ from what else is in a run folder.

    Args:
        run_dir: a run folder with config.toml; env.json, data.json, metrics.jsonl and evaluation.json are
            used where they are present, and missed in words where they are not.

    Raises:
        CheckpointError: not a run folder, or one of these files is damaged.
    """
    run_dir = Path(run_dir)
    facts = load_facts(run_dir)
    images = draw_all(facts)
    (run_dir / "plots").mkdir(exist_ok=True)
    for name, image in images.items():
        atomic_write_bytes(run_dir / "plots" / f"{name}.png", image)
    for stale in (run_dir / "plots").glob("*.png"):  # of an earlier report: it would be read as current
        if stale.stem not in images:
            stale.unlink()
    write_json(run_dir / "report.json", report_facts(facts, sorted(images)))
    atomic_write_text(run_dir / "report.md", report_markdown(facts, sorted(images)))


def report_facts(facts: RunFacts, plots: list[str]) -> Facts:
    """Return the report as data: the scores, the training in short, the data, the machine, the plots."""
    name, value, interval = headline(facts.task, facts.evaluation or {})
    return {
        "task": facts.task,
        "recipe": facts.name,
        "headline": {"metric": name, "value": value, "ci95": interval},
        "evaluation": facts.evaluation,
        "training": training_facts(facts),
        "data": facts.data,
        "environment": facts.env,
        "config": facts.config,
        "plots": [f"plots/{name}.png" for name in plots],
    }


def training_facts(facts: RunFacts) -> dict[str, Any]:
    """Return updates, epochs, seconds, speed and padding, and the validation that was kept."""
    best = facts.best_validation()
    rows = facts.training

    def mean(key: str) -> float | None:
        values = [row[key] for row in rows if isinstance(row.get(key), int | float)]
        return sum(values) / len(values) if values else None

    return {
        "steps": rows[-1]["step"] if rows else 0,
        "epochs": rows[-1].get("epoch") if rows else None,
        "seconds": facts.seconds,
        "tokens_per_s": mean("tokens_per_s"),
        "padding": mean("padding"),
        "n_parameters": facts.n_parameters,
        "metric": facts.metric,
        "best": {"step": best["step"], "epoch": best.get("epoch"), **best["valid"]} if best else None,
    }
