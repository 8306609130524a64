"""What is logged goes to an experiment tracker too, each step once, and no tracker stops a run."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.helpers.small_runs import FLAGS, SMALL, write_table
from tests.helpers.tiny_runs import Runs
from tests.helpers.trackers import Server, install

import glassformer
from glassformer.errors import UsageError
from glassformer.runs import tracking
from glassformer.runs.folder import RunFolder
from glassformer.runs.records import StepMetrics
from glassformer.runs.tracking import TRACKERS, Tracking, check_tracker, values_of
from glassformer.training import trainer

STEPS = SMALL | {"steps": 9, "save_every": 4, "validate_every": 100, "threads": 1}


class Stopped(Exception):
    """Ends a training as a kill does, with the log as it is."""


def stop_at(step: int) -> Any:
    def on_step(report: StepMetrics) -> None:
        if report.step == step:
            raise Stopped

    return on_step


@pytest.fixture(params=TRACKERS)
def tracker(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def server(tracker: str, monkeypatch: pytest.MonkeyPatch) -> Server:
    return install(tracker, monkeypatch)


def logged(out: Path) -> list[tuple[int, dict[str, float]]]:
    """Return the steps of a log and the numbers of each, as they should be sent."""
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    flat = []
    for row in rows:
        numbers = {k: v for k, v in row.items() if not isinstance(v, dict) and k not in ("step", "best", "paused")}
        tables = {f"{k}/{n}": v for k, table in row.items() if isinstance(table, dict) for n, v in table.items()}
        flat.append((row["step"], numbers | tables))
    return flat


@pytest.mark.parametrize("first", [2, 6])
def test_a_run_and_its_resumption_are_one_run_of_the_tracker(
    tracker: str, server: Server, tmp_path: Path, first: int
) -> None:
    """Stopped before the first checkpoint, and between two; the steps since the last are done again."""
    settings = STEPS | {"train_file": write_table(tmp_path)}
    with pytest.raises(Stopped):
        glassformer.train("classify", out=tmp_path / "run", on_step=stop_at(first), track=tracker, **settings)
    [run] = server.runs.values()
    assert [step for step, _ in run.sent] == [*range(1, first + 1)] and len(run.ended) == 1
    glassformer.resume(tmp_path / "run", track=tracker)
    assert [*server.runs.values()] == [run]
    assert [step for step, _ in run.sent] == [*range(1, 10)]
    losses = [values["loss"] for _, values in logged(tmp_path / "run")]
    assert [values["loss"] for _, values in run.sent] == losses
    assert {*run.sent[-1][1]} >= {"loss", "lr", "grad_norm", "valid/accuracy"}
    assert "update_ratios/embedding.weight" in run.sent[0][1]
    if tracker != "tensorboard":
        assert run.settings["train.steps"] in (9, "9") and run.ended == [tracker == "trackio", True]
        assert run.name.startswith("run")
    assert {*json.loads((tmp_path / "run" / "tracking.json").read_text("utf-8"))} == {tracker}


def test_what_is_sent_is_what_is_logged(tracker: str, server: Server, tmp_path: Path) -> None:
    glassformer.train("classify", out=tmp_path / "run", track=tracker, train_file=write_table(tmp_path), **STEPS)
    [run] = server.runs.values()
    assert run.sent == logged(tmp_path / "run")


@pytest.mark.parametrize("call", ["init", "log", "close"])
def test_a_tracker_that_fails_is_left(
    call: str, tracker: str, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(now: str) -> None:
        if now == call:
            raise SystemExit("the server is away") if call == "log" else ConnectionError("the server is away")

    server.hook = fail
    run = glassformer.train("classify", out=tmp_path / "run", track=tracker, train_file=write_table(tmp_path), **STEPS)
    assert run is not None and RunFolder(tmp_path / "run").finished
    assert len(logged(tmp_path / "run")) == 9
    err = capsys.readouterr().err
    assert err.count(f"the tracker {tracker} is left") == 1 and "the server is away" in err


@pytest.mark.parametrize("call", ["init", "log", "close"])
def test_a_tracker_that_hangs_is_left(
    call: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, never = install("wandb", monkeypatch), threading.Event()
    server.hook = lambda now: None if now != call else never.wait() and None
    monkeypatch.setattr(tracking, "PATIENCE", 0.1)
    try:
        glassformer.train("classify", out=tmp_path / "run", track="wandb", train_file=write_table(tmp_path), **STEPS)
        assert RunFolder(tmp_path / "run").finished
        assert capsys.readouterr().err.count("no answer within 0.1 s") == 1
    finally:
        never.set()


def test_a_full_queue_waits_and_then_gives_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server, never = install("wandb", monkeypatch), threading.Event()
    server.hook = lambda now: None if now != "init" else never.wait() and None
    monkeypatch.setattr(tracking, "MAX_WAITING", 2)
    monkeypatch.setattr(tracking, "PATIENCE", 0.1)
    sender = Tracking("wandb", RunFolder(tmp_path))
    try:
        with sender.running(glassformer.Config(), 0):
            for step in range(1, 9):
                sender(StepMetrics(step, loss=1.0))
        assert sender._waiting.qsize() == 2 and "no answer" in sender._failure
    finally:
        never.set()


def test_one_that_is_not_logged_in_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise it would prompt."""
    server = install("wandb", monkeypatch)
    monkeypatch.setattr(sys.modules["wandb"], "login", lambda *, prompt: False)
    glassformer.train("classify", out=tmp_path / "run", track="wandb", train_file=write_table(tmp_path), **STEPS)
    assert not server.runs and "not logged in" in capsys.readouterr().err


def test_what_a_tracker_prints_is_not_on_stdout(
    tracker: str, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    glassformer.train("classify", out=tmp_path / "run", track=tracker, train_file=write_table(tmp_path), **STEPS)
    assert capsys.readouterr().out == "" and server.runs


def test_a_package_that_is_not_installed_is_named_before_anything_is_written(
    tracker: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, tracker, None)
    with pytest.raises(UsageError, match=f"needs the package {tracker}") as error:
        glassformer.train("classify", out=tmp_path / "run", track=tracker, train_file=write_table(tmp_path), **STEPS)
    assert error.value.hint == f'install it: pip install "glassformer[{tracker}]"'
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="needs the package"):
        glassformer.resume(tmp_path / "run", track=tracker)


def test_what_cannot_be_tracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no tracker is called 'wanddb'") as error:
        check_tracker("wanddb")
    assert error.value.hint == "there are: tensorboard, trackio, wandb, mlflow"
    install("wandb", monkeypatch)
    for mode in ("dry_run", "overfit_batch"):
        with pytest.raises(UsageError, match="nothing is logged"):
            glassformer.train("classify", track="wandb", train_file=write_table(tmp_path), **STEPS | {mode: True})


def test_each_seed_is_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = install("wandb", monkeypatch)
    settings = STEPS | {"train_file": write_table(tmp_path), "steps": 3}
    with pytest.raises(Stopped):
        glassformer.train("classify", out=tmp_path / "two", seeds=2, on_step=stop_at(2), track="wandb", **settings)
    glassformer.resume(tmp_path / "two", track="wandb")
    assert [run.name for run in server.runs.values()] == ["two/seed-1", "two/seed-2"]
    assert [[step for step, _ in run.sent] for run in server.runs.values()] == [[1, 2, 3]] * 2


def test_every_task_and_ensembles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runs: Runs) -> None:
    server = install("mlflow", monkeypatch)
    settings = STEPS | {"steps": 2, "text": {"max_len": 16}}
    text = {"tokenizer": "char", "max_len": 16}
    glassformer.train("lm", out=tmp_path / "lm", track="mlflow", train_file=runs.book, **settings | {"text": text})
    pairs = {"src_file": runs.src, "tgt_file": runs.tgt}
    glassformer.train("translate", out=tmp_path / "translate", track="mlflow", **settings | pairs)
    together = settings["model"] | {"ensemble_size": 2}
    classify = STEPS | {"steps": 2, "model": together, "train_file": runs.table}
    glassformer.train("classify", out=tmp_path / "classify", track="mlflow", **classify)
    assert [run.name for run in server.runs.values()] == ["lm", "translate", "classify"]
    for run in server.runs.values():
        assert run.sent == logged(tmp_path / run.name) and len(run.sent) == 2


def test_without_it_nothing_is_imported_and_the_log_is_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install("wandb", monkeypatch)
    table = write_table(tmp_path)
    glassformer.train("classify", out=tmp_path / "a", track="wandb", train_file=table, **STEPS)
    code = "import sys; from glassformer.cli.main import main; main(sys.argv[1:]); "
    code += "print('glassformer.runs.tracking' in sys.modules)"
    flags = [*FLAGS, *"--steps 9 --save-every 4 --validate-every 100 --threads 1".split()]
    command = [sys.executable, "-c", code, "train", "classify", "--train-file", str(table), *flags]
    done = subprocess.run([*command, "--out", str(tmp_path / "b")], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False" and not (tmp_path / "b" / "tracking.json").exists()
    timed = {"tokens_per_s", "seconds", "wait"}
    a, b = ([(s, {n: x for n, x in v.items() if n not in timed}) for s, v in logged(tmp_path / n)] for n in "ab")
    assert a == b
    assert (tmp_path / "a" / "config.toml").read_bytes() == (tmp_path / "b" / "config.toml").read_bytes()


def test_only_the_first_process_tracks(tmp_path: Path) -> None:
    def of(is_main: bool) -> Any:
        return SimpleNamespace(group=SimpleNamespace(is_main=is_main))

    folder = RunFolder(tmp_path)
    assert trainer._tracking("wandb", folder, of(False)) is None and trainer._tracking(None, folder, of(True)) is None
    assert isinstance(trainer._tracking("wandb", folder, of(True)), Tracking)


def test_values_are_finite_numbers() -> None:
    report = StepMetrics(3, loss=1.5, grad_norm=float("inf"), valid={"loss": float("nan"), "accuracy": 0.5}, best=True)
    assert values_of(report) == {"loss": 1.5, "valid/accuracy": 0.5}


def test_a_record_of_ids_that_is_damaged_begins_a_new_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = install("wandb", monkeypatch)
    settings = STEPS | {"train_file": write_table(tmp_path)}
    with pytest.raises(Stopped):
        glassformer.train("classify", out=tmp_path / "run", on_step=stop_at(6), track="wandb", **settings)
    (tmp_path / "run" / "tracking.json").write_text("{", encoding="utf-8")
    glassformer.resume(tmp_path / "run", track="wandb")
    assert len(server.runs) == 2 and len(json.loads((tmp_path / "run" / "tracking.json").read_text("utf-8"))) == 1


def test_the_command_says_what_was_tracked(cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = install("mlflow", monkeypatch)
    flags = [*FLAGS, "--steps", "3", "--threads", "1", "--train-file", write_table(tmp_path), "--out", tmp_path / "run"]
    done = cli("train", "classify", *flags, "--track", "mlflow", "--json")
    assert done.code == 0 and json.loads(done.out)["task"] == "classify"
    assert len(server.runs["run0"].sent) == 3
    assert "was tracked before" in cli("train", "--resume", tmp_path / "run").err
    assert "was tracked before" not in cli("train", "--resume", tmp_path / "run", "--track", "mlflow").err
    assert cli("train", "--resume", tmp_path / "run", "--track", "x").code == 2
    assert len(server.runs) == 1 and len(server.runs["run0"].sent) == 3
