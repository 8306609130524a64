"""The speed benchmark: its arithmetic, and that it runs from end to end on models of no size. No figure is asserted."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmarks.speed import load, training
from benchmarks.speed.__main__ import main, write
from benchmarks.speed.options import read_options
from benchmarks.speed.peers.serving import Settings, make_batch
from benchmarks.speed.registry import LOCKS, PEERS, rows_of
from benchmarks.speed.table import Figure, Section, busy, merged, rounded, write_between
from benchmarks.speed.training import Row, cells, verdict
from benchmarks.speed.workloads import IGNORE_INDEX, WORKLOADS, Workload, load_data, make_texts, save_data, tiny
from tests.helpers.for_each import for_each


@pytest.mark.parametrize("ended", [False, True])
def test_what_this_process_and_its_children_used_is_not_of_others(ended: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process has the time of a child that has ended; waiting for the disk and stolen time are idle."""

    def process(user: float, of_children: float = 0.0, children: tuple[Any, ...] = ()) -> Any:
        times = SimpleNamespace(user=user, system=1.0, children_user=of_children, children_system=0.0)
        return SimpleNamespace(cpu_times=lambda: times, children=lambda recursive: children)

    times = SimpleNamespace(user=100, nice=20, system=30, idle=4000, iowait=50, irq=6, softirq=7, steal=8)
    this = process(10, of_children=41) if ended else process(10, children=(process(40),))
    monkeypatch.setattr(load.psutil, "cpu_times", lambda: times)
    monkeypatch.setattr(load.psutil, "Process", lambda: this)
    assert load.seconds_of_others() == 100 + 20 + 30 + 6 + 7 - 11 - 41


def test_a_busy_machine_s_row_is_refused_or_marked() -> None:
    assert busy([0.02, 0.05, 3.0], anyway=False) == (True, "")  # one moment is not the rule
    shown, message = busy([0.3, 0.5, 0.0], anyway=False)
    assert not shown and "0.30 cores" in message
    shown, message = busy([0.3, 0.5, 0.0], anyway=True)
    assert shown and message == "busy: others took 0.30 cores"


@for_each(
    ("value", "text"),
    [(17834.2, "17,800"), (4.1249, "4.12"), (0.07126, "0.0713"), (5.0, "5.00"), (12, "12.0"), (0, "0")],
)
def test_three_significant_digits(value: float, text: str) -> None:
    assert rounded(value) == text


def test_figures_are_medians_with_ranges() -> None:
    assert Figure([3.0, 1.0, 2.0]).text() == "2.00 (1.00–3.00)"
    assert Figure([2.0]).text() == "2.00"


def batch_of(w: Workload, n: int = 3):
    return make_batch(w, make_texts(w, n), np.arange(n))


@pytest.mark.parametrize("name", WORKLOADS)
def test_plans_come_back_from_the_file(name: str, tmp_path: Path) -> None:
    w = tiny(WORKLOADS[name])
    save_data(w, tmp_path / "data.npz")
    texts, plans = load_data(tmp_path / "data.npz")
    assert len(plans["bucketed"]) == w.n_batches and len(plans["curve"]) == w.n_curve
    again = make_texts(w, len(texts))
    assert all(np.array_equal(a, b) for a, b in zip(vars(texts).values(), vars(again).values(), strict=True))


def test_labels_are_shifted_by_one_and_padding_counts_nothing() -> None:
    batch = batch_of(WORKLOADS["b"])
    assert batch.tgt_in is not None
    scored = batch.labels != IGNORE_INDEX
    assert np.array_equal(batch.tgt_in[:, 1:][scored[:, :-1] & scored[:, 1:]], batch.labels[:, :-1][scored[:, 1:]])
    assert batch.n_tokens == scored.sum() and batch.n_real < batch.n_slots
    lm = batch_of(WORKLOADS["c"])
    assert np.array_equal(lm.ids[:, 1:], lm.labels[:, :-1])


def row(peer: str, seconds: list[float], loss: float = 1.0, parameters: int = 1000) -> Row:
    about = {"parameters": parameters, "curve": [9.0, 9.0, 9.0, loss], "warm_up": 1.0}
    rounds = [{"seconds": s, "tokens": 600, "padding": 0.25, "peak_mb": 100.0} for s in seconds]
    return Row(peer, "row", Settings(), about=about, rounds=rounds, others=[0.0] * len(seconds))


def test_a_row_is_measured_against_ours() -> None:
    line = cells(row("torch", [6.0, 5.0, 10.0]), row("ours", [2.0, 3.0, 4.0]), True, "")
    assert line[2:6] == ["100 (60.0–120)", "0.50", "1,000", "25.0%"] and len(line) == len(training.COLUMNS) + 1


def test_rows_that_are_not_the_same_work_are_void() -> None:
    w, ours = WORKLOADS["b"], row("ours", [1.0])
    assert verdict(row("torch", [1.0], loss=1.1), w, ours, ours, False) == (True, "")
    shown, message = verdict(row("torch", [1.0], loss=1.3), w, ours, ours, False)
    assert not shown and "void: its loss" in message
    shown, message = verdict(row("torch", [1.0], parameters=1006), w, ours, ours, False)
    assert not shown and "parameters" in message
    assert "–" in cells(row("torch", [1.0]), ours, shown, message)


def test_a_table_goes_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- speed -->\nold\n<!-- /speed -->\nafter\n")
    section = Section("title", ("a", "b"), [["1", "x | y"]])
    write_between(page, "speed", section.markdown())
    assert page.read_text() == (
        "before\n<!-- speed -->\n**title**\n\n| a | b |\n| --- | --- |\n| 1 | x \\| y |\n<!-- /speed -->\nafter\n"
    )
    with pytest.raises(ValueError, match="other"):
        write_between(page, "other", "text")


def test_a_row_that_ends_is_said_and_the_others_go_on(tmp_path: Path) -> None:
    """As when the kernel kills one for memory: the others are measured, and closing it is no error."""
    w, options = tiny(WORKLOADS["b"]), read_options(["--tiny", "--anyway", "--threads", "1"])
    save_data(w, tmp_path / "data.npz")
    row = training.Row("ours", "as shipped", Settings())
    with ExitStack() as closing:
        training.start(row, w, tmp_path / "data.npz", options, closing)
        training.measure(row, options)
        assert row.child is not None
        row.child.process.kill()
        training.measure(row, options)
        training.measure(row, options)
    assert len(row.rounds) == len(row.others) == 1 and "ended after 1 rounds: exit code -9" in row.why_not


def test_parts_that_were_not_measured_again_stay() -> None:
    before = [Section("b", ("x",), part="b", date="1"), Section("d", ("x",), part="d", date="1")]
    now = [Section("d", ("x",), part="d", date="2"), Section("a", ("x",), part="a", date="2")]
    assert [(s.part, s.date) for s in merged(before, now)] == [("a", "2"), ("b", "1"), ("d", "2")]


def test_every_peer_has_its_file_its_lock_and_its_rows() -> None:
    files = {path.stem for path in (LOCKS.parent).glob("*.py")}
    for peer in PEERS.values():
        assert peer.module in files
        if peer.environment:
            lines = (LOCKS / f"{peer.environment}.txt").read_text().split()
            assert lines and all("==" in line for line in lines)
            assert {"fp32", "fp32 oneDNN", "bf16"} <= rows_of(peer, ["fp32", "bf16"]).keys()
            assert not any("bf16" in row for row in rows_of(peer, ["fp32"]))
    ours = rows_of(PEERS["ours"], ["fp32", "bf16"])
    assert len(ours) == 7 and ours["as chosen"].precision == "auto", "the choice, and the six it chooses from"


def test_unknown_parts_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_options(["--only", "z"])
    assert "there is no 'z'" in capsys.readouterr().err


@pytest.mark.slow
def test_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ours in translation training, tiny; a peer that is not installed is "not run"."""
    page, found = tmp_path / "page.md", tmp_path / "speed.json"
    page.write_text("<!-- speed -->\n<!-- /speed -->\n")
    flags = ["--peers", "ours,joeynmt", "--tiny", "--repeats", "2", "--anyway", "--threads", "1"]
    flags += ["--rows", "fp32,as chosen"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.speed.registry.ENVIRONMENTS", tmp_path / "none")
        main(["--only", "b", *flags, "--json", str(found), "--write", str(page)])
    [section] = json.loads(found.read_text())["sections"]
    ours = [fact for fact in section["facts"] if fact.get("peer") == "glassformer"]
    assert [len(fact["rounds"]) for fact in ours] == [2, 2]
    assert "not run: not installed" in page.read_text() and "glassformer" in page.read_text()
    assert capsys.readouterr().out.count("| glassformer |") == 2
    again = read_options(["--json", str(found), "--write", str(page)])
    write([Section("(a) again", ("x",), part="a")], again)
    assert [section["part"] for section in json.loads(found.read_text())["sections"]] == ["a", "b"]
    assert "(b) training" in page.read_text() and "Measured on 20" in page.read_text()
