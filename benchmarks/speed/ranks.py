"""Part h: one process of as many threads as there are cores, against as many processes of one thread.

Threads share the work of every matrix product, processes the rows of every batch. Which is faster says how to train on
one machine without a GPU.
"""

from __future__ import annotations

import os
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.speed.child import Child
from benchmarks.speed.load import OtherLoad
from benchmarks.speed.options import Options
from benchmarks.speed.peers.serving import Settings
from benchmarks.speed.registry import PEERS
from benchmarks.speed.shared_cpu import busy_loops
from benchmarks.speed.table import Figure, Section, busy
from benchmarks.speed.training import log, spec_of, wait_for_quiet
from benchmarks.speed.workloads import save_data

LOOPS = (0, 1)
SHARED = ("a", "b", "c")
BATCHES = 4
COLUMNS = (
    "workload",
    "processes × threads",
    "alone, tokens/s",
    "÷ one process",
    "with one loop, tokens/s",
    "÷ one process",
    "remarks",
)


def layouts(cores: int) -> dict[str, tuple[int, int]]:
    """Return (processes, threads of each) by name in the table; the first is the reference."""
    return {f"1 × {cores}": (1, cores), f"{cores} × 1": (cores, 1)}


def run_ranks(options: Options) -> Section:
    """Measure the table of part h."""
    section = Section("(h) several processes against several threads, on all cores", COLUMNS)
    for name in SHARED:
        speeds, others = measured(name, options)
        one = next(iter(speeds.values()))
        for layout, found in speeds.items():
            section.rows.append(cells(name, layout, found, one, others[layout], options.anyway))
            section.facts.append({"workload": name, "layout": layout, "speeds": found, "others": others[layout]})
    section.notes.append(
        f"Interleaved rounds of {BATCHES} batches, medians with ranges; both have the same batches and loss curve. "
        "A loop is a process of the same priority that never waits."
    )
    return section


def measured(name: str, options: Options) -> tuple[dict[str, dict[int, list[float]]], dict[str, list[float | None]]]:
    """Return tokens/s of each layout, by the number of concurrent loops; and the cores that others used."""
    w, known = options.workload(name), layouts(options.threads or os.cpu_count() or 1)
    speeds: dict[str, dict[int, list[float]]] = {layout: {n: [] for n in LOOPS} for layout in known}
    others: dict[str, list[float | None]] = {layout: [] for layout in known}
    with ExitStack() as closing, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        data = Path(folder) / "data.npz"
        save_data(w, data)
        spec = spec_of(w, data, Settings("auto", "bucketed"))
        groups = {layout: start(spec, sizes, options, closing) for layout, sizes in known.items()}
        for _ in options.rounds():
            for n in LOOPS:
                for layout, group in groups.items():
                    speed, cores = round_of(group, n, options)
                    speeds[layout][n].append(speed)
                    others[layout].append(cores)
                    log(f"({name}) {layout}, {n} loops: {speed:,.0f} tokens/s, others {cores or 0:.2f}")
    return speeds, others


def start(spec: dict[str, Any], layout: tuple[int, int], options: Options, closing: ExitStack) -> list[Child]:
    """Start the processes of a layout and warm them up."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (processes, threads), group = layout, list[Child]()
    for rank in range(processes):
        rank_variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "MASTER_PORT": port}
        variables = options.variables | {name: str(value) for name, value in rank_variables.items()}
        variables["MASTER_ADDR"] = "127.0.0.1"
        if processes > 1:  # as torchrun does; one process chooses by itself, unless it is told
            variables["OMP_NUM_THREADS"] = str(threads)
        child = Child(PEERS["ours"].python, "benchmarks.speed.peers.ours_ranks", spec, variables)
        group.append(closing.enter_context(child))
    for child in group:
        child.answer()
    return group


def round_of(group: list[Child], n_loops: int, options: Options) -> tuple[float, float | None]:
    """Return tokens/s of one round with concurrent loops, and the cores that others used."""
    if not options.anyway:
        wait_for_quiet(options.wait)
    with busy_loops(n_loops), OtherLoad() as load, ThreadPoolExecutor(len(group)) as asking:
        measured = list(asking.map(lambda child: child.request(batches=BATCHES), group))
    return measured[0]["tokens"] / max(answer["seconds"] for answer in measured), load.cores


def cells(
    name: str,
    layout: str,
    found: dict[int, list[float]],
    one: dict[int, list[float]],
    others: list[float | None],
    anyway: bool,
) -> list[str]:
    """Return a row of the table."""
    shown, remark = busy(others, anyway)
    if not shown:
        return [name, layout, *["–"] * 4, remark]
    figures = []
    for n in LOOPS:
        figure = Figure(found[n])
        figures += [figure.text(), f"{figure.median / Figure(one[n]).median:.2f}"]
    return [name, layout, *figures, remark]
