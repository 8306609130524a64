"""A budget in minutes becomes a number of updates once, and from there the run is a function of the update."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from unittest import mock

import pytest
import torch
from tests.helpers.small import small

from glassformer.config import Config, TrainConfig
from glassformer.training import preparation
from glassformer.training.loop import Progress, copy_weights
from glassformer.training.preparation import Pace, batches_to_time, in_updates, measure_pace, settle_budget

PACE = Pace(step=0.1, validation=1.0, tokens_per_s=1000.0, padding=0.0)


def settled(pace: Pace, updates_per_epoch: float = 100, **train: object) -> TrainConfig:
    return in_updates(Config(train=TrainConfig(**train)), pace, updates_per_epoch).train


def test_minutes_become_updates_validations_included() -> None:
    found = settled(PACE, minutes=1.0)
    assert found.minutes is None and found.steps is not None and found.validate_every == 1.0
    seconds = found.steps * PACE.step + math.ceil(found.steps / 100) * PACE.validation
    assert 60 - 2 * PACE.step - PACE.validation <= seconds <= 60
    assert settled(replace(PACE, validation=0.0), minutes=1.0).steps == 600


def test_dear_validations_come_at_longer_intervals() -> None:
    """They may take 15% of the time: nine seconds, so four of two seconds, instead of one every ten updates."""
    found = settled(replace(PACE, validation=2.0), updates_per_epoch=10, minutes=1.0)
    assert found.steps is not None
    n_validations = math.ceil(found.steps / 10 / found.validate_every - 1e-9)
    assert n_validations == 4
    assert found.steps * PACE.step + n_validations * 2.0 == pytest.approx(60, abs=0.2)
    slow = settled(replace(PACE, validation=100.0), minutes=1.0)
    assert slow.steps == 1, "one validation is due however long it takes"


def test_other_budgets_stand_and_bound_minutes_too() -> None:
    config = Config(train=TrainConfig(epochs=3))
    assert in_updates(config, PACE, 100) is config
    assert settled(PACE, minutes=1.0, steps=7).steps == 7
    both = settled(PACE, minutes=1.0, epochs=2.0)
    assert both.epochs == 2.0 and both.steps is not None


def test_the_pace_is_measured_on_real_updates() -> None:
    """No bound on how fast: only that all is there and adds up."""
    run = small("translate", minutes=0.01)
    pace = measure_pace(run.context, run.new_state())
    assert pace.step > 0 and pace.validation > 0 and pace.tokens_per_s > 0 and 0 <= pace.padding < 1
    run = small("classify")
    state = run.new_state()
    before, random = copy_weights(state.tensors()), torch.get_rng_state()
    assert measure_pace(run.context, state).validation == 0.0, "not timed where nobody asks"
    after = state.tensors()
    assert before.keys() == after.keys() and all(torch.equal(t, after[name]) for name, t in before.items())
    assert state.progress == Progress(next_validation=1.0) and torch.equal(torch.get_rng_state(), random)


def test_the_pace_counts_the_making_of_batches() -> None:
    """As the training loop does, whose seconds a budget in minutes is compared with."""
    run = small("classify")
    make = run.task.make_batch
    run.task.make_batch = lambda corpus, index: (time.sleep(0.1), make(corpus, index))[1]
    assert measure_pace(run.context, run.new_state()).step >= 0.1


def test_a_tenth_of_a_short_run_is_timed() -> None:
    """Unless its budget is in minutes, which the speed decides."""
    assert batches_to_time(TrainConfig(epochs=None, steps=4), 100) == (3, 3)
    assert batches_to_time(TrainConfig(epochs=None, steps=50, accumulate=4), 100) == (8, 20)
    assert batches_to_time(TrainConfig(epochs=2.0, steps=5000), 60) == (8, 12)
    assert batches_to_time(TrainConfig(epochs=None, steps=5000), 100) == (8, 32)
    assert batches_to_time(TrainConfig(epochs=None, steps=4, minutes=1.0), 100) == (8, 32)


def test_the_validation_that_is_timed_is_of_the_task_as_it_was_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fitting chooses a translator's metric; only the length of what it writes is another."""
    run = small("translate", minutes=0.01)
    run.task.metric = "exact_match"
    watched = mock.Mock(side_effect=preparation.validation_scores)
    monkeypatch.setattr(preparation, "validation_scores", watched)
    measure_pace(run.context, run.new_state())
    timed = watched.call_args.args[0]
    assert timed.task.metric == "exact_match" and timed.task.config == timed.config
    assert timed.config.decode.max_new_tokens < run.config.decode.max_new_tokens == 24
    assert replace(timed.config, decode=run.config.decode) == run.config


def test_a_settled_budget_is_the_task_s_too() -> None:
    made = small("classify", epochs=None, minutes=0.01)
    run, _ = settle_budget(made.context, made.new_state())
    assert run.config.train.minutes is None and run.config.train.steps
    assert run.task.config == run.config
