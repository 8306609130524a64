from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from tests.helpers.small_runs import SMALL, Killed, kill_at, write_table

import glassformer
from glassformer.decode.jobs import map_forked
from glassformer.errors import UsageError
from glassformer.runs.records import StepMetrics
from glassformer.training.progress import TrainingProgress, check_tensorboard, values_of
from glassformer.utils import console
from glassformer.utils.console import announced
from glassformer.utils.formatting import counted, duration


def report(step: int, **more: Any) -> StepMetrics:
    return StepMetrics(step, 0.5, 2.5, 1e-3, 0.8, 12345.0, 0.04, 1.0, step / 100, eta_seconds=80.0, **more)


def test_plain_lines_now_and_then_and_at_each_validation_and_pause(capsys: pytest.CaptureFixture[str]) -> None:
    clock = mock.Mock()
    progress = TrainingProgress("nats per token", clock)
    for step in range(1, 41):
        clock.return_value = step * 0.5
        valid = {"loss": 2.0, "accuracy": 0.75} if step == 7 else None
        progress(report(step, valid=valid, best=valid is not None, paused=step == 9))
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert captured.out == "" and [line.split("  ")[0] for line in lines] == ["step 1", "step 7", "step 9", "step 29"]
    assert lines[0] == (
        "step 1  epoch 0.50  loss 2.5000 nats per token  lr 1.00e-03  grad 0.80  12,345 tokens/s  padding 4%  "
        "left 1 min 20 s"
    )
    assert lines[1] == "step 7  epoch 0.50  validation: loss 2.0000  accuracy 0.7500  (best)"
    assert [line.endswith("  paused") for line in lines] == [False, False, True, False]


def test_durations_and_numbers() -> None:
    seconds = {0: "0 s", 5.32: "5.3 s", 59.4: "59 s", 60: "1 min 00 s", 7500: "2 h 05 min", -1: "0 s"}
    assert {value: duration(value) for value in seconds} == seconds
    assert [counted(n, "texts") for n in (0, 1, 1203)] == ["0 texts", "1 text", "1,203 texts"]


def test_a_long_pass_over_a_split_says_how_far_it_is(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What starts slowly, as where a library is imported, is not taken for slow."""
    caplog.set_level(logging.INFO, "glassformer")
    clock = mock.Mock(return_value=0.0)
    monkeypatch.setattr(console.time, "monotonic", clock)

    def batches(start: float, each: float) -> Iterator[str]:
        clock.return_value += start
        for letter in "abcdef":
            yield letter
            clock.return_value += each

    message = "scored 3 of 6 batches  left 12 s"
    for start, each, expected in ((0.0, 0.5, []), (0.0, 4.0, [message]), (1000.0, 4.0, [message])):
        caplog.clear()
        assert "".join(announced(batches(start, each), 6, "scored")) == "abcdef" and caplog.messages == expected


def test_a_long_translation_says_how_far_it_is(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "PROGRESS_SECONDS", 0.0)
    caplog.set_level(logging.INFO, "glassformer")
    for n_workers in (1, 2):
        caplog.clear()
        assert map_forked(str.upper, "abc", n_workers) == ["A", "B", "C"]
        assert [message[:23] for message in caplog.messages] == ["decoded 1 of 3 batches ", "decoded 2 of 3 batches "]


STEPS = SMALL | {"steps": 9, "save_every": 4, "validate_every": 100, "threads": 1}


def test_event_files_hold_what_is_logged_and_a_resumed_run_continues_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, made = ModuleType("tensorboard"), list[mock.Mock]()
    package.__spec__ = ModuleSpec("tensorboard", None)
    writer = SimpleNamespace(
        SummaryWriter=lambda *given, **more: made.append(mock.Mock(given=(*given, more))) or made[-1]
    )
    monkeypatch.setitem(sys.modules, "tensorboard", package)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", writer)
    settings: Any = STEPS | {"train_file": write_table(tmp_path), "tensorboard": True}
    with pytest.raises(Killed):
        glassformer.train("classify", out=tmp_path / "run", on_step=kill_at(6), **settings)
    glassformer.resume(tmp_path / "run")
    # The steps since the checkpoint are done again.
    folder = str(tmp_path / "run" / "tensorboard")
    assert [each.given for each in made] == [(folder, {"purge_step": None}), (folder, {"purge_step": 5})]
    assert all(each.close.called for each in made)
    calls = [[call.args for call in each.add_scalar.call_args_list] for each in made]
    assert [{step for *_, step in each} for each in calls] == [{*range(1, 7)}, {*range(5, 10)}]
    sent = {(name, step): value for each in calls for name, value, step in each}
    for line in (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        names = ["lr", "grad_norm", *(f"valid/{name}" for name in row.get("valid", {}))]
        assert sent["loss", row["step"]] == row["loss"] and all((name, row["step"]) in sent for name in names)


def test_a_missing_package_is_named() -> None:
    with pytest.raises(UsageError, match="needs the package tensorboard") as caught:
        check_tensorboard(True)
    assert 'pip install "glassformer[tensorboard]"' in caught.value.hint
    check_tensorboard(False)


def test_values_are_finite_numbers_by_name() -> None:
    report = StepMetrics(3, loss=1.0, lr=float("nan"), valid={"accuracy": 0.5, "f1": float("inf")}, best=True)
    assert values_of(report) == {"loss": 1.0, "valid/accuracy": 0.5}
