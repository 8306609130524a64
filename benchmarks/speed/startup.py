"""Part g: how long a person waits for the first answer of `glassformer predict`, in a process that has just begun."""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from benchmarks.speed.child import environment
from benchmarks.speed.load import OtherLoad
from benchmarks.speed.options import Options
from benchmarks.speed.registry import ROOT
from benchmarks.speed.table import Figure, Section, busy
from benchmarks.speed.training import log, wait_for_quiet

N_WORDS, N_TEXTS = 6000, 400
"""Enough words that a classifier of d 128 has about a million parameters."""


def run_startup(options: Options) -> Section:
    """Measure the table of part g."""
    section = Section("(g) start-up: seconds of a new process", ("command", "seconds", "remarks"))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        run = train_small(Path(folder), options)
        commands = {
            "glassformer predict RUN TEXT": [sys.executable, "-m", "glassformer", "predict", str(run), "w1 w2 w3"],
            "import torch": [sys.executable, "-c", "import torch"],
            "glassformer --help": [sys.executable, "-m", "glassformer", "--help"],
        }
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        others: dict[str, list[float | None]] = {name: [] for name in commands}
        for i in range(options.repeats + 1):
            for name, command in commands.items():
                if not options.anyway:
                    wait_for_quiet(options.wait)
                with OtherLoad() as load:
                    took = timed(command, options)
                if i:  # the first of each finds its files on the disk, the others in memory
                    seconds[name].append(took)
                    others[name].append(load.cores)
                    log(f"{name}: {took:.2f} s, others {load.cores or 0:.2f} cores")
    for name in commands:
        shown, remark = busy(others[name], options.anyway)
        section.rows.append([name, Figure(seconds[name]).text() if shown else "–", remark])
        if shown and name.startswith("glassformer predict"):
            section.summary.append(("first answer of `predict`, cold", f"{Figure(seconds[name]).text()} s", "", ""))
        section.facts.append({"command": name, "seconds": seconds[name], "others": others[name]})
    section.notes.append("A classifier of about a million parameters. Its files are in the page cache.")
    return section


def train_small(folder: Path, options: Options) -> Path:
    """Train a classifier of about a million parameters for two updates; its run folder."""
    rng, texts = np.random.default_rng(0), folder / "texts.csv"
    with texts.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for i in range(N_TEXTS):
            writer.writerow([" ".join(f"w{n}" for n in rng.integers(N_WORDS, size=60)), "ab"[i % 2]])
    command = [
        sys.executable,
        "-m",
        "glassformer",
        "train",
        "classify",
        "--train-file",
        str(texts),
        "--steps",
        "2",
        "--model.d-model",
        "128",
        "--model.n-layers",
        "1",
        "--text.vocab-size",
        str(N_WORDS),
        "--out",
        str(folder / "run"),
    ]
    log("training a small classifier")
    finished = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment(options.variables))
    if finished.returncode:
        raise SystemExit(f"part g could not train its model: {finished.stderr.strip().splitlines()[-1]}")
    return folder / "run"


def timed(command: list[str], options: Options) -> float:
    """Return the seconds from start to end of a process."""
    began = time.perf_counter()
    subprocess.run(command, capture_output=True, check=True, cwd=ROOT, env=environment(options.variables))
    return time.perf_counter() - began
