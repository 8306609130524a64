"""`train --watch` and `glassformer watch` on the command line: what they refuse, start and end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.explain.test_report import Page
from tests.helpers.small_runs import FLAGS, write_table

from glassformer.cli import explain
from glassformer.cli.main import main
from glassformer.runs.model_folder import step_folders

WAITS = "import sys; sys.stdin.read()"
"""What stands for the page's process: it ends as the pipe is closed."""


Started = list[tuple[list[str], dict[str, str], subprocess.Popen[bytes]]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """The command and the environment of each process that was started, and what does nothing in its place."""
    found: Started = []

    def start(command: list[str], env: dict[str, str], **pipes: int) -> subprocess.Popen[bytes]:
        found.append((command, env, subprocess.Popen([sys.executable, "-c", WAITS], **pipes)))
        return found[-1][-1]

    stands_for = {"Popen": start, "PIPE": subprocess.PIPE, "DEVNULL": subprocess.DEVNULL}
    monkeypatch.setattr(explain, "subprocess", SimpleNamespace(**stands_for))
    return found


def trained(folder: Path, name: str, *more: str) -> int:
    if not (table := folder / "table.csv").exists():
        write_table(folder)
    fixed = ("--steps", "20", "--epochs", "1000", "--threads", "1", "--deterministic")
    return main(["train", "classify", "--train-file", str(table), "--out", str(folder / name), *FLAGS, *fixed, *more])


def test_watching_changes_no_bit_and_ends_with_the_training_and_a_replay_is_written(
    tmp_path: Path, started: Started, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trained(tmp_path, "plain") == 0
    assert not started
    assert trained(tmp_path, "watched", "--watch", "--no-browser") == 0
    [((_, _, code, *arguments), environment, page)] = started
    run = tmp_path / "watched"
    assert code == explain.CHILD
    assert arguments == ["watch", str(run), "--control", "--device=cpu", "--no-browser"]
    assert environment["OMP_NUM_THREADS"] == "1" and page.returncode is not None, "it has ended"
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (tmp_path / "plain", run)]
    assert weights[0] == weights[1]
    assert [*step_folders(run / "snapshots")] == [0, 16]
    assert main(["train", "--resume", str(run), "--watch"]) == 0
    assert len(started) == 1, "there is no step to watch"
    assert main(["watch", str(run), "-o", str(tmp_path / "replay.html")]) == 0
    assert "written:" in capsys.readouterr().err
    saved = Page((tmp_path / "replay.html").read_text(encoding="utf-8")).data()["training"]
    assert saved["now"]["state"] == "finished" and len(saved["answers"]) == len(saved["texts"]) * 4


def test_a_page_that_cannot_be_started_stops_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(explain.subprocess, "Popen", refuse)
    assert trained(tmp_path, "run", "--watch") == 0
    assert capsys.readouterr().err.count("the page cannot be started: Cannot allocate memory") == 1


@pytest.mark.skipif("os.name == 'nt'", reason="signals are POSIX's")
def test_the_page_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", explain.CHILD, "watch", str(tmp_path), "--no-browser", "--port", "0"]
    page = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert page.stdin is not None and page.stdout is not None
    try:
        assert page.stdout.readline().startswith(b"http://127.0.0.1:")
        page.stdin.close()
        page.wait(60)
    finally:
        page.kill()
        page.stdout.close()


REFUSED = {
    "train imdb --watch --dry-run": "--watch does not go with --dry-run",
    "train imdb --watch --overfit-batch": "--watch does not go with --overfit-batch",
    "train imdb --watch --seeds 2": "--watch does not go with --seeds",
    "train imdb --dry-run --overfit-batch": "--overfit-batch does not go with --dry-run",
    "watch . text": "watch takes RUN; 2 came",
    "watch . -o page.pdf": "--out ends in .pdf",
    "watch none": "there is no folder none",
}


@pytest.mark.parametrize("command", REFUSED)
def test_refusals_are_a_sentence(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 2
    assert REFUSED[command] in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
