"""What a training logs and shows: how far each matrix moved, how often was clipped, how long data took, how far it is,
and what a task counts of its texts.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.small import small, steps_of
from tests.helpers.small_runs import SMALL, Killed, kill_at, write_table

import glassformer
from glassformer.decode.jobs import map_forked
from glassformer.errors import UsageError
from glassformer.runs import records
from glassformer.runs.records import DataRecord, StepMetrics
from glassformer.training import loop
from glassformer.training.loop import TrainState, copy_weights
from glassformer.training.preparation import describe_splits
from glassformer.training.progress import TrainingProgress, check_tensorboard, values_of
from glassformer.utils import console
from glassformer.utils.console import announced
from glassformer.utils.formatting import counted, duration
from glassformer.utils.safe_read import from_json


@pytest.fixture(autouse=True)
def every_fourth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "UPDATES_EVERY", 4)


def matrices(state: TrainState) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in state.model.named_parameters() if p.dim() > 1}


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd", "muon"])
def test_ratios_are_those_of_the_step(optimizer: str) -> None:
    """Recomputed from the weights before and after; also with a moving average, which the step must not touch."""
    run = small("lm", optimizer=optimizer, epochs=6)
    state, before = run.new_state(), matrices(run.new_state())

    def check(report: StepMetrics) -> None:
        nonlocal before
        after = matrices(state)
        logged = report.update_ratios
        assert (logged is not None) == (report.clipped is not None) == (report.wait is not None)
        assert (logged is not None) == (report.step in (1, 4, 8, 12, 16, 20))
        if logged is not None:
            expected = {name: ((after[name] - w).norm() / after[name].norm()).item() for name, w in before.items()}
            assert logged == pytest.approx(expected, rel=1e-3)
            assert min(logged.values()) > 0
        before = after

    steps_of(state, run.context, 20, check)


def test_a_frozen_matrix_is_left_out_and_one_without_a_gradient_is_zero() -> None:
    run = small("lm", epochs=6)
    state = run.new_state()
    names = list(matrices(state))
    frozen, unused = names[-1], names[-2]
    parameters = dict(state.model.named_parameters())
    parameters[frozen].requires_grad_(False)
    parameters[unused].register_hook(torch.zeros_like)
    state.restart(replace(run.config.train, weight_decay=0.0))
    ratios = run.run(state, most=1)[0].update_ratios
    assert ratios is not None and frozen not in ratios
    assert ratios[unused] == 0.0 and sum(ratio == 0.0 for ratio in ratios.values()) == 1


def test_zeros_that_move_and_infinities_can_be_logged() -> None:
    model = torch.nn.ParameterDict({name: torch.nn.Parameter(torch.zeros(2, 2)) for name in "abc"})
    before = copy_weights(dict(model.named_parameters()))
    with torch.no_grad():
        model["b"].fill_(1.0)
        model["c"].fill_(torch.inf)
    ratios = loop.update_ratios(model, before)
    assert ratios == {"a": 0.0, "b": 1.0}
    json.dumps(ratios, allow_nan=False)


def test_the_share_that_was_clipped_is_that_of_the_norms_since_the_last() -> None:
    run = small("lm", epochs=6, max_grad_norm=0.0)
    reports = run.run(run.new_state(), most=8)
    assert [report.clipped for report in reports if report.clipped is not None] == [0.0] * 3, "never clipped"
    norms = sorted(report.grad_norm for report in reports)
    limit = (norms[3] + norms[4]) / 2
    run = small("lm", epochs=6, max_grad_norm=limit)
    reports = run.run(run.new_state(), most=8)
    clipped = [float(report.grad_norm > limit) for report in reports]
    shares = [reports[0].clipped, reports[3].clipped, reports[7].clipped]
    assert shares == [clipped[0], sum(clipped[1:4]) / 3, sum(clipped[4:8]) / 4] and 0 < sum(clipped) < 8


def test_the_share_of_time_spent_making_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that making a batch advances by 3 and a step by 1."""
    now = [0.0]

    def taking(seconds: float, work: Any) -> Any:
        return lambda *args: (now.append(now[-1] + seconds), work(*args))[1]

    monkeypatch.setattr(loop, "local_batches", taking(3.0, loop.local_batches))
    monkeypatch.setattr(loop, "optimizer_step", taking(1.0, loop.optimizer_step))
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now[-1])
    run = small("lm", validate_every=100.0)
    assert [report.wait for report in run.run(run.new_state(), most=5)] == [0.75, None, None, 0.75, None]


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
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=clock))  # not that of servers beside this test

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


def test_event_files_hold_what_is_logged_and_a_resumed_run_continues_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, made = ModuleType("tensorboard"), [mock.Mock(), mock.Mock()]
    package.__spec__ = ModuleSpec("tensorboard", None)
    writer = mock.Mock(side_effect=made)
    monkeypatch.setitem(sys.modules, "tensorboard", package)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=writer))
    settings: Any = SMALL | {"steps": 9, "save_every": 4, "validate_every": 100, "threads": 1}
    settings |= {"train_file": write_table(tmp_path), "tensorboard": True}
    with pytest.raises(Killed):
        glassformer.train("classify", out=tmp_path / "run", on_step=kill_at(6), **settings)
    glassformer.resume(tmp_path / "run")
    # The steps since the checkpoint are done again.
    folder = str(tmp_path / "run" / "tensorboard")
    assert writer.call_args_list == [mock.call(folder, purge_step=None), mock.call(folder, purge_step=5)]
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


@for_each("own", [{"n_emoji": 3}, {"lengths": 2, "sha256": 1, "unknown_rate": 5}, {"n_words": 1, "n": 9}, {}])
def test_counts_of_the_task_are_recorded(own: dict[str, int]) -> None:
    context = small("classify").context
    corpus = replace(context.train, stats={**context.train.stats, **own})
    record = describe_splits(replace(context, train=corpus))["train"]
    own.pop("n", None)
    assert record.counts == (own or None) and record.n == len(context.train)
    assert record.n_tokens == context.train.stats["n_tokens"]
    as_json = DataRecord(splits={"train": record}).as_json()
    assert from_json(DataRecord, as_json, "data.json").train.counts == (own or None)
