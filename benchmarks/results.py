"""RESULTS.md and its plots, from finished run folders: every number with its command, seeds, cost and machine.

    python -m benchmarks.results [--runs runs/results] [--train]

Each result is a run folder, or a folder of several seeds, of a name that `results.toml` lists (others are taken as
they are). What the page needs of it is kept in `results.json`, so that the page can be made again without the runs: a
folder that exists is read, one that does not is reported as missing, and keeps what was known. `--train` first trains
what is missing, one after the other; a run that was interrupted is resumed. Ablations are `ablations.md`, as it stands.
How a page is made of these facts is in `results_page.py`.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.results_page import curves_png, page, typed

from glassformer.report.compare import SeedsRecord, load_seeds, summary_stats
from glassformer.report.run_record import RunRecord, load_run_record
from glassformer.report.write import dataset
from glassformer.runs.folder import RunFolder, SeedsFolder
from glassformer.runs.records import Evaluation, JsonObject
from glassformer.utils.atomic_io import atomic_write_bytes, atomic_write_text, write_json

ROOT = Path(__file__).parents[1]
MOST_POINTS = 60
"""Points kept of a learning curve."""


def collect(path: Path, wanted: JsonObject) -> JsonObject | None:
    """Return the facts of a run folder, or a folder of seeds; None if it is not finished.

    Args:
        path: the folder.
        wanted: section, command and note of `results.toml`; what is absent is in the run.

    Returns:
        section, command and note; task, metric and score, which is {n, mean, sd, min, max} over the seeds;
        ci95 of a single run; also (other scores, and that of several seeds as one) and baselines, parameters, updates,
        flops and seconds, each of a run in the mean, hardware, and curve, [seconds, validation score] of the first
        run.
    """
    seeds = seeds_of(path)
    runs = seeds.runs if seeds else runs_of(path)
    if not runs:
        return None
    first, scores = runs[0], [run.score.value for run in runs if run.score.value is not None]
    task_report, evaluation = first.task_report, first.evaluation or Evaluation()
    others = [name for name in task_report.names(evaluation) if name != first.score.metric.name][:2]
    env = first.env
    machine = [
        env.get("device_name") or env.get("device"),
        f"{env['threads']} thread{'s' * (env['threads'] != 1)}" if "threads" in env else None,
    ]
    return {
        "section": wanted.get("section") or without_paths(dataset(first).partition(" in ")[0]),
        "command": wanted.get("command") or without_paths(env.get("command") or ""),
        "note": wanted.get("note", ""),
        "task": first.config.task,
        "metric": first.score.metric.name,
        "score": summary_stats(scores),
        "valid_metric": first.metric.name,
        "valid": summary_stats([run.kept_score or 0.0 for run in runs]),
        "ci95": first.score.interval if len(runs) == 1 else None,
        "n_test": evaluation.n,
        "also": {
            task_report.metric(name).title: metric_text(first, [run.evaluation for run in runs], name)
            for name in others
        }
        | ({"ensemble of the seeds": seeds.ensemble.text} if seeds and seeds.ensemble else {}),
        "baselines": _baselines(runs),
        "parameters": first.data.preflight.get("n_parameters"),
        "steps": round(sum(run.steps for run in runs) / len(runs)),
        "flops": sum(map(flops, runs)) / len(runs),
        "seconds": sum(run.seconds or 0.0 for run in runs) / len(runs),
        "hardware": ", ".join(str(part) for part in (*machine, env.get("precision")) if part),
        "curve": curve(first),
    }


def runs_of(path: Path) -> list[RunRecord]:
    """Return the finished runs in a folder: none, itself, or those of all its seeds."""
    if SeedsFolder(path).exists:
        return seeds.runs if (seeds := seeds_of(path)) else []
    return [load_run_record(path)] if RunFolder(path).finished else []


def seeds_of(path: Path) -> SeedsRecord | None:
    """Return the record of a folder of several seeds; None if it is no such folder or a seed is unfinished."""
    folder = SeedsFolder(path)
    if not folder.exists or not any(folder.run(seed).finished for seed in folder.read()[1]):
        return None
    seeds = load_seeds(folder)
    return None if seeds.unfinished else seeds


def flops(run: RunRecord) -> float:
    """Return the FLOPs of a run's training: per token, times tokens, times epochs."""
    a_token, epochs = run.data.preflight.get("flops_per_token", 0.0), run.training[-1].epoch if run.training else 0
    return a_token * (run.data.train.n_tokens or 0) * epochs


def curve(run: RunRecord) -> list[list[float]]:
    """Return [seconds, validation score] of a run, thinned."""
    rows = [(row.seconds, row.valid) for row in run.validations if row.valid and not math.isnan(row.seconds)]
    every = -(-len(rows) // MOST_POINTS) or 1
    return [[round(seconds, 1), round(valid[run.metric.name], 5)] for seconds, valid in rows[::-1][::every][::-1]]


def without_paths(command: str) -> str:
    """Return a command without this machine's folders, and without --out, which is the result's name."""
    command = re.sub(r"(?<![\w$])/\S*/(?=[^/\s]+)", "", command)
    return re.sub(r" --out[ =]\S+", "", command).strip()


def metric_text(run: RunRecord, evaluations: Sequence[Evaluation | None], name: str) -> str:
    """Return the mean of a score over the evaluations that have it, formatted by the task; "" if none has."""
    scores = [run.task_report.score(e, name).value for e in evaluations if e]
    known = [score for score in scores if score is not None]
    return run.task_report.score(Evaluation(scores={name: fmean(known)}), name).text if known else ""


def _baselines(runs: Sequence[RunRecord]) -> dict[str, str]:
    """Return the baselines by name, in the runs' metric, averaged; some are fitted on part of a run's data."""
    first, rivals = runs[0], [run.evaluation.baselines for run in runs if run.evaluation]
    scores = {
        first.task_report.baselines.get(name, name): metric_text(
            first, [Evaluation(scores=each[name]) for each in rivals if name in each], first.score.metric.name
        )
        for name in (rivals[0] if rivals else {})
    }
    return {called: value for called, value in scores.items() if value}


def update(
    runs: Path, wanted: dict[str, JsonObject], known: dict[str, JsonObject]
) -> tuple[dict[str, JsonObject], list[str]]:
    """Return the facts of all results, those of `wanted` first, and the names without a folder here."""
    names = [*wanted, *sorted(p.name for p in runs.glob("*") if p.is_dir() and p.name not in wanted)]
    names += [name for name in known if name not in names]
    results, missing = dict[str, JsonObject](), list[str]()
    for name in names:
        facts = collect(runs / name, wanted.get(name, {}))
        if facts is None:
            missing.append(name)
            facts = known.get(name)
        if facts is not None:
            results[name] = facts
    return results, missing


def train(name: str, facts: JsonObject, out: Path) -> None:
    """Train a result that is missing, or go on with it; a run that fails leaves the others alone."""
    begun = RunFolder(out).resumable or SeedsFolder(out).exists
    line = f"glassformer train --resume {out}" if begun else typed(facts, out)
    print(f"{name}: {line}", file=sys.stderr)
    module = f'"{sys.executable}" -m glassformer '
    shell = re.sub(r"(^|&& |\| )glassformer ", lambda match: match[1] + module, line)
    if subprocess.run(shell, shell=True, check=False).returncode:
        print(f"warning: {name} did not finish; make results-train resumes it", file=sys.stderr)


def write(root: Path, results: dict[str, JsonObject]) -> None:
    """Write results.json, the plots and RESULTS.md under a root; plots of former sections are removed."""
    write_json(root / "benchmarks" / "results.json", results)
    images = curves_png(results)
    folder = root / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("results-*.png"):
        if stale.name not in images:
            stale.unlink()
    for name, image in images.items():
        atomic_write_bytes(folder / name, image)
    ablations = root / "benchmarks" / "ablations.md"
    text = ablations.read_text(encoding="utf-8") if ablations.exists() else ""
    atomic_write_text(root / "RESULTS.md", page(results, text, sorted(images)))


def read(path: Path) -> Any:
    """Return the value of a JSON file; None if there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def main(root: Path = ROOT) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=root / "runs" / "results", help="folder of the run folders")
    parser.add_argument("--train", action="store_true", help="train what is missing first")
    arguments = parser.parse_args()
    wanted = tomllib.loads((root / "benchmarks" / "results.toml").read_text(encoding="utf-8"))
    if arguments.train:
        for name, facts in wanted.items():
            if not runs_of(arguments.runs / name):
                train(name, facts, arguments.runs / name)
    known = read(root / "benchmarks" / "results.json") or {}
    results, missing = update(arguments.runs, wanted, known)
    write(root, results)
    for name in missing:
        kept = "its facts are those of benchmarks/results.json" if name in known else "it is not in the page"
        print(f"missing: {arguments.runs / name}; {kept}", file=sys.stderr)
    print(f"written: {root / 'RESULTS.md'}, with {len(results)} results", file=sys.stderr)


if __name__ == "__main__":
    main()
