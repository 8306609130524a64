"""Parts a to c: training, ours and every peer's, in rounds that take turns."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.speed.child import Child, ChildError, environment
from benchmarks.speed.load import MOST_OTHERS, OtherLoad, other_cores
from benchmarks.speed.options import Options
from benchmarks.speed.peers.serving import Settings
from benchmarks.speed.registry import PEERS, ROOT, precisions, rows_of
from benchmarks.speed.table import Figure, Section, busy, machine, rounded
from benchmarks.speed.workloads import Workload, save_data

COLUMNS = (
    "implementation",
    "row",
    "{counted}/s",
    "÷ ours",
    "parameters",
    "padding",
    "step ÷ floor",
    "peak MB",
    "warm-up s",
    "loss",
    "remarks",
)
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
    others: list[float | None] = field(default_factory=list)
    why_not: str = ""
    our_speeds: list[float] = field(default_factory=list)
    """Speeds of ours in the rounds that this row was measured in."""

    @property
    def title(self) -> str:
        """Return the peer's name in the table."""
        return PEERS[self.peer].title

    @property
    def speeds(self) -> list[float]:
        """Return counted tokens/s of each round."""
        return [r["tokens"] / r["seconds"] for r in self.rounds]

    @property
    def last_loss(self) -> float:
        """Return the mean loss of the last quarter of the curve, in nats."""
        curve = self.about["curve"]
        return statistics.fmean(curve[-max(1, len(curve) // 4) :])

    @property
    def facts(self) -> dict[str, Any]:
        """Return the row for the JSON file."""
        facts = {
            "peer": self.title,
            "row": self.name,
            "settings": asdict(self.settings),
            "others": self.others,
            "our_speeds": self.our_speeds,
        }
        return facts | self.about | {"rounds": self.rounds, "why_not": self.why_not}

    @staticmethod
    def from_facts(facts: dict[str, Any]) -> Row:
        """Return the row from the JSON file."""
        peer = next(name for name, peer in PEERS.items() if peer.title == facts["peer"])
        about = {name: facts[name] for name in ("parameters", "curve", "warm_up", "chosen") if name in facts}
        kept = {name: facts[name] for name in ("rounds", "others", "why_not", "our_speeds")}
        return Row(peer, facts["row"], Settings(**facts["settings"]), about=about, **kept)


def run_training(name: str, options: Options) -> Section:
    """Measure one workload: every row of every requested peer that has a model of its kind."""
    w = options.workload(name)
    rows = wanted_rows(w, options)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        data = Path(folder) / "data.npz"
        save_data(w, data)
        floor = floor_of(spec_of(w, data, Settings(precisions()[-1], "bucketed")))
        groups = groups_of(rows, options.at_once)
        interrupted = interruptible(lambda: [run_group(group, w, data, options) for group in groups])
    for round_ in (round_ for group in groups for row in group for round_ in row.rounds):
        round_["floor"] = floor["seconds"]
    earlier = measured_before(name, w, rows, options)
    section = section_of(w, joined([earlier, *groups]), floor, options)
    section.interrupted = interrupted
    return section


def measured_before(name: str, w: Workload, rows: list[Row], options: Options) -> list[Row]:
    """Return the rows that the JSON file has of this workload on this machine and that are not measured now, with ours.

    Each row is compared with ours, and with the floor, of its own session.
    """
    if options.json is None or not options.json.exists():
        return []
    sections = json.loads(options.json.read_text(encoding="utf-8"))["sections"]
    found = [section for section in sections if section["part"] == name and section["machine"] == machine()]
    if not found or found[0]["facts"][-1]["workload"] != asdict(w):
        return []
    now = {(row.title, row.name) for row in rows if row.peer != "ours" and row.rounds}
    earlier = [Row.from_facts(facts) for facts in found[0]["facts"][:-1] if (facts["peer"], facts["row"]) not in now]
    return [] if all(row.peer == "ours" for row in earlier) else earlier


def groups_of(rows: list[Row], most: int) -> list[list[Row]]:
    """Return the rows in groups of at most `most`, since all together may need too much memory.

    Ours are in every group, and each row is compared with ours in its group.
    """
    ours, others = [[row for row in rows if (row.peer == "ours") == own] for own in (True, False)]
    n = max(1, -(-len(others) // max(1, most - len(ours))))
    size = -(-len(others) // n)
    our_groups = [[Row(row.peer, row.name, row.settings) for row in ours] for _ in range(n)]
    return [our_groups[i] + others[i * size : (i + 1) * size] for i in range(n)]


def run_group(rows: list[Row], w: Workload, data: Path, options: Options) -> None:
    """Warm rows up and measure them in turns."""
    with ExitStack() as closing:
        for row in rows:
            row.why_not = row.why_not or start(row, spec_of(w, data, row.settings), options, closing)
        running = [row for row in rows if not row.why_not]
        try:
            for row in (row for _ in options.rounds() for row in running):
                measure(row, options)
        finally:
            ours = next((row for row in running if row.peer == "ours"), None)
            for row in running:
                row.our_speeds = ours.speeds if ours is not None else []


def joined(groups: list[list[Row]]) -> list[Row]:
    """Return one row of each peer, in their order, with ours of all groups together.

    A later row replaces an earlier one, unless it was not measured.
    """
    found: dict[tuple[str, str], Row] = {}
    for row in (row for group in groups for row in group):
        before = found.get((row.peer, row.name))
        if before is not None and row.peer == "ours":
            together = {name: getattr(before, name) + getattr(row, name) for name in ("rounds", "others", "our_speeds")}
            row = replace(row, about=row.about or before.about, **together)
        if before is None or row.rounds or not before.rounds:
            found[row.peer, row.name] = row
    return sorted(found.values(), key=lambda row: list(PEERS).index(row.peer))


def interruptible(measuring: Callable[[], object]) -> bool:
    """Measure; whether Ctrl-C came before the end. What is measured by then is shown."""
    try:
        measuring()
    except KeyboardInterrupt:
        log("interrupted: what is measured is shown")
        return True
    return False


def wanted_rows(w: Workload, options: Options) -> list[Row]:
    """Return the requested rows; those of a peer that is not installed are marked so."""
    rows, known = [], precisions()
    for name in options.peers:
        peer = PEERS[name]
        if w.kind not in peer.kinds:
            continue
        if reason := peer.why_not():
            rows.append(Row(name, "", Settings(), why_not=f"not run: {reason}"))
            continue
        for label, settings in rows_of(peer, known).items():
            if not options.rows or label in options.rows:
                rows.append(Row(name, label, settings))
    return rows


def spec_of(w: Workload, data: Path, settings: Settings) -> dict[str, Any]:
    """Return the spec of a peer's process (`peers/serving.py`)."""
    return {"workload": asdict(w), "data": str(data), "settings": asdict(settings), "seed": 0}


def start(row: Row, spec: dict[str, Any], options: Options, closing: ExitStack) -> str:
    """Start a row's process and wait until it is warm; why that failed, or nothing."""
    log(f"{row.title}, {row.name}: warming up")
    peer = PEERS[row.peer]
    module = f"benchmarks.speed.peers.{peer.module}"
    row.child = closing.enter_context(Child(peer.python, module, spec, options.variables))
    try:
        row.about = row.child.answer()
    except ChildError as error:
        return f"not run: {error}"
    return ""


def measure(row: Row, options: Options) -> None:
    """Measure one round of a row, and the load of others. A process that has ended is not measured again."""
    assert row.child is not None
    child = row.child
    if row.why_not:
        return
    if not options.anyway:
        wait_for_quiet(options.wait)
    try:
        settle(options.settling(SETTLING_SECONDS), lambda: child.request(batches=1))
        with OtherLoad() as load:
            row.rounds.append(child.request())
    except ChildError as error:
        row.why_not = (
            f"ended after {len(row.rounds)} rounds: {error} (-9: the rows together may need more memory than there is)"
        )
        log(f"{row.title}, {row.name}: {row.why_not}")
        return
    row.others.append(load.cores)
    log(f"{row.title}, {row.name}: {row.speeds[-1]:,.0f} per second, others {load.cores or 0:.2f} cores")


def settle(seconds: float, work: Callable[[], object]) -> None:
    """Do some of the work, unmeasured: who looks at how busy others are has just seen the row before."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        work()


def wait_for_quiet(most: float) -> None:
    """Wait until others take less than a tenth of a core, but not for ever."""
    began = time.monotonic()
    while (other_cores(0.5) or 0) > MOST_OTHERS and time.monotonic() - began < most:
        time.sleep(1)


def floor_of(spec: dict[str, Any]) -> dict[str, float]:
    """Return seconds and FLOPs of the matrix products of a round, timed in a separate process."""
    log("the floor: every matrix product alone")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(spec, file)
        file.flush()
        command = [sys.executable, "-m", "benchmarks.speed.floor", file.name]
        finished = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment())
    return json.loads(finished.stdout)


def section_of(w: Workload, rows: list[Row], floor: dict[str, float], options: Options) -> Section:
    """Return the table of one workload."""
    for row in rows:
        row.why_not = row.why_not or ("" if row.rounds else "not measured: interrupted")
    columns = tuple(column.format(counted=w.counted) for column in COLUMNS)
    section = Section(f"({w.name}) training: {w.title}", columns)
    ours = next((row for row in rows if row.peer == "ours" and row.rounds), None)
    reference = next((row for row in rows if row.peer == "torch" and row.rounds), ours)
    verdicts = [verdict(row, w, ours, reference, options.anyway) for row in rows]
    for row, (shown, remarks) in zip(rows, verdicts, strict=True):
        section.rows.append(cells(row, shown, remarks))
    comparable = [row for row, (shown, _) in zip(rows, verdicts, strict=True) if shown and row.our_speeds]
    others = [row for row in comparable if row.peer != "ours"]
    if ours in comparable and others:
        best = max(others, key=share_of_ours)
        figures = [f"{Figure(row.speeds).text()} {w.counted}/s" for row in (ours, best)]
        ratio = f"{1 / share_of_ours(best):.2f} ×"
        section.summary.append((f"training {w.title}", figures[0], f"{best.title}, {best.name}: {figures[1]}", ratio))
    section.facts = [row.facts for row in rows] + [{"floor": floor, "workload": asdict(w)}]
    least, achieved = floor["seconds"], floor["flops"] / floor["seconds"] / 1e9
    section.notes.append(
        f"Floor of a round: {least:.2f} s for {floor['flops'] / 1e9:,.0f} GFLOP of matrix products, {achieved:,.0f} "
        f"GFLOP/s; {rounds_text(rows)} interleaved rounds per row, medians with ranges, ours in all of them; "
        f"{w.counted} exclude padding. "
        f"Loss: mean nats after {w.n_curve * 3 // 4}–{w.n_curve} steps on the same data."
    )
    return section


def rounds_text(rows: list[Row]) -> str:
    """Return how often the rows were measured, except ours, whose rounds are those of all groups."""
    others = [len(row.rounds) for row in rows if row.rounds and row.peer != "ours"]
    counts = sorted({*(others or [max(len(row.rounds) for row in rows)])})
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def share_of_ours(row: Row) -> float:
    """Return a row's speed relative to ours, in the rounds that both ran."""
    return Figure(row.speeds).median / Figure(row.our_speeds).median


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


def cells(row: Row, shown: bool, remarks: str) -> list[str]:
    """Return a row of the table; without figures if they may not be shown."""
    if row.why_not:
        return [row.title, row.name, *["–"] * 8, remarks]
    speed, floors = Figure(row.speeds), Figure([r["seconds"] / r["floor"] for r in row.rounds])
    ratio = f"{share_of_ours(row):.2f}" if row.our_speeds else "–"
    figures = [speed.text(), ratio] if shown else ["–", "–"]
    last = row.rounds[-1]
    over_floor = f"{floors.median:.2f}" if shown else "–"
    return [
        row.title,
        row.name,
        *figures,
        f"{row.about['parameters']:,}",
        f"{last['padding']:.1%}",
        over_floor,
        rounded(last["peak_mb"]),
        rounded(row.about["warm_up"]),
        f"{row.last_loss:.3f}",
        remarks,
    ]


def log(text: str) -> None:
    """Print progress to stderr."""
    print(text, file=sys.stderr, flush=True)
