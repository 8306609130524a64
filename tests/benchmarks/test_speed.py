"""The speed benchmark: its arithmetic, and that it runs from end to end on models of no size. No figure is asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.speed import ranks, shared_cpu, table, training, translating
from benchmarks.speed.__main__ import main, write
from benchmarks.speed.floor import Product, forward_products, step_products
from benchmarks.speed.load import Stat, busy_ticks, own_ticks
from benchmarks.speed.options import PARTS, read_options
from benchmarks.speed.peers.serving import Settings, make_batch
from benchmarks.speed.registry import LOCKS, PEERS, rows_of
from benchmarks.speed.table import Figure, Section, busy, merged, rounded, write_between
from benchmarks.speed.training import Row, cells, verdict
from benchmarks.speed.workloads import IGNORE_INDEX, WORKLOADS, Workload, load_data, make_texts, save_data, tiny
from tests.helpers.for_each import for_each

STAT = "cpu  100 20 30 4000 50 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n"


def test_the_load_counts_what_is_not_idle_and_not_ours() -> None:
    assert busy_ticks(STAT) == 100 + 20 + 30 + 6 + 7  # neither idle, nor waiting for the disk, nor stolen
    line = "42 (a (strange) name) S 7 1 1 0 -1 0 0 0 0 0 11 22 33 44 20 0 1 0 5"
    assert Stat.parse(line) == Stat(parent=7, ticks=11 + 22 + 33 + 44)
    tree = {1: Stat(0, 1000), 7: Stat(1, 1), 42: Stat(7, 10), 43: Stat(42, 100), 50: Stat(1, 5000)}
    assert own_ticks(tree, 7) == 111


def test_what_a_child_used_is_not_lost_when_it_ends() -> None:
    before = {7: Stat(1, 1), 42: Stat(7, 10)}
    assert own_ticks(before, 7) == own_ticks({7: Stat(1, 11)}, 7)  # its parent has its ticks once it is reaped


def test_a_busy_machine_s_row_is_refused_or_marked() -> None:
    assert busy([0.02, 0.05, 3.0], anyway=False) == (True, "")  # one moment is not the rule
    shown, message = busy([0.3, 0.5, 0.0], anyway=False)
    assert not shown and "0.30 cores" in message
    shown, message = busy([0.3, 0.5, 0.0], anyway=True)
    assert shown and message == "busy: others took 0.30 cores"
    assert busy([None, None], anyway=False) == (True, "load unknown")


@for_each(
    ("value", "text"),
    [(17834.2, "17,800"), (4.1249, "4.12"), (0.07126, "0.0713"), (5.0, "5.00"), (12, "12.0"), (0, "0")],
)
def test_three_significant_digits(value: float, text: str) -> None:
    assert rounded(value) == text


def test_figures_are_medians_with_ranges() -> None:
    assert Figure([3.0, 1.0, 2.0]).text() == "2.00 (1.00–3.00)"
    assert Figure([2.0]).text() == "2.00"


def test_the_short_table_holds_what_was_measured_only() -> None:
    measured, other = ("a work", "1 s", "another: 2 s", "2 ×"), ("a work", "1 s", "slow: 9 s (extrapolated)", "9 ×")
    text = table.short_table([Section("a", ("x",), summary=[measured, other])])
    assert text.splitlines()[2:] == ["| a work | 1 s | another: 2 s | 2 × |"]


def batch_of(w: Workload, n: int = 3):
    return make_batch(w, make_texts(w, n), np.arange(n))


@for_each("name", WORKLOADS)
def test_the_floor_counts_the_flops_of_the_formulas(name: str) -> None:
    """The known formulas a token, forward; twice as many more for the backward pass."""
    w = WORKLOADS[name]
    batch = batch_of(w)
    rows, width = batch.ids.shape
    d, f, s = w.d_model, w.d_ff, rows * width
    expected = w.n_layers * s * (8 * d * d + 4 * d * f + 4 * width * d)
    if w.kind == "classify":
        expected += 2 * rows * d * 2
    if w.kind == "lm":
        expected += 2 * s * d * w.vocab_size
    if batch.tgt_in is not None:
        length = batch.tgt_in.shape[1]
        t = rows * length
        expected += w.n_layers * t * (8 * d * d + 4 * d * f + 4 * length * d)
        expected += w.n_layers * (4 * d * d * t + 4 * d * d * s + 4 * width * d * t)
        expected += 2 * d * w.vocab_size * int((batch.labels != IGNORE_INDEX).sum())
    forward = sum(product.flops * times for product, times in forward_products(w, batch).items())
    assert forward == expected
    assert sum(product.flops * times for product, times in step_products(w, [batch]).items()) == 3 * expected


def test_gradients_of_a_product() -> None:
    d_x, d_w = Product(2, 3, 5, 7).backward()
    assert d_x == Product(2, 3, 7, 5) and d_w == Product(2, 5, 3, 7)


@pytest.mark.parametrize("name", WORKLOADS)
def test_plans_have_the_same_examples_and_come_back_from_the_file(name: str, tmp_path: Path) -> None:
    w = tiny(WORKLOADS[name])
    save_data(w, tmp_path / "data.npz")
    texts, plans = load_data(tmp_path / "data.npz")
    assert sorted(np.concatenate(plans["bucketed"])) == sorted(np.concatenate(plans["shuffled"]))
    assert len(plans["bucketed"]) == len(plans["shuffled"]) == w.n_batches and len(plans["curve"]) == w.n_curve
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
    rounds = [{"seconds": s, "tokens": 600, "padding": 0.25, "peak_mb": 100.0, "floor": 1.5} for s in seconds]
    return Row(peer, "row", Settings(), about=about, rounds=rounds, others=[0.0] * len(seconds))


def test_a_row_is_measured_against_ours_and_the_floor() -> None:
    ours, theirs = row("ours", [2.0, 3.0, 4.0]), row("torch", [6.0, 5.0, 10.0])
    theirs.our_speeds = ours.speeds
    line = cells(theirs, True, "")
    assert line[2:7] == ["100 (60.0–120)", "0.50", "1,000", "25.0%", "4.00"]


def test_rows_that_do_not_fit_in_memory_together_are_compared_with_ours_beside_them() -> None:
    groups = training.groups_of([row("ours", []), *(named("torch", name) for name in "abcd")], 3)
    assert [[r.peer for r in group] for group in groups] == [["ours", "torch", "torch"]] * 2
    for group, seconds in zip(groups, (1.0, 2.0), strict=True):
        for r in group:
            r.rounds = row("x", [seconds if r.peer == "ours" else 4.0]).rounds
            r.others, r.our_speeds = [0.0], [600 / seconds]
    ours, *others = training.joined(groups)
    assert ours.speeds == [600, 300] and len(ours.others) == 2
    assert [training.share_of_ours(r) for r in others] == [0.25, 0.25, 0.5, 0.5]
    assert len(training.groups_of([row("torch", [])], 1)) == 1


def named(peer: str, name: str) -> Row:
    return replace(row(peer, []), name=name)


def test_rows_of_an_earlier_sitting_stay_with_ours_beside_them(tmp_path: Path) -> None:
    file, w, floor = tmp_path / "speed.json", WORKLOADS["b"], {"seconds": 2.0, "flops": 1.0}
    options = read_options(["--json", str(file)])
    before = [row("ours", [1.0]), replace(row("torch", [4.0]), our_speeds=[600.0])]
    section = training.section_of(w, before, floor, options)
    section.part, section.machine = "b", table.machine()
    file.write_text(json.dumps({"sections": [vars(section)]}), encoding="utf-8")
    now = [row("ours", [2.0]), replace(row("joeynmt", [3.0]), our_speeds=[300.0])]
    earlier = training.measured_before("b", w, now, options)
    ours, torch, joey = training.joined([earlier, now])
    assert ours.speeds == [600, 300] and [training.share_of_ours(r) for r in (torch, joey)] == [0.25, 2 / 3]
    assert torch.facts == before[1].facts
    # Measured anew they take its place; of another machine or workload nothing stays.
    assert training.measured_before("b", w, [*now, row("torch", [1.0])], options) == []
    assert training.measured_before("b", replace(w, dropout=0.5), now, options) == []
    assert training.joined([earlier, [row("torch", [])]])[1].speeds == [150]


def test_rows_that_are_not_the_same_work_are_void() -> None:
    w, ours = WORKLOADS["b"], row("ours", [1.0])
    assert verdict(row("torch", [1.0], loss=1.1), w, ours, ours, False) == (True, "")
    shown, message = verdict(row("torch", [1.0], loss=1.3), w, ours, ours, False)
    assert not shown and "void: its loss" in message
    shown, message = verdict(row("torch", [1.0], parameters=1006), w, ours, ours, False)
    assert not shown and "parameters" in message
    assert "–" in cells(row("torch", [1.0]), shown, message)


def test_translations_that_are_shorter_are_another_work() -> None:
    assert translating.as_long([[1, 2, 3], [4]], [[1, 2], [3, 4]])
    assert not translating.as_long([[1, 2, 3]], [[1, 2, 3, 4]])
    assert translating.same_share([[1, 2], [3]], [[1, 2], [4]]) == 0.5


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
        assert training.start(row, training.spec_of(w, tmp_path / "data.npz", row.settings), options, closing) == ""
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
    short = [Section("d", ("x",), part="d", date="3", interrupted=True)]
    assert [(s.part, s.date) for s in merged(now, short)] == [("a", "2"), ("d", "2")]


def test_every_peer_has_its_file_its_lock_and_its_rows() -> None:
    files = {path.stem for path in (LOCKS.parent).glob("*.py")}
    for peer in PEERS.values():
        assert peer.module in files
        if peer.environment:
            lines = (LOCKS / f"{peer.environment}.txt").read_text().split()
            assert lines and all("==" in line for line in lines)
            assert {"defaults", "fp32", "fp32 oneDNN", "bf16"} <= rows_of(peer, ["fp32", "bf16"]).keys()
            assert not any("bf16" in row for row in rows_of(peer, ["fp32"]))
    ours = rows_of(PEERS["ours"], ["fp32", "bf16"])
    assert len(ours) == 7 and ours["as chosen"].precision == "auto", "the choice, and the six it chooses from"


def test_unknown_parts_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_options(["--only", "z"])
    assert "there is no 'z'" in capsys.readouterr().err


@pytest.mark.slow
def test_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ours in translation training and translating, tiny; a peer that is not installed is "not run"."""
    page, found = tmp_path / "page.md", tmp_path / "speed.json"
    page.write_text("<!-- speed -->\n<!-- /speed -->\n")
    flags = ["--peers", "ours,joeynmt", "--tiny", "--repeats", "2", "--anyway", "--threads", "1", "--sentences", "8"]
    flags += ["--rows", "fp32,as chosen,defaults"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.speed.registry.ENVIRONMENTS", tmp_path / "none")
        assert main(["--only", "b,d", *flags, "--json", str(found), "--write", str(page)]) == 0
    message, table = json.loads(found.read_text()), page.read_text()
    training, translation = message["sections"]
    assert [len(fact["rounds"]) for fact in training["facts"] if fact.get("rounds")] == [2] * len(
        [fact for fact in training["facts"] if fact.get("peer") == "glassformer"]
    )
    assert "not run: not installed" in table and "glassformer" in table
    assert translation["rows"][0][:2] == ["glassformer", "fp32"] and translation["rows"][0][7] == "100%"
    assert capsys.readouterr().out.count("| glassformer |") >= 2
    again = read_options(["--json", str(found), "--write", str(page)])
    write([Section("(a) again", ("x",), part="a")], again)
    assert [section["part"] for section in json.loads(found.read_text())["sections"]] == ["a", "b", "d"]
    assert "(b) training" in page.read_text() and "Measured on 20" in page.read_text()


@pytest.mark.slow
def test_run_shared_cpu_measures_busy_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """One workload, one way to wait: three speeds, and the loops that were started are gone."""
    monkeypatch.setattr(shared_cpu, "WAITING", {"as shipped": {}})
    monkeypatch.setattr(shared_cpu, "SHARED_WORKLOADS", ("c",))
    options = read_options(["--tiny", "--repeats", "1", "--anyway", "--threads", "1", "--batches", "1"])
    section = shared_cpu.run_shared_cpu(options)
    assert [len(row) for row in section.rows] == [len(shared_cpu.COLUMNS)]
    assert all(len(section.facts[0]["speeds"][n]) == 1 for n in shared_cpu.LOOPS)


def test_shares_are_of_the_same_row_s_speed_alone() -> None:
    found, shipped = {0: [100.0], 1: [60.0], 2: [25.0]}, {0: [80.0], 1: [8.0], 2: [4.0]}
    line = shared_cpu.cells("a", "passive", found, shipped, [0.0], anyway=False)
    assert line[2:8] == ["100", "1.25", "60.0", "0.60", "25.0", "0.25"]


def test_help_tells_every_part() -> None:
    root = Path(__file__).parents[2]
    message = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed", "--help"],
        capture_output=True,
        text=True,
        cwd=root,
        env=dict(os.environ, PYTHONPATH=str(root / "src")),
        check=True,
    ).stdout
    assert all(f"\n  {part}  " in message for part in PARTS if part != "b6")


@pytest.mark.slow
def test_processes_are_measured_against_threads_on_the_same_batches() -> None:
    options = read_options(["--tiny", "--repeats", "1", "--anyway", "--threads", "2", "--batches", "1"])
    speeds, others = ranks.measured("c", options)
    assert speeds.keys() == others.keys() == {"1 × 2", "2 × 1"}
    assert all(len(found[n]) == 1 and found[n][0] > 0 for found in speeds.values() for n in (0, 1))
    line = ranks.cells("c", "2 × 1", speeds["2 × 1"], speeds["1 × 2"], [0.0], anyway=False)
    assert len(line) == len(ranks.COLUMNS) and line[-1] == ""
