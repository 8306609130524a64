"""`train --watch` and `explain --follow` on the command line: what they refuse, start and end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.explain.test_report import Page
from tests.helpers.small_runs import FLAGS, write_table

from glassformer.cli import explain_follow
from glassformer.cli.main import main
from glassformer.explain.page import server
from glassformer.runs.checkpoints import snapshot_folders

WAITS = "import sys; sys.stdin.read()"
"""What stands for the page's process: it ends as the pipe is closed."""


class Started:
    """The processes that were started, each replaced by one that does nothing."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.environments: list[dict[str, str]] = []
        self.processes: list[subprocess.Popen[bytes]] = []

    def __call__(self, command: list[str], env: dict[str, str], stdin: int, stdout: int) -> subprocess.Popen[bytes]:
        self.commands.append(command)
        self.environments.append(env)
        process = subprocess.Popen([sys.executable, "-c", WAITS], stdin=stdin, stdout=stdout)
        self.processes.append(process)
        return process


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    started = Started()

    class Replaced:
        PIPE, DEVNULL, TimeoutExpired = subprocess.PIPE, subprocess.DEVNULL, subprocess.TimeoutExpired
        Popen = staticmethod(started)

    monkeypatch.setattr(explain_follow, "subprocess", Replaced)
    return started


def trained(folder: Path, name: str, *more: str) -> int:
    if not (table := folder / "table.csv").exists():
        write_table(folder)
    fixed = ("--steps", "20", "--epochs", "1000", "--threads", "1", "--deterministic")
    return main(["train", "classify", "--train-file", str(table), "--out", str(folder / name), *FLAGS, *fixed, *more])


def test_watching_changes_no_bit_and_ends_with_the_training(tmp_path: Path, started: Started) -> None:
    assert trained(tmp_path, "plain") == 0
    assert not started.commands
    assert trained(tmp_path, "watched", "--watch", "--no-browser") == 0
    ((_, _, code, *arguments),) = started.commands
    assert code == explain_follow.CHILD
    assert arguments == [str(tmp_path / "watched"), "--follow", "--control", "--device=cpu", "--no-browser"]
    assert started.environments[0]["OMP_NUM_THREADS"] == "1"
    assert started.processes[0].returncode == 0, "it has ended, as its pipe was closed"
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("plain", "watched")]
    assert weights[0] == weights[1]
    assert [step for step, _ in snapshot_folders(tmp_path / "watched" / "snapshots")] == [0, 16]
    assert main(["train", "--resume", str(tmp_path / "watched"), "--watch"]) == 0
    assert len(started.commands) == 1, "there is no step to watch"


def test_a_page_that_cannot_be_started_stops_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(explain_follow.subprocess, "Popen", refuse)
    assert trained(tmp_path, "run", "--watch") == 0
    assert capsys.readouterr().err.count("the page cannot be started: Cannot allocate memory") == 1


def test_the_address_is_repeated_when_the_training_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the training writes into the pipe makes its page print the address; the pipe's end ends the page."""
    reading, writing = os.pipe()
    os.write(writing, b"\n")
    os.close(writing)
    ended = threading.Event()

    def serve(followed: Any, on_ready: Any, **_: Any) -> None:
        on_ready("http://127.0.0.1:8317/?token=a")
        again.set()
        assert ended.wait(60)

    again = threading.Event()
    monkeypatch.setattr(server, "serve", serve)
    monkeypatch.setattr(explain_follow, "_announced", [])
    monkeypatch.setattr(explain_follow, "_ends_with_training", False)
    monkeypatch.setattr(explain_follow.os, "nice", lambda _: 0, raising=False)
    monkeypatch.setattr(explain_follow.os, "kill", lambda *_: ended.set())

    def read(fd: int, n: int, read: Any = os.read) -> bytes:
        assert fd != 0 or again.wait(60)
        return read(reading if fd == 0 else fd, n)

    monkeypatch.setattr(explain_follow.os, "read", read)
    assert explain_follow.as_child([str(tmp_path), "--follow", "--control", "--device=cpu", "--no-browser"]) == 0
    printed = capsys.readouterr().err
    os.close(reading)
    assert "Ctrl-C stops the training, which is saved; the page: http://127.0.0.1:8317/?token=a" in printed
    assert printed.rstrip().splitlines().count("the page: http://127.0.0.1:8317/?token=a") == 1


REFUSED = {
    "train imdb --watch --dry-run": "does not go with --dry-run",
    "train imdb --watch --overfit-batch": "does not go with --overfit-batch",
    "train imdb --watch --seeds 2": "does not go with --seeds",
    "explain . --control": "--control goes with --follow",
    "explain . text --follow": "--follow takes no text",
    "explain . --follow --checkpoint model": "--checkpoint does not go with --follow",
    "explain . --follow --compare b": "--compare does not go with --follow",
    "explain . --follow -o page.pdf": "--follow writes a page",
    "explain . --follow -o page.html --control": "a saved page cannot ask a training",
    "explain none --follow": "there is no folder none",
}


@pytest.mark.parametrize("command", REFUSED)
def test_refusals_are_a_sentence(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 2
    assert REFUSED[command] in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_replay_is_written(tmp_path: Path, started: Started, capsys: pytest.CaptureFixture[str]) -> None:
    assert trained(tmp_path, "run", "--watch") == 0
    assert main(["explain", str(tmp_path / "run"), "--follow", "-o", str(tmp_path / "replay.html")]) == 0
    assert "written:" in capsys.readouterr().err
    saved = Page((tmp_path / "replay.html").read_text(encoding="utf-8")).data()["training"]
    assert saved["now"]["state"] == "finished" and len(saved["answers"]) == len(saved["texts"]) * 4
