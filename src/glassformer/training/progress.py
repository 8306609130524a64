"""What a person sees while a run trains: each validation, and a line of a step now and then. It imports no torch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glassformer.utils.formatting import duration

if TYPE_CHECKING:
    from glassformer.runs.records import StepMetrics

logger = logging.getLogger(__name__)

LINE_SECONDS = 10.0
"""Seconds between lines."""


@dataclass
class TrainingProgress:
    """Shows the metrics of steps, as in `glassformer.train("dates", on_step=TrainingProgress())`.

    Args:
        loss_unit: of the loss.
        clock: gives seconds, monotonic; another one in tests.
    """

    loss_unit: str = "nats"
    clock: Callable[[], float] = time.monotonic
    _shown: float = -float("inf")

    def __call__(self, report: StepMetrics) -> None:
        """Show validations and pauses always, steps now and then."""
        now, at = self.clock(), f"step {report.step}  epoch {report.epoch:.2f}"
        if report.paused or now - self._shown >= LINE_SECONDS:
            self._shown = now
            left = "" if report.eta_seconds is None else f"  left {duration(report.eta_seconds)}"
            logger.info(
                f"{at}  loss {report.loss:.4f} {self.loss_unit}  lr {report.lr:.2e}  grad {report.grad_norm:.2f}  "
                f"{report.tokens_per_s:,.0f} tokens/s  padding {report.padding:.0%}{left}{'  paused' * report.paused}"
            )
        if report.valid is not None:
            scores = "  ".join(f"{name} {value:.4f}" for name, value in report.valid.items())
            logger.info(f"{at}  validation: {scores}{'  (best)' * report.best}")
