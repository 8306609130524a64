"""What a person sees while a run trains: each validation, and a line of a step now and then.

It only reads step reports and writes to stderr; the log on disk is the session's. It imports no torch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from glassformer.utils.formatting import duration

if TYPE_CHECKING:
    from glassformer.runs.records import StepMetrics

logger = logging.getLogger(__name__)

LINE_SECONDS = 10.0
"""Seconds between lines."""


class TrainingProgress:
    """Shows step reports, as in `glassformer.train("dates", on_step=TrainingProgress())`.

    `clock` gives seconds, monotonic; another one in tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shown = -float("inf")

    def __call__(self, report: StepMetrics) -> None:
        """Show a report: validations and pauses always, steps now and then."""
        now = self._clock()
        if report.paused or now - self._shown >= LINE_SECONDS:
            self._shown = now
            logger.info(step_line(report))
        if report.valid is not None:
            scores = "  ".join(f"{name} {value:.4f}" for name, value in report.valid.items())
            scores += "  (best)" if report.best else ""
            logger.info(f"step {report.step}  epoch {report.epoch:.2f}  validation: {scores}")


def step_line(report: StepMetrics) -> str:
    """Return a step as one line: epoch, loss in nats, learning rate, gradient norm, tokens/s, padding, time left."""
    left = "" if report.eta_seconds is None else f"  left {duration(report.eta_seconds)}"
    return (
        f"step {report.step}  epoch {report.epoch:.2f}  loss {report.loss:.4f}  lr {report.lr:.2e}  "
        f"grad {report.grad_norm:.2f}  {report.tokens_per_s:,.0f} tokens/s  padding {report.padding:.0%}"
        f"{left}{'  paused' if report.paused else ''}"
    )
