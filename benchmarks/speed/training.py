"""Parts a to c: training, ours and every peer's, in rounds that take turns."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.speed.child import Child, ChildError
from benchmarks.speed.load import OtherLoad, wait_for_quiet
from benchmarks.speed.options import Options
from benchmarks.speed.peers.serving import Settings
from benchmarks.speed.registry import PEERS, precisions, rows_of
from benchmarks.speed.table import Figure, Section, busy, rounded
from benchmarks.speed.workloads import Workload, save_data

COLUMNS = ("implementation", "row", "{counted}/s", "÷ ours", "parameters", "padding", "peak MB", "warm-up s", "loss")
SETTLING_SECONDS = 2.5
"""Work before a round is measured; glassformer looks at what others use once a second."""


@dataclass
class Row:
    """One row while it is measured."""

    peer: str
    name: str
    settings: Settings
    child: Child | None = None
    about: dict[str, Any] = field(default_factory=dict)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    why_not: str = ""

    @property
    def title(self) -> str:
        """Return the peer's name in the table."""
        return PEERS[self.peer].title

    @property
    def speeds(self) -> Figure:
        """Return counted tokens/s of each round."""
        return Figure([r["tokens"] / r["seconds"] for r in self.rounds])

    @property
    def last_loss(self) -> float:
        """Return the mean loss of the last quarter of the curve, in nats."""
        curve = self.about["curve"]
        return statistics.fmean(curve[-max(1, len(curve) // 4) :])


def run_training(name: str, options: Options) -> Section:
    """Measure one workload: every row of every requested peer that has a model of its kind."""
    w = options.workload(name)
    rows = wanted_rows(w, options)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, ExitStack() as closing:
        data = Path(folder) / "data.npz"
        save_data(w, data)
        for row in rows:
            start(row, w, data, options, closing)
        for row in (row for _ in range(options.repeats) for row in rows):
            measure(row, options)
    return section_of(w, rows, options.anyway)


def wanted_rows(w: Workload, options: Options) -> list[Row]:
    """Return the requested rows; those of a peer that is not installed are marked so."""
    rows, known = [], precisions()
    for peer in (PEERS[name] for name in options.peers):
        if w.kind in peer.kinds and (reason := peer.why_not()):
            rows.append(Row(peer.name, "", Settings(), why_not=f"not run: {reason}"))
        elif w.kind in peer.kinds:
            found = rows_of(peer, known).items()
            rows += [Row(peer.name, label, each) for label, each in found if label in (options.rows or [label])]
    return rows


def start(row: Row, w: Workload, data: Path, options: Options, closing: ExitStack) -> None:
    """Start a row's process (`peers/serving.py`) and wait until it is warm, or note why that failed."""
    if row.why_not:
        return
    log(f"{row.title}, {row.name}: warming up")
    spec = {"workload": asdict(w), "data": str(data), "settings": asdict(row.settings), "seed": 0}
    peer = PEERS[row.peer]
    row.child = closing.enter_context(Child(peer.python, peer.module, spec, options.variables))
    try:
        row.about = row.child.answer()
    except ChildError as error:
        row.why_not = f"not run: {error}"


def measure(row: Row, options: Options) -> None:
    """Measure one round of a row, and the load of others. A process that has ended is not measured again."""
    if row.why_not:
        return
    assert row.child is not None
    if not options.anyway:
        wait_for_quiet(options.wait)
    try:
        began = time.monotonic()
        while not options.tiny and time.monotonic() - began < SETTLING_SECONDS:
            row.child.request(batches=1)
        with OtherLoad() as load:
            row.rounds.append(row.child.request())
    except ChildError as error:
        row.why_not = (
            f"ended after {len(row.rounds)} rounds: {error} (-9: the rows together may need more memory than there is)"
        )
        log(f"{row.title}, {row.name}: {row.why_not}")
        return
    row.others.append(load.cores)
    log(f"{row.title}, {row.name}: {row.speeds.values[-1]:,.0f} per second, others {load.cores:.2f} cores")


def section_of(w: Workload, rows: list[Row], anyway: bool) -> Section:
    """Return the table of one workload."""
    columns = tuple(column.format(counted=w.counted) for column in (*COLUMNS, "remarks"))
    section = Section(f"({w.name}) training: {w.title}", columns)
    ours = next((row for row in rows if row.peer == "ours" and row.rounds), None)
    reference = next((row for row in rows if row.peer == "torch" and row.rounds), ours)
    for row in rows:
        section.rows.append(cells(row, ours, *verdict(row, w, ours, reference, anyway)))
        settings = {"peer": row.title, "row": row.name, "settings": asdict(row.settings), "others": row.others}
        section.facts.append(settings | row.about | {"rounds": row.rounds, "why_not": row.why_not})
    section.facts.append({"workload": asdict(w)})
    section.notes.append(
        f"{max(len(row.rounds) for row in rows)} interleaved rounds per row, medians with ranges; {w.counted} exclude "
        f"padding. Loss: mean nats after {w.n_curve * 3 // 4}–{w.n_curve} steps on the same data."
    )
    return section


def verdict(row: Row, w: Workload, ours: Row | None, reference: Row | None, anyway: bool) -> tuple[bool, str]:
    """Return whether a row's figures may be shown, and its remarks: not run, void, of another size, busy."""
    if row.why_not:
        return False, row.why_not
    shown, remark = busy(row.others, anyway)
    remarks = [text for text in (row.about.get("chosen"), remark) if text]
    if reference is not None and abs(row.last_loss - reference.last_loss) > w.tolerance:
        shown = False
        remarks.append(f"void: its loss differs from {reference.last_loss:.3f} of {reference.title}")
    if ours is not None and abs(row.about["parameters"] / ours.about["parameters"] - 1) > 0.005:
        shown = False
        remarks.append("void: parameters differ by more than 0.5%")
    return shown, "; ".join(remarks)


def cells(row: Row, ours: Row | None, shown: bool, remarks: str) -> list[str]:
    """Return a row of the table; without figures if they may not be shown."""
    if row.why_not:
        return [row.title, row.name, *["–"] * (len(COLUMNS) - 2), remarks]
    ratio = "–" if ours is None else f"{row.speeds.median / ours.speeds.median:.2f}"
    last = row.rounds[-1]
    return [
        row.title,
        row.name,
        *([row.speeds.text(), ratio] if shown else ["–", "–"]),
        f"{row.about['parameters']:,}",
        f"{last['padding']:.1%}",
        rounded(last["peak_mb"]),
        rounded(row.about["warm_up"]),
        f"{row.last_loss:.3f}",
        remarks,
    ]


def log(text: str) -> None:
    """Print progress to stderr."""
    print(text, file=sys.stderr, flush=True)
