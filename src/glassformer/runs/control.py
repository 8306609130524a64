"""The file `control.json` in a run folder: whoever watches a training asks it to pause, to go on or to stop.

    {"pause": true, "steps": 3, "stop": false}

The training looks at it after each step and removes it at its start and its end. It is obeyed only if it belongs to the
owner of the folder: where others may write into the folder, they still cannot stop the training.
"""

from __future__ import annotations

import logging
import os
import stat
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from glassformer.errors import CheckpointError
from glassformer.utils import atomic_io, safe_read

logger = logging.getLogger(__name__)

MAX_BYTES = 4096
MAX_STEPS = 1_000_000


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
    steps: int = 0
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
        self.path = path
        self._seen: tuple[int, ...] | None = None
        self.control, self._warned = GO_ON, False
        self._began: int | None = None

    def write(self, control: Control) -> None:
        """Ask for something; raise ResourceError where the folder cannot be written."""
        atomic_io.write_json(self.path, asdict(control))

    def remove(self) -> None:
        """Remove the file, or a link of its name; what cannot be removed stays."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            self._warn(f"{self.path} cannot be removed: {error.strerror or error}")

    def read(self) -> Control:
        """Return what is asked now: nothing without a file. It is read only if it changed since the last look.

        A file that is not obeyed changes nothing, and the first of them is logged.
        """
        try:
            state = os.lstat(self.path)
        except OSError:
            self._seen, self.control = None, GO_ON
            return GO_ON
        seen = (state.st_mtime_ns, state.st_ino, state.st_size, state.st_uid, state.st_mode)
        if seen != self._seen:
            self._seen = seen
            try:
                self.control = self._parse(state)
            except CheckpointError as error:
                self._warn(f"{error.message}; it is ignored")
        return self.control

    def pauses(self, step: int) -> bool:
        """Return whether to pause after this step, counted from 1, single steps that are asked for taken first."""
        before, now = self.control, self.read()
        if not now.pause:
            self._began = None
            return False
        if self._began is None or now.steps < before.steps:
            self._began = step
        return step - self._began >= now.steps

    def _parse(self, state: os.stat_result) -> Control:
        if not stat.S_ISREG(state.st_mode):
            raise CheckpointError(f"{self.path} should be a regular file, not a link, a folder or a device")
        owner = os.stat(self.path.parent).st_uid
        if state.st_uid != owner:
            raise CheckpointError(f"{self.path} belongs to user {state.st_uid}, and its folder to user {owner}")
        value = safe_read.read_json_object(self.path, MAX_BYTES)
        if unknown := sorted(value.keys() - {"pause", "steps", "stop"}):
            raise CheckpointError(f"{self.path} should hold pause, steps and stop, not {unknown[0][:40]!r}")
        control = safe_read.dataclass_from_json(Control, value, self.path)
        if not 0 <= control.steps <= MAX_STEPS:
            raise CheckpointError(f"{self.path}: steps should be from 0 to {MAX_STEPS:,}, not {control.steps}")
        return control

    def _warn(self, message: str) -> None:
        if not self._warned:
            logger.warning(message)
            self._warned = True
