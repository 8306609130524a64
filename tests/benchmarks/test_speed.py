"""The speed benchmark: its arithmetic, and that it runs from end to end on models of no size. No figure is asserted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.speed import training
from benchmarks.speed.__main__ import main, write
from benchmarks.speed.options import read_options
from benchmarks.speed.peers.serving import Settings
from benchmarks.speed.registry import LOCKS, PEERS, rows_of
from benchmarks.speed.table import Figure, Section, busy, rounded
from benchmarks.speed.training import Row, cells, verdict
from benchmarks.speed.workloads import WORKLOADS


def test_a_busy_machine_s_row_is_refused_or_marked() -> None:
    assert busy([0.02, 0.05, 3.0], anyway=False) == (True, "")  # one moment is not the rule
    shown, message = busy([0.3, 0.5, 0.0], anyway=False)
    assert not shown and "0.30 cores" in message
    shown, message = busy([0.3, 0.5, 0.0], anyway=True)
    assert shown and message == "busy: others took 0.30 cores"


def test_three_significant_digits_and_medians_with_ranges() -> None:
    numbers = {17834.2: "17,800", 4.1249: "4.12", 0.07126: "0.0713", 5.0: "5.00", 12: "12.0", 0: "0"}
    assert {value: rounded(value) for value in numbers} == numbers
    assert Figure([3.0, 1.0, 2.0]).text() == "2.00 (1.00–3.00)" and Figure([2.0]).text() == "2.00"


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
