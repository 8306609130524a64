from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from tests.helpers.for_each import for_each

from glassformer.decode.jobs import map_forked
from glassformer.runs.records import StepMetrics
from glassformer.training.progress import TrainingProgress
from glassformer.utils import console
from glassformer.utils.console import announced
from glassformer.utils.formatting import counted, duration


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def report(step: int, **more: Any) -> StepMetrics:
    facts = {"epoch": 0.5, "loss": 2.5, "lr": 1e-3, "grad_norm": 0.8, "tokens_per_s": 12345.0, "padding": 0.04}
    facts |= {"step": step, "progress": step / 100, "eta_seconds": 80.0, "seconds": 1.0}
    return StepMetrics(**{**facts, **more})


def test_the_loops_reports_are_what_is_shown() -> None:
    assert TrainingProgress.__call__.__annotations__["report"] == type(report(1)).__name__


def test_plain_lines_now_and_then_and_at_each_validation(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    progress = TrainingProgress("nats per token", clock)
    for step in range(1, 41):
        clock.now = step * 0.5
        valid = {"loss": 2.0, "accuracy": 0.75} if step == 7 else None
        progress(report(step, valid=valid, best=valid is not None))
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["step 1", "step 7", "step 21"]
    assert lines[0] == (
        "step 1  epoch 0.50  loss 2.5000 nats per token  lr 1.00e-03  grad 0.80  12,345 tokens/s  padding 4%  "
        "left 1 min 20 s"
    )
    assert lines[1] == "step 7  epoch 0.50  validation: loss 2.0000  accuracy 0.7500  (best)"


def test_a_pause_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    progress = TrainingProgress("nats per token", clock)
    for step in range(1, 5):
        progress(report(step, paused=step == 3))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["step 1", "step 3"]
    assert [line.endswith("  paused") for line in lines] == [False, True]


@for_each(
    ("seconds", "message"),
    [
        (0, "0 s"),
        (5.32, "5.3 s"),
        (9.97, "10 s"),
        (59.4, "59 s"),
        (60, "1 min 00 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 05 min"),
        (-1, "0 s"),
    ],
)
def test_durations(seconds: float, message: str) -> None:
    assert duration(seconds) == message


@for_each(("n", "message"), [(0, "0 texts"), (1, "1 text"), (1203, "1,203 texts")])
def test_how_many(n: int, message: str) -> None:
    assert counted(n, "texts") == message


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(console.time, "monotonic", clock)
    return clock


def test_a_long_pass_over_a_split_says_how_far_it_is(caplog: pytest.LogCaptureFixture, clock: Clock) -> None:
    caplog.set_level(logging.INFO, "glassformer")
    for seconds, expected in ((0.5, []), (4.0, ["scored 3 of 6 batches  left 12 s"])):
        caplog.clear()
        done = []
        for batch in announced("abcdef", 6, "scored"):
            done.append(batch)
            clock.now += seconds
        assert "".join(done) == "abcdef" and caplog.messages == expected


def test_what_starts_slowly_is_not_taken_for_slow(caplog: pytest.LogCaptureFixture, clock: Clock) -> None:
    caplog.set_level(logging.INFO, "glassformer")

    def answers() -> Iterator[int]:
        clock.now += 1000.0  # a library is imported
        for number in range(4):
            yield number
            clock.now += 10.0

    assert [*announced(answers(), 4, "answered", unit="rows")] == [0, 1, 2, 3]
    assert caplog.messages[0] == "answered 1 of 4 rows  left 30 s"


def test_a_long_translation_says_how_far_it_is(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "PROGRESS_SECONDS", 0.0)
    caplog.set_level(logging.INFO, "glassformer")
    for n_workers in (1, 2):
        caplog.clear()
        assert map_forked(str.upper, "abc", n_workers) == ["A", "B", "C"]
        assert [message[:23] for message in caplog.messages] == ["decoded 1 of 3 batches ", "decoded 2 of 3 batches "]
