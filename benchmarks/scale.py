"""What a hundred times the data costs: memory, tokens a second, and how soon a run has its first update. Linux only.

    OMP_NUM_THREADS=1 python benchmarks/scale.py --dir build/scale            # 20 MB beside 2 GB of text
    OMP_NUM_THREADS=1 python benchmarks/scale.py --dir build/scale --task classify

Text is generated: lines of tiny Shakespeare in random order, different everywhere; for classification, reviews of
such lines with a label. Each stage is a command in a process of its own, watched with those that it starts. Three
figures tell its memory, each the most at any instant:

- own: RssAnon, summed over the processes: what they hold that no file backs. This is what must not grow with the data,
  for under pressure the kernel takes back mapped pages, and never these.
- PSS: own and mapped pages, those that several map divided among them. Pages of shards that were read count here as
  long as nobody else needs the memory, so it grows with what was read of them.
- at first: own, in the middle of the first update; the peak of a run is in its final test, which holds all its text.

Tokens a second are the median of updates after the first ten. What is generated is removed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WARM_UP = 10
HELD_OUT_BYTES = 60_000
"""Text to validate on, the same for all sizes."""
MODEL = {"n_layers": 1, "d_model": 64, "n_heads": 2}
"""Small, with few words: what a model takes is the same for any size of data, and would hide what the data takes."""


def generate_text(path: Path, source: Path, n_bytes: int) -> None:
    """Write lines of a text in random order, repeatedly, until there are `n_bytes`."""
    lines, rng, written = (
        [line for line in source.read_text("utf-8").splitlines(True) if line.strip()],
        random.Random(0),
        0,
    )
    with open(path, "w", encoding="utf-8") as file:
        while written < n_bytes:
            rng.shuffle(lines)
            for start in range(0, len(lines), 1000):
                written += file.write("".join(lines[start : start + 1000]))


def generate_reviews(path: Path, source: Path, n: int) -> None:
    """Write a table of n reviews: about ten lines each, labelled by whether "fine" or "dull" is in the middle."""
    lines, rng = ([line.strip() for line in source.read_text("utf-8").splitlines() if line.strip()], random.Random(0))
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(n):
            some = rng.choices(lines, k=rng.randint(8, 40))
            label = rng.choice(["fine", "dull"])
            some.insert(len(some) // 2, label)
            file.write(json.dumps({"text": " ".join(some), "label": label}) + "\n")


def children(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    found = [pid]
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += children(int(child))
    except OSError:
        pass  # it has just ended
    return found


def kilobytes(path: Path, name: str) -> int:
    """Return a value of a file of /proc, such as "Pss:", in kB; 0 if the process has ended."""
    try:
        return next((int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith(name)), 0)
    except OSError:
        return 0


def watch(command: list[str], log: Path) -> dict[str, Any]:
    """Run a command; its seconds, and the peaks of its memory in MiB. What it says last on stdout is JSON."""
    began, own, pss = time.perf_counter(), 0, 0
    with open(log, "w") as log_file:
        process = subprocess.Popen(command, stdout=log_file, stderr=log_file)
        for look in itertools.count():
            if process.poll() is not None:
                break
            pids = children(process.pid)
            own = max(own, sum(kilobytes(Path(f"/proc/{pid}/status"), "RssAnon") for pid in pids))
            if look % 20 == 0:  # this one holds the process up while it counts
                pss = max(pss, sum(kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss:") for pid in pids))
            time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{log.read_text()[-2000:]}")
    facts = json.loads(log.read_text().strip().splitlines()[-1])
    return {"seconds": time.perf_counter() - began, "own": own / 1024, "pss": pss / 1024} | facts


def train_here(task: str, data: str, out: str, steps: int, started: float) -> None:
    """Train in this process; print the time of the first step, and the speed from the eleventh on."""
    import glassformer

    reports: list[tuple[float, float, int]] = []

    def on_step(report: Any) -> None:
        own = kilobytes(Path("/proc/self/status"), "RssAnon")
        reports.append((time.time() - started, report.tokens_per_s, own))

    settings: dict[str, Any] = {"train_file": data, "steps": steps, "max_tokens": 2048, "device": "cpu"}
    settings |= {"max_len": 128}
    if task == "classify":
        settings |= {"text": {"tokenizer": "byte-bpe", "vocab_size": 1000, "ngrams": 0, "bigrams": 0}}
        settings |= {"batch_size": 32, "valid_fraction": 0.002}
    glassformer.train(task, out=out, model=MODEL, validate_every=1e9, on_step=on_step, **settings)
    speed = statistics.median(rate for _, rate, _ in reports[WARM_UP:])
    facts = {"first_update": reports[0][0], "tokens_per_s": speed, "own_at_first": reports[0][2] / 1024}
    print(json.dumps(facts))


def row(what: str, size: str, facts: dict[str, Any]) -> None:
    """Print a row of the table."""
    first, speed = facts.get("first_update"), facts.get("tokens_per_s")
    cells = [f"{what:22}", f"{size:>14}", f"{facts['own']:9,.0f}", f"{facts['pss']:9,.0f}", f"{facts['seconds']:8.1f}"]
    cells += [f"{first:8.1f}" if first else " " * 8, f"{speed:10,.0f}" if speed else ""]
    cells += [f"{facts['own_at_first']:9,.0f}"] if first else []
    print("  ".join(cells), flush=True)


def measure(args: argparse.Namespace, size: int, folder: Path) -> dict[str, dict[str, Any]]:
    """Measure all stages of a size; generated files are removed as soon as they are not needed."""
    found: dict[str, dict[str, Any]] = {}
    name = f"{size / 1e6:,.0f} MB" if args.task == "lm" else f"{size:,} texts"
    data = folder / ("text.txt" if args.task == "lm" else "reviews.jsonl")
    if args.task == "lm":
        generate_text(data, args.source, size)
        share, shards = str(HELD_OUT_BYTES / size), folder / "shards"
        # Small shards, so that the smallest text is the work of all processes, too.
        flags = f"--json --vocab-size 1000 --shard-mb 8 --valid-fraction {share} --jobs {args.jobs}"
        command = [sys.executable, "-m", "glassformer", "data", "encode", str(data), "--out", str(shards)]
        found["encode"] = watch([*command, *flags.split()], folder / "encode.log")
        found["encode"]["tokens_per_s"] = found["encode"]["tokens"] / found["encode"]["seconds"]
        row("encode", name, found["encode"])
        data.unlink()
        data = shards
    else:
        generate_reviews(data, args.source, size)
    for stage in ("train", "train, second run"):
        out = folder / "run"
        child = ["--child", args.task, str(data), str(out), str(args.steps), str(time.time())]
        found[stage] = watch([sys.executable, __file__, *child], folder / "train.log")
        row(f"{args.task}: {stage}", name, found[stage])
        shutil.rmtree(out)
    return found


def main() -> None:
    """Run the command."""
    if sys.argv[1:2] == ["--child"]:
        task, data, out, steps, started = sys.argv[2:]
        return train_here(task, data, out, int(steps), float(started))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=["lm", "classify"], default="lm")
    parser.add_argument("--sizes", type=int, nargs="+", help="bytes of text, or reviews")
    parser.add_argument("--dir", type=Path, default=Path("build/scale"), help="made, and emptied in the end")
    parser.add_argument("--source", type=Path, required=True, help="tiny Shakespeare, input.txt")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    sizes = args.sizes or ([20_000_000, 2_000_000_000] if args.task == "lm" else [1_000, 100_000])
    args.dir.mkdir(parents=True, exist_ok=True)
    os.environ["GLASSFORMER_CACHE"] = str(args.dir / "cache")
    head = ("stage", "size", "own MiB", "PSS MiB", "seconds", "first", "tokens/s", "at first")
    print("{:22}  {:>14}  {:>9}  {:>9}  {:>8}  {:>8}  {:>10}  {:>9}".format(*head))
    found = []
    for size in sizes:
        folder = args.dir / str(size)
        folder.mkdir()
        try:
            found.append(measure(args, size, folder))
        finally:
            shutil.rmtree(folder)
    for stage in found[0]:
        small, large = found[0][stage], found[-1][stage]
        ratios = {name: large[name] / small[name] for name in ("own", "pss", "tokens_per_s")}
        print(f"{stage}: largest over smallest: " + ", ".join(f"{name} {x:.2f}" for name, x in ratios.items()))
    print("load average:", Path("/proc/loadavg").read_text().split()[:3])


if __name__ == "__main__":
    main()
