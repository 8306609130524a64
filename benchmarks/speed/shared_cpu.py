"""Part f: training while other programs use the processor, as shipped and with threads that wait in other ways.

Torch's threads wait for each other at the end of every parallel region, by spinning. Beside another busy program one of
them is often not running, and the others spin for it; how long they do before they sleep is OpenMP's setting. As
shipped, glassformer has a thread less instead (`utils/cpu_threads.py`); in the other rows the number of threads is
fixed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.speed.child import Child
from benchmarks.speed.load import OtherLoad
from benchmarks.speed.options import Options
from benchmarks.speed.peers.serving import Settings
from benchmarks.speed.registry import PEERS
from benchmarks.speed.table import Figure, Section, busy
from benchmarks.speed.training import log, settle, spec_of, wait_for_quiet
from benchmarks.speed.workloads import save_data

FIXED = {"OMP_NUM_THREADS": str(os.cpu_count() or 1)}
WAITING: dict[str, dict[str, str]] = {
    "as shipped": {},
    "all threads": FIXED,
    "all, OMP_WAIT_POLICY=passive": FIXED | {"OMP_WAIT_POLICY": "passive"},
    **{f"all, GOMP_SPINCOUNT={n}": FIXED | {"GOMP_SPINCOUNT": str(n)} for n in (30, 300, 1000)},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
"""Variables of the trained process's environment, by what the table calls them."""
SETTLING_SECONDS = 4.0
"""Before a round is measured, steps for so long with the loops running; it measures what others use once a second."""
LOOPS = (0, 1, 2)
SHARED_WORKLOADS = ("a", "b", "c")
BATCHES = 2
"""Batches of a round, which can take long with other programs running."""
COLUMNS = (
    "workload",
    "threads",
    "alone, tokens/s",
    "÷ as shipped",
    "with one loop",
    "share",
    "with two",
    "share",
    "remarks",
)


@contextmanager
def busy_loops(n: int) -> Iterator[None]:
    """Run `n` busy processes within the block."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run_shared_cpu(options: Options) -> Section:
    """Measure the table of part f."""
    section = Section("(f) training while busy loops run", COLUMNS)
    shares: dict[tuple[str, str], str] = {}
    for name in SHARED_WORKLOADS:
        speeds, others = measured(name, options)
        for waiting, found in speeds.items():
            section.rows.append(
                cells(name, waiting, found, next(iter(speeds.values())), others[waiting], options.anyway)
            )
            if section.rows[-1][5] != "–" and waiting in ("as shipped", "all threads"):
                shares[waiting, name] = section.rows[-1][5]
            section.facts.append({"workload": name, "waiting": waiting, "speeds": found, "others": others[waiting]})
    for name in SHARED_WORKLOADS:
        if shares.keys() >= {("as shipped", name), ("all threads", name)}:
            own, fixed = shares["as shipped", name], f"with fixed threads: {shares['all threads', name]}"
            work = f"training {options.workload(name).title}, with a busy loop"
            section.summary.append((work, f"{own} of its speed without it", fixed, ""))
    section.notes.append(
        f"Interleaved rounds of {BATCHES} batches, {SETTLING_SECONDS} s after the loops started; medians with ranges. "
        "Shares are of the same row's speed alone. "
        "A loop is a process of the same priority that never waits."
    )
    return section


def measured(name: str, options: Options) -> tuple[dict[str, dict[int, list[float]]], dict[str, list[float | None]]]:
    """Return tokens/s of each way of waiting, by the number of concurrent loops; and the cores that others used."""
    w = options.workload(name)
    wanted = {key: value for key, value in WAITING.items() if not options.rows or key.startswith(options.rows)}
    speeds: dict[str, dict[int, list[float]]] = {waiting: {n: [] for n in LOOPS} for waiting in wanted}
    others: dict[str, list[float | None]] = {waiting: [] for waiting in wanted}
    with ExitStack() as closing, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        data, children = Path(folder) / "data.npz", dict[str, Child]()
        save_data(w, data)
        spec = spec_of(w, data, Settings("auto", "bucketed"))
        for waiting, variables in wanted.items():
            log(f"({name}) {waiting}: warming up")
            child = Child(PEERS["ours"].python, "benchmarks.speed.peers.ours", spec, options.variables | variables)
            children[waiting] = closing.enter_context(child)
            child.answer()
        for _ in options.rounds():
            for n in LOOPS:
                for waiting, child in children.items():
                    answer, cores = round_of(child, n, options)
                    speeds[waiting][n].append(answer["tokens"] / answer["seconds"])
                    others[waiting].append(cores)
                    log(f"({name}) {waiting}, {n} loops: {speeds[waiting][n][-1]:,.0f} tokens/s, load {cores or 0:.2f}")
    return speeds, others


def round_of(child: Child, n_loops: int, options: Options) -> tuple[dict[str, Any], float | None]:
    """Measure one round with concurrent loops, and the cores that others used, not counting the loops."""
    if not options.anyway:
        wait_for_quiet(options.wait)
    with busy_loops(n_loops):
        settle(options.settling(SETTLING_SECONDS), lambda: child.request(batches=1))
        with OtherLoad() as load:
            answer = child.request(batches=BATCHES)
    return answer, load.cores


def cells(
    name: str,
    waiting: str,
    found: dict[int, list[float]],
    shipped: dict[int, list[float]],
    others: list[float | None],
    anyway: bool,
) -> list[str]:
    """Return a row of the table."""
    shown, remark = busy(others, anyway)
    if not shown:
        return [name, waiting, *["–"] * 6, remark]
    alone, one, two = (Figure(found[n]) for n in LOOPS)
    shares = [f"{figure.median / alone.median:.2f}" for figure in (one, two)]
    to_shipped = f"{alone.median / Figure(shipped[0]).median:.2f}"
    return [name, waiting, alone.text(), to_shipped, one.text(), shares[0], two.text(), shares[1], remark]
