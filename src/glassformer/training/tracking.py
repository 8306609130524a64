"""Write what a training logs as event files of TensorBoard, into `tensorboard/` in the run folder."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from glassformer.errors import UsageError
from glassformer.runs.records import StepMetrics


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


class EventFiles:
    """Event files of one training; a function of each `StepMetrics`.

    Args:
        run: the run folder.
        step: the last step that is not done again; what follows it in earlier event files is void.
    """

    def __init__(self, run: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(run / "tensorboard"), purge_step=step + 1 if step else None)

    def __call__(self, report: StepMetrics) -> None:
        for name, value in values_of(report).items():
            self._writer.add_scalar(name, value, report.step)

    def __enter__(self) -> EventFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()  # which writes what is held in memory
