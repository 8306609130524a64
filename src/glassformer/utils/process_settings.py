"""Settings of torch that belong to the process, of which one thread computes at a time.

The kernel of a matrix product, and so the last bits of it, depends on these settings, and all threads share them. A
thread sets those that it needs for as long as it computes; the others wait for their turn, and long work gives way
between two batches (`give_way`). So a number does not depend on what another thread computes meanwhile, and afterwards
the settings are those of the caller again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch

from glassformer.errors import GlassformerError

_event: ContextVar[threading.Event | None] = ContextVar("cancellation", default=None)


class Cancelled(GlassformerError):
    """The computation was cancelled."""


@contextmanager
def cancellable(event: threading.Event) -> Iterator[None]:
    """Within the block, `check_cancelled` raises once the event is set."""
    token = _event.set(event)
    try:
        yield
    finally:
        _event.reset(token)


def check_cancelled() -> None:
    """Raise Cancelled if the computation in this thread was cancelled."""
    event = _event.get()
    if event is not None and event.is_set():
        raise Cancelled("cancelled")


@dataclass(frozen=True)
class Settings:
    """What is set in torch.

    Args:
        matmul: `torch.set_float32_matmul_precision`.
        deterministic: deterministic algorithms alone, or an error. warn_only: a warning instead of the error.
        cudnn_attention: whether cuDNN's attention may be chosen on a GPU.
        flash: whether torch's fused attention may be chosen; on a CPU explicit products compute otherwise.
    """

    matmul: str
    deterministic: bool
    warn_only: bool
    cudnn_attention: bool
    flash: bool

    @staticmethod
    def read() -> Settings:
        """Return what is set now."""
        return Settings(
            torch.get_float32_matmul_precision(),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.backends.cuda.cudnn_sdp_enabled(),
            torch.backends.cuda.flash_sdp_enabled(),  # of a CPU too, in spite of its name
        )

    def apply(self) -> None:
        """Set these settings."""
        torch.set_float32_matmul_precision(self.matmul)
        torch.backends.cuda.enable_flash_sdp(self.flash)
        # Each only where it differs: the first imports torch's compiler, which takes a second.
        now = Settings.read()
        if (now.deterministic, now.warn_only) != (self.deterministic, self.warn_only):
            torch.use_deterministic_algorithms(self.deterministic, warn_only=self.warn_only)
        if now.cudnn_attention != self.cudnn_attention:
            torch.backends.cuda.enable_cudnn_sdp(self.cudnn_attention)


class _Own(threading.local):
    """What this thread has set; None outside of its turn."""

    settings: Settings | None = None


class Turns:
    """Lets one thread at a time compute, under settings of its own; the others wait in line."""

    def __init__(self) -> None:
        self._turn, self._next, self._own = threading.Lock(), threading.Lock(), _Own()
        self._callers: Settings | None = None

    @property
    def current(self) -> Settings:
        """Return the settings of this thread's turn; outside of one the caller's."""
        return self._own.settings or self._callers or Settings.read()

    @contextmanager
    def hold(self, settings: Settings) -> Iterator[None]:
        """Compute with these settings within the block, in this thread."""
        outer = self._own.settings
        self._begin(settings)
        try:
            yield
        finally:
            if self._own.settings is not None:  # else it was interrupted in `released`
                self._begin(outer) if outer else self._end()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Leave the turn to others within the block, which may wait for another thread that computes."""
        settings = self._own.settings
        if settings is None:
            yield
            return
        self._end()
        try:
            yield
        finally:
            self._begin(settings)

    def give_way(self) -> None:
        """Let a thread that waits compute first; costs nothing where none waits."""
        if self._next.locked():
            with self.released():
                pass

    def _begin(self, settings: Settings) -> None:
        if self._own.settings is None:
            with self._next:  # who waits holds it, so that a turn given up goes to another thread
                self._turn.acquire()
            self._callers = Settings.read()
        settings.apply()
        self._own.settings = settings

    def _end(self) -> None:
        if self._callers is not None:
            self._callers.apply()
        self._own.settings = self._callers = None
        self._turn.release()


turns = Turns()
"""Of this process; other ones in tests."""

if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork either
    # Of the threads only the one that forked is left, and nobody would end another's turn.
    os.register_at_fork(after_in_child=lambda: turns.__init__())
