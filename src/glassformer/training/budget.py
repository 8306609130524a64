"""How fast this machine trains this run, and what a budget in minutes is in steps.

The speed is measured once, before the run begins, on real steps of its model, which are then undone. From there the
learning rate and the end of the run are functions of the step alone: `--minutes 10` is, to the last bit, the
run that `--steps` with the number found would have been, and can be repeated and resumed.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from glassformer.config import Config, TrainConfig
from glassformer.training.loop import local_batches, optimizer_step
from glassformer.training.state import RunContext, TrainState
from glassformer.training.validation import Validator

WARM_UP, TIMED, FEWEST = 8, 32, 3
"""Steps before the clock counts (caches and thread pools are cold), steps it counts, and the fewest it does."""
MOST_TIMED = 0.1
"""The most of a run that is timed before it, where the speed is only reported."""
PATIENCE_SECONDS = 4.0
"""A measurement ends after this, or after MEASURING of a budget in minutes."""
MEASURING, VALIDATING = 0.02, 0.15
"""The most of a budget in minutes that measuring and validating may take."""


@dataclass(frozen=True)
class Pace:
    """Seconds of a step, its batches made, and of a validation, real tokens per second, and the share of padding."""

    step: float
    validation: float
    tokens_per_s: float
    padding: float


def measure_pace(context: RunContext, state: TrainState) -> Pace:
    """Time real steps, and a validation where the budget is in minutes; the state is then as before.

    Of several processes the first has the clock.
    """
    with state.trial(context.config.train):
        return _measure(context, state)


def _measure(context: RunContext, state: TrainState) -> Pace:
    minutes = context.config.train.minutes
    patience = PATIENCE_SECONDS if minutes is None else max(PATIENCE_SECONDS, MEASURING * 60 * minutes)
    plan = context.task.epoch_batches(context.train, 0)
    warm_up, timed = batches_to_time(context.config.train, len(plan))
    times: list[float] = []
    n_tokens = n_slots = 0.0
    began = time.perf_counter()
    for step in range(warm_up + timed):
        (late,) = context.group.broadcast(time.perf_counter() - began > patience)
        if late and len(times) >= FEWEST:
            break
        start = time.perf_counter()
        if context.threads is not None:
            context.threads.adjust()
        batches = local_batches(context, [plan[step % len(plan)]])
        optimizer_step(state, context, batches, 0.1 * context.config.train.lr)
        if step >= warm_up or (late and step > 0):
            times.append(time.perf_counter() - start)
            n_tokens += sum(batch.n_tokens for batch in batches)
            n_slots += sum(batch.n_slots for batch in batches)
    seconds = sum(times) / len(times)
    validation = 0.0 if minutes is None else _time_validation(context, state)
    update_takes = seconds * context.config.train.accumulate
    n_tokens, n_slots = context.group.all_reduce(n_tokens, n_slots)
    return Pace(*context.group.broadcast(update_takes, validation, n_tokens / sum(times), 1 - n_tokens / n_slots))


def batches_to_time(config: TrainConfig, batches_per_epoch: int) -> tuple[int, int]:
    """Return how many batches to train on before the clock counts, and how many to time.

    A budget in minutes is converted with the speed. Other runs only report it, and short ones would be over sooner.
    """
    if config.minutes is not None:
        return WARM_UP, TIMED
    of_epochs = (config.epochs or math.inf) * batches_per_epoch
    n_batches = min(of_epochs, (config.steps or math.inf) * config.accumulate)
    timed = int(min(TIMED, max(FEWEST, MOST_TIMED * n_batches)))
    return min(WARM_UP, timed), timed


def _time_validation(context: RunContext, state: TrainState) -> float:
    """Return the seconds of a validation.

    An untrained model never ends its output, so decoding stops at the targets' length.
    """
    if context.valid.target is not None:
        longest = 2 + math.ceil(context.valid.target.lengths.mean())
        context = context.with_config(
            replace(context.config, decode=replace(context.config.decode, max_new_tokens=longest))
        )
    began = time.perf_counter()
    Validator(context).score(state.eval_model, state.weights(), context.valid, context.data.valid)
    return time.perf_counter() - began


def in_updates(config: Config, pace: Pace, updates_per_epoch: float) -> Config:
    """Return the configuration with a budget in minutes converted to steps; others are returned unchanged.

    Epochs or steps given with the minutes still limit the run. The time of validations is counted; if they would take
    more than a share of VALIDATING, they come at longer intervals.
    """
    c = config.train
    if c.minutes is None:
        return config
    budget, every = c.minutes * 60, c.validate_every
    most_validations = max(1, int(VALIDATING * budget / pace.validation)) if pace.validation else math.inf
    steps = max(1, int(budget / pace.step))
    for _ in range(20):  # more steps mean more validations, and those fewer steps
        epochs = steps / updates_per_epoch
        n_validations = math.ceil(epochs / every - 1e-9)
        if n_validations > most_validations:
            every = epochs / most_validations
            continue
        steps = max(1, int((budget - n_validations * pace.validation) / pace.step))
    steps = steps if c.steps is None else min(steps, c.steps)
    return replace(config, train=replace(c, minutes=None, steps=steps, validate_every=every))
