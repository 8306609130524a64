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
        self._threads: int | None = None
        self._bar: Any = None

    def __enter__(self) -> TrainingProgress:
        if console.is_terminal(sys.stderr):
            self._bar = _new_bar()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            with console.stderr_may_be_lost():
                self._bar.stop()

    def __call__(self, report: StepMetrics) -> None:
        """Show a report: validations always, steps now and then."""
        now = self._clock()
        if report.threads != self._threads and self._threads is not None:
            logger.info(threads_line(report.step, self._threads, report.threads or 1))
        self._threads = report.threads
        finished = self._bar is not None and report.progress >= 1.0
        if finished or report.paused or now - self._shown >= (LINE_SECONDS if self._bar is None else DRAW_SECONDS):
            self._shown = now
            if self._bar is None:
                logger.info(step_line(report))
            else:
                with console.stderr_may_be_lost():
                    self._draw(report)
        if report.valid is not None:
            logger.info(valid_line(report))

    def _draw(self, report: StepMetrics) -> None:
        try:
            if not self._bar.live.is_started:
                self._bar.start()
            self._bar.update(self._bar.task_ids[0], completed=report.progress, facts=bar_lines(report))
            self._bar.refresh()
            if report.progress >= 1.0:
                self._bar.stop()
        except (OSError, ValueError):  # the terminal was closed: training continues without a bar
            self._bar = None


def step_line(report: StepMetrics) -> str:
    """Return a step as one line: epoch, loss in nats, learning rate, gradient norm, tokens/s, padding, time left."""
    return (
        f"step {report.step}  epoch {report.epoch:.2f}  loss {report.loss:.4f}  lr {report.lr:.2e}  "
        f"grad {report.grad_norm:.2f}  {report.tokens_per_s:,.0f} tokens/s  padding {report.padding:.0%}"
        f"{_left(report)}{_paused(report)}"
    )


def bar_lines(report: StepMetrics) -> str:
    """Return the same with a progress bar, in two lines that fit a terminal of 80 columns."""
    return (
        f"step {report.step}  epoch {report.epoch:.2f}{_paused(report) or _left(report)}\n"
        f"loss {report.loss:.4f}  lr {report.lr:.1e}  grad {report.grad_norm:.2f}  "
        f"{report.tokens_per_s:,.0f} tok/s  pad {report.padding:.0%}"
    )


def valid_line(report: StepMetrics) -> str:
    """Return a validation as one line; the best so far is marked."""
    scores = "  ".join(f"{name} {value:.4f}" for name, value in (report.valid or {}).items())
    return f"step {report.step}  epoch {report.epoch:.2f}  validation: {scores}{'  (best)' if report.best else ''}"


def threads_line(step: int, before: int, now: int) -> str:
    """Return a line about a changed number of threads."""
    why = "other programs use the processor" if now < before else "the processor is free again"
    return f"step {step}: {why}, so it trains with {now} thread{'s' * (now > 1)} (before: {before})"


def _left(report: StepMetrics) -> str:
    return "" if report.eta_seconds is None else f"  left {duration(report.eta_seconds)}"


def _paused(report: StepMetrics) -> str:
    return "  paused" if report.paused else ""


def _new_bar() -> Any:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = BarColumn(bar_width=12), TaskProgressColumn(), TextColumn("{task.fields[facts]}", markup=False)
    # Drawn when there is news, so that no second thread writes to the terminal.
    bar = Progress(*columns, console=console.stderr_console(), transient=True, auto_refresh=False)
    bar.add_task("training", total=1.0, facts="")
    return bar
