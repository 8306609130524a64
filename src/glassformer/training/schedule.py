"""Learning-rate schedules as pure functions of step and progress."""

from __future__ import annotations

import math
from typing import Literal

ScheduleName = Literal["constant", "linear", "cosine", "inverse-sqrt"]


def lr_factor(schedule: ScheduleName, warmup: float, step: int, progress: float) -> float:
    """Return the factor of the peak learning rate, in [0, 1]: linear warmup, then decay from its end on.

    In a run of N steps with a warmup of W, after n = step - 1 steps, "linear" decays as 1 - (n - W) / (N - W), and
    "cosine" as half of 1 + cos(π (n - W) / (N - W)). N is n / progress, so that budgets in epochs decay alike.

    Args:
        schedule: the shape after a linear warmup. "inverse-sqrt" is that of Vaswani et al. 2017 (section 5.3), 1/√step,
            scaled to a peak of 1.
        warmup: a share of the run when below 1, a number of steps otherwise.
        step: the current step, counted from 1.
        progress: the share of the budget (epochs or steps) used before this step, in [0, 1].
    """
    if warmup >= 1:
        rise, since_warmup, n_steps = step / warmup, step / warmup, step - 1
        # (n - W) / (N - W) with N = n / progress; a warmup that takes the whole run has no decay.
        after = n_steps - warmup
        decay_progress = progress * after / (n_steps - progress * warmup) if after > 0 else 0.0
    elif warmup > 0:
        # A learning rate of exactly 0 would waste the first step, at progress 0.
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
