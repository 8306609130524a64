"""The learning rate as a pure function of how far the run is."""

from __future__ import annotations

import math
from typing import Literal

ScheduleName = Literal["constant", "linear", "cosine", "inverse-sqrt"]


def lr_factor(schedule: ScheduleName, warmup: float, step: int, progress: float) -> float:
    """What the peak learning rate is multiplied by, in [0, 1].

    Args:
        schedule: the form after warm-up. "inverse-sqrt" is the paper's (5.3): up in a line, then
            down as 1/√step, here scaled so that its peak is 1.
        warmup: a share of the run when below 1, a number of updates otherwise.
        step: this update, counted from 1.
        progress: the share of the run's budget (epochs or updates) spent before this update, in [0, 1].
    """
    if warmup >= 1:
        rise, decay_progress, since_warmup = step / warmup, progress, step / warmup
    elif warmup > 0:
        # A first update at progress 0 would be lost at a rate of exactly 0.
        rise = max(progress, 1e-3 * warmup) / warmup
        decay_progress, since_warmup = max(0.0, (progress - warmup) / (1 - warmup)), progress / warmup
    else:
        rise, decay_progress, since_warmup = 1.0, progress, float(step)
    match schedule:
        case "constant":
            decay = 1.0
        case "linear":
            decay = 1.0 - decay_progress
        case "cosine":
            decay = 0.5 * (1.0 + math.cos(math.pi * decay_progress))
        case "inverse-sqrt":
            decay = max(since_warmup, 1.0) ** -0.5
    return min(1.0, rise) * decay
