"""Record what a run gave, for chapters that show trainings which are too long for a build.

    python docs/book/record.py runs/imdb-tutorial

writes docs/book/results/imdb-tutorial.json, with the hash of the recipe: a test fails when the recipe has moved on.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from glassformer.config.recipes import recipe_text

RECORDS = Path(__file__).parent / "results"


def recipe_hash(name: str) -> str:
    """Return a hash of a shipped recipe."""
    return hashlib.sha256(recipe_text(name).encode()).hexdigest()[:16]


def record_of(folder: Path) -> dict[str, Any]:
    """Return recipe, command, machine, score, and the scores of each validation of a run or of several seeds."""
    seeds = sorted(path for path in folder.glob("seed-*") if path.is_dir()) or [folder]
    runs = [_one(seed) for seed in seeds]
    environment = json.loads((seeds[0] / "env.json").read_text(encoding="utf-8"))
    report = json.loads((seeds[0] / "report.json").read_text(encoding="utf-8"))
    command = environment["command"].partition(" --out")[0]
    machine = f"{environment['device_name']}, {environment['threads']} threads, {environment['precision']}"
    return {
        "recipe": report["recipe"],
        "recipe_sha256": recipe_hash(report["recipe"]),
        "command": command,
        "hardware": machine,
        "torch": environment["versions"]["torch"],
        "runs": runs,
    }


def _one(folder: Path) -> dict[str, Any]:
    """Return the headline, with its interval, and the validations of one run."""
    headline = json.loads((folder / "report.json").read_text(encoding="utf-8"))["headline"]
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    keep = ("step", "epoch", "seconds", "valid", "train")
    validations = [{key: row[key] for key in keep if key in row} for row in rows if "valid" in row]
    return {"headline": headline, "validations": validations}


def read_record(name: str) -> dict[str, Any]:
    """Return what was recorded of a run."""
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    RECORDS.mkdir(exist_ok=True)
    for argument in sys.argv[1:]:
        path = RECORDS / f"{Path(argument).name}.json"
        path.write_text(json.dumps(record_of(Path(argument)), indent=1) + "\n", encoding="utf-8")
        print(path)
