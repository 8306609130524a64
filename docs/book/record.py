"""Record what a run gave, for chapters that show trainings which are too long for a build.

    python docs/book/record.py runs/imdb-tutorial
    python docs/book/record.py runs/imdb terrible wonderful     # and the nearest embeddings of these words

writes docs/book/results/NAME.json, with the hash of the recipe: a test fails when the recipe has moved on.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import glassformer
from glassformer.config.recipes import recipe_text
from glassformer.explain.embedding_view import embedding_view, lookups_of
from glassformer.report.run_record import load_run_record

RECORDS = Path(__file__).parent / "results"


def recipe_hash(name: str) -> str:
    """Return a hash of a shipped recipe."""
    return hashlib.sha256(recipe_text(name).encode()).hexdigest()[:16]


def record_of(folder: Path) -> dict[str, Any]:
    """Return recipe, command, machine, score, and the scores of each validation of a run or of several seeds."""
    seeds = sorted(path for path in folder.glob("seed-*") if path.is_dir()) or [folder]
    runs = [_one(seed) for seed in seeds]
    recipe = load_run_record(seeds[0]).name
    environment = json.loads((seeds[0] / "env.json").read_text(encoding="utf-8"))
    command = environment["command"].partition(" --out")[0]
    machine = f"{environment['device_name']}, {environment['threads']} threads, {environment['precision']}"
    return {
        "recipe": recipe,
        "recipe_sha256": recipe_hash(recipe),
        "command": command,
        "hardware": machine,
        "torch": environment["versions"]["torch"],
        "runs": runs,
    }


def _one(folder: Path) -> dict[str, Any]:
    """Return the headline, with its interval, and the validations of one run."""
    metric, value, interval = load_run_record(folder).score
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    validations = [{key: row[key] for key in ("step", "epoch", "valid")} for row in rows if "valid" in row]
    return {"headline": {"metric": metric.name, "value": value, "ci95": interval}, "validations": validations}


def read_record(name: str) -> dict[str, Any]:
    """Return what was recorded of a run."""
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


def nearest_of(folder: Path, words: list[str]) -> dict[str, list[str]]:
    """Return for each word the five words whose embeddings are nearest by cosine, with it."""
    explanation = glassformer.load(folder).explain(" ".join(words))
    [(_, step)] = lookups_of(explanation)
    views = {word: embedding_view(explanation, step, row) for row, word in enumerate(words)}
    return {
        word: [f"{one['piece']} {one['cosine']:.2f}" for one in view["neighbours"][:5]] for word, view in views.items()
    }


if __name__ == "__main__":
    RECORDS.mkdir(exist_ok=True)
    source, words = Path(sys.argv[1]), sys.argv[2:]
    record = record_of(source) | ({"nearest": nearest_of(source, words)} if words else {})
    path = RECORDS / f"{source.name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(path)
