"""What a person sees while a run trains: a bar on a terminal, a line now and then anywhere else.

It only reads step reports and writes to stderr; the log on disk is the session's. It imports no torch.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from glassformer.utils import console
from glassformer.utils.formatting import duration

if TYPE_CHECKING:
    from glassformer.runs.records import StepMetrics

logger = logging.getLogger(__name__)

LINE_SECONDS = 10.0
"""Seconds between plain lines."""
DRAW_SECONDS = 0.2
"""Seconds between two looks of the bar."""


class TrainingProgress:
    """Shows step reports; a context manager, called with each of them.

        with TrainingProgress() as progress:
            glassformer.train("dates", on_step=progress)

    `clock` gives seconds, monotonic; another one in tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shown = -float("inf")
        self._bar: Any = None

    def __enter__(self) -> TrainingProgress:
        if console.is_terminal(sys.stderr):
            self._bar = _new_bar()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def __call__(self, report: StepMetrics) -> None:
        """Show a report: validations always, steps now and then."""
        now = self._clock()
        if report.paused or now - self._shown >= (LINE_SECONDS if self._bar is None else DRAW_SECONDS):
            self._shown = now
            if self._bar is None:
                logger.info(step_line(report))
            else:
                with console.stderr_may_be_lost():
                    self._bar.start()
                    self._bar.update(self._bar.task_ids[0], completed=report.progress, line=step_line(report))
                    self._bar.refresh()
        if report.progress >= 1.0:
            self._stop()
        if report.valid is not None:
            scores = "  ".join(f"{name} {value:.4f}" for name, value in report.valid.items())
            scores += "  (best)" if report.best else ""
            logger.info(f"step {report.step}  epoch {report.epoch:.2f}  validation: {scores}")

    def _stop(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            with console.stderr_may_be_lost():
                self._bar.stop()


def step_line(report: StepMetrics) -> str:
    """Return a step as one line: epoch, loss in nats, learning rate, gradient norm, tokens/s, padding, time left."""
    left = "" if report.eta_seconds is None else f"  left {duration(report.eta_seconds)}"
    return (
        f"step {report.step}  epoch {report.epoch:.2f}  loss {report.loss:.4f}  lr {report.lr:.2e}  "
        f"grad {report.grad_norm:.2f}  {report.tokens_per_s:,.0f} tokens/s  padding {report.padding:.0%}"
        f"{left}{'  paused' if report.paused else ''}"
    )


def _new_bar() -> Any:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.table import Column

    line = TextColumn("{task.fields[line]}", markup=False, table_column=Column())  # broken where the terminal is narrow
    # Drawn when there is news, so that no second thread writes to the terminal.
    columns = BarColumn(bar_width=12), TaskProgressColumn(), line
    bar = Progress(*columns, console=console.stderr_console(), transient=True, auto_refresh=False)
    bar.add_task("training", total=1.0, line="")
    return bar
