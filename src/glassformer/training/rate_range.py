"""The range of learning rates in which a recipe learns: a short training with a rising rate (arXiv:1506.01186)."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import suppress

from glassformer.config import Config
from glassformer.errors import DivergedError
from glassformer.report.diagnosis import Checkup, Finding, NotMade, run_checks
from glassformer.runs.records import JsonObject
from glassformer.training.loop import local_batches, optimizer_step
from glassformer.training.preparation import new_state, prepare
from glassformer.training.state import RunContext
from glassformer.utils.device import choose_device, tuned

logger = logging.getLogger(__name__)

STEPS, LOWEST, HIGHEST = 100, 1e-6, 1.0
SMOOTHING = 0.9
GIVES_UP = 4.0
"""Multiple of the least loss, above which nothing more is to be learned from larger rates."""
FALLEN = 0.98
"""Share of the first loss that the least one must be below."""
AVERAGED, BEGUN = 10, 0.1
"""Steps whose smoothed loss rests on too few batches, and share of the fall from which a step can be the steepest."""
OF_LEAST, OF_STEEPEST = 1 / 3, 1 / 15
"""Largest share of the rate of least loss, and least share of the rate at which it falls fastest."""


def losses_by_rate(context: RunContext) -> list[tuple[float, float]]:
    """Return (rate, smoothed loss in nats) of each step, as the rate rises from `LOWEST` to `HIGHEST`.

    A model is trained in memory on the first batches, in order; it ends early where the loss is lost.
    """
    state, train = new_state(context), context.config.train
    plan = context.task.epoch_batches(context.train, 0)
    found, average, least = list[tuple[float, float]](), 0.0, math.inf
    for step in range(STEPS):
        at = [plan[(step * train.accumulate + i) % len(plan)] for i in range(train.accumulate)]
        rate = LOWEST * (HIGHEST / LOWEST) ** (step / (STEPS - 1))
        try:
            loss, _ = optimizer_step(state, context, local_batches(context, at), rate)
        except DivergedError:
            break
        state.progress.step += 1
        average = SMOOTHING * average + (1 - SMOOTHING) * loss
        smoothed = average / (1 - SMOOTHING ** (step + 1))
        found.append((rate, smoothed))
        least = min(least, smoothed)
        if smoothed > GIVES_UP * least:
            break
    return found


def landmarks(found: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the rate at which the loss falls fastest, and that of the least loss, which comes after it.

    The first steps and tenth of the fall are left out: at rates that move nothing, batches differ by more.
    """
    least = min(range(len(found)), key=lambda i: found[i][1])
    first, last = found[AVERAGED][1], found[least][1]
    begin = max((i for i in range(AVERAGED, least) if found[i][1] >= first - BEGUN * (first - last)), default=0)
    steepest = min(range(begin + 1, least + 1), key=lambda i: found[i][1] - found[i - 1][1], default=0)
    return found[steepest][0], found[least][0]


def range_of(found: list[tuple[float, float]]) -> dict[str, float]:
    """Return the range in which the loss falls, as `low` and `high`, and the landmarks that it follows from.

    Raises:
        NotMade: the loss fell at no rate.
    """
    if len(found) <= AVERAGED or min(loss for _, loss in found) > FALLEN * found[AVERAGED][1]:
        raise NotMade("the loss fell at no learning rate, so that none can be compared")
    steepest, least = landmarks(found)
    return {"low": OF_STEEPEST * steepest, "high": OF_LEAST * least, "steepest": steepest, "least": least}


def rate_range(found: list[tuple[float, float]], lr: float) -> Iterator[Finding]:
    """Yield a finding if a learning rate lies outside the range in which the loss falls, given `losses_by_rate`."""
    numbers = {"lr": lr, **range_of(found)}
    low, high = numbers["low"], numbers["high"]
    between = f"; a short training with a rising rate learns between {low:.1g} and {high:.1g}"
    if lr > high:
        yield Finding(f"the learning rate {lr:g} is too large{between}", f"--lr {high / 3:.1g}", "rate-range", numbers)
    elif lr < low:
        yield Finding(f"the learning rate {lr:g} is too small{between}", f"--lr {3 * low:.1g}", "rate-range", numbers)


def check_recipe(config: Config) -> tuple[Checkup, JsonObject]:
    """Prepare a recipe as training does and make the check; nothing is written but the cache of encoded data.

    The second result has what was measured, whatever was found: `lr`, the `curve` of `losses_by_rate`, and `range_of`.
    """
    with tuned(choose_device(config.train.device), config.train.deterministic):
        context = prepare(config)
        logger.info(f"training {STEPS} steps while the learning rate rises from {LOWEST:g} to {HIGHEST:g}")
        curve, lr = losses_by_rate(context), config.train.lr
    measured: JsonObject = {"lr": lr, "curve": [list(point) for point in curve]}
    with suppress(NotMade):
        measured |= range_of(curve)
    return run_checks({"rate-range": lambda: rate_range(curve, lr)}), measured
