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
from glassformer.training.validation import validation_scores

WARM_UP, TIMED, FEWEST = 8, 32, 3
"""Steps before the clock counts (caches and thread pools are cold), steps it counts, and the fewest it does."""
MOST_TIMED = 0.1
"""The most of a run that is timed before it; a budget in minutes is measured by all of TIMED."""
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
    train, group, plan = context.config.train, context.group, context.task.epoch_batches(context.train, 0)
    warm_up, n_timed = batches_to_time(train, len(plan))
    patience = max(PATIENCE_SECONDS, MEASURING * 60 * (train.minutes or 0))
    times, n_tokens, n_slots, began = list[float](), 0.0, 0.0, time.perf_counter()
    with state.trial(train):
        for step in range(warm_up + n_timed):
            (late,) = group.broadcast(time.perf_counter() - began > patience)
            if late and len(times) >= FEWEST:
                break
            start = time.perf_counter()
            if context.threads is not None:
                context.threads.adjust()
            batches = local_batches(context, [plan[step % len(plan)]])
            optimizer_step(state, context, batches, 0.1 * train.lr)
            if step >= warm_up or (late and step > 0):
                times.append(time.perf_counter() - start)
                n_tokens += sum(batch.n_tokens for batch in batches)
                n_slots += sum(batch.n_slots for batch in batches)
        validation = _time_validation(context, state) if train.minutes else 0.0
    n_tokens, n_slots = group.all_reduce(n_tokens, n_slots)
    seconds = sum(times)
    step = seconds / len(times) * train.accumulate
    return Pace(*group.broadcast(step, validation, n_tokens / seconds, 1 - n_tokens / n_slots))


def batches_to_time(train: TrainConfig, n_in_epoch: int) -> tuple[int, int]:
    """Return how many batches to train on before the clock counts, and how many to time: of a short run fewer."""
    n = min((train.epochs or math.inf) * n_in_epoch, (train.steps or math.inf) * train.accumulate)
    timed = TIMED if train.minutes else int(min(TIMED, max(FEWEST, MOST_TIMED * n)))
    return min(WARM_UP, timed), timed


def _time_validation(context: RunContext, state: TrainState) -> float:
    """Return the seconds of a validation.

    An untrained model never ends its output, so decoding stops at the targets' length.
    """
    if context.valid.target is not None:
        longest = 2 + math.ceil(context.valid.target.lengths.mean())
        decode = replace(context.config.decode, max_new_tokens=longest)
        context = context.with_config(replace(context.config, decode=decode))
    began = time.perf_counter()
    validation_scores(context, state, context.valid, context.data.valid)
    return time.perf_counter() - began


def in_updates(config: Config, pace: Pace, updates_per_epoch: float) -> Config:
    """Return the configuration with a budget in minutes converted to steps; others are returned unchanged.

    Epochs or steps given with the minutes still limit the run. The time of validations is counted; if they would take
    more than a share of VALIDATING, they come at longer intervals. The last one comes at the end, whenever it was due.
    """
    c = config.train
    if c.minutes is None:
        return config
    budget, most = 60 * c.minutes, math.inf
    if pace.validation:
        most = max(1, int(VALIDATING * budget / pace.validation))
    n_validations = min(most, math.ceil(budget / (c.validate_every * updates_per_epoch * pace.step + pace.validation)))
    steps = max(1, int((budget - n_validations * pace.validation) / pace.step))
    every, steps = max(c.validate_every, steps / updates_per_epoch / n_validations), min(steps, c.steps or steps)
    return replace(config, train=replace(c, minutes=None, steps=steps, validate_every=every))
