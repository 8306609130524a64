"""What a person sees while a run trains: lines of validations and steps, and event files of TensorBoard.

It imports no torch.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.errors import UsageError
from glassformer.runs.records import StepMetrics
from glassformer.utils.formatting import duration

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


def check_tensorboard(wanted: bool) -> None:
    """Raise a UsageError if TensorBoard is wanted, and not installed."""
    if wanted and importlib.util.find_spec("tensorboard") is None:
        message = "--tensorboard needs the package tensorboard, which is not installed"
        raise UsageError(message, 'install it: pip install "glassformer[tensorboard]"')


def values_of(report: StepMetrics) -> dict[str, float]:
    """Return the finite numbers of a line of the log by name; those of a table as `valid/accuracy`."""
    found: dict[str, Any] = {}
    for key, value in json.loads(report.line()).items():
        found |= {f"{key}/{name}": each for name, each in value.items()} if isinstance(value, dict) else {key: value}
    del found["step"]
    return {name: x for name, x in found.items() if isinstance(x, int | float) and x is not True}


@contextmanager
def event_files(run: Path, step: int) -> Iterator[Callable[[StepMetrics], None]]:
    """Yield what writes a step into event files in `tensorboard/` of a run folder, which are whole after the block.

    Args:
        run: the run folder.
        step: the last step that is not done again; what follows it in earlier event files is void.
    """
    from torch.utils.tensorboard import SummaryWriter

    with closing(SummaryWriter(str(run / "tensorboard"), purge_step=step + 1 if step else None)) as writer:

        def write(report: StepMetrics) -> None:
            for name, value in values_of(report).items():
                writer.add_scalar(name, value, report.step)

        yield write
