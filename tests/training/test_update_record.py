"""What the first and every fiftieth step log: how far each matrix moved, how often was clipped, how long data took."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.helpers.small import small, steps_of

from glassformer.runs import records
from glassformer.runs.records import StepMetrics
from glassformer.training import loop
from glassformer.training.loop import TrainState, copy_weights


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
