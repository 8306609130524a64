"""The file `control.json` in a run folder: whoever watches a training asks it to pause, to continue or to stop.

    {"pause": true, "steps": 3, "stop": false}

The training looks at it after each step and removes it at its start and its end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from glassformer.errors import CheckpointError
from glassformer.utils import atomic_io, safe_read

logger = logging.getLogger(__name__)

MAX_BYTES = 4096


@dataclass(frozen=True)
class Control:
    """What is asked of a training.

    Attributes:
        pause: whether to pause after the current step.
        steps: how many steps to take since the pause began, before pausing again. Raising it takes more single steps;
            lowering it begins to count anew.
        stop: whether to save and end, as Ctrl-C does.
    """

    pause: bool = False
    steps: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    stop: bool = False

    def stepped(self) -> Control:
        """Return the control that asks for one more single step."""
        return replace(self, steps=self.steps + 1)


GO_ON = Control()


class ControlFile:
    """The control file of a run folder.

    Args:
        path: the file.

    Attributes:
        control: what the last look found.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.control = path, GO_ON
        self._warned, self._began = False, -1

    def write(self, control: Control) -> None:
        """Ask for something; raise ResourceError where the folder cannot be written."""
        atomic_io.write_json(self.path, asdict(control))

    @contextmanager
    def removed(self) -> Iterator[None]:
        """Remove the file before the block, for it was meant for an earlier training, and after it."""
        self.remove()
        try:
            yield
        finally:
            self.remove()

    def remove(self) -> None:
        """Remove the file, or a link of its name; what cannot be removed stays."""
        with suppress(OSError):
            self.path.unlink()

    def read(self) -> Control:
        """Return what is asked now: nothing without a file; one that is damaged changes nothing, and is logged once."""
        try:
            self.control = safe_read.read_json(self.path, MAX_BYTES, kind=Control) if self.path.exists() else GO_ON
        except CheckpointError as error:
            if not self._warned:
                logger.warning(f"{error.message}; it is ignored")
            self._warned = True
        return self.control

    def pauses(self, step: int) -> bool:
        """Return whether to pause after this step, counted from 1, single steps that are asked for taken first."""
        before, now = self.control, self.read()
        if not now.pause or self._began < 0 or now.steps < before.steps:
            self._began = step if now.pause else -1
        return now.pause and step - self._began >= now.steps
