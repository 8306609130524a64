"""Settings of torch that belong to the process, held for as long as a thread computes with them.

The kernel of a matrix product, and so the last bits of it, depends on these settings, and all threads share them. A
thread holds the settings that it needs. Threads that need the same ones compute at once; a thread that needs others
waits its turn, and long work gives way between two batches (`give_way`). So a number does not depend on what another
thread computes meanwhile, and when the last hold ends the settings are those of the caller again.
"""

from __future__ import annotations

import os
import threading
from collections import deque
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


WAIT_SECONDS = 30.0
"""Who has waited so long computes under its settings beside the others: a thread that holds settings and waits for
this one would wait forever. Only last bits may differ then."""


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


class _Holds(threading.local):
    """The settings that this thread holds, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[Settings] = []


class Turns:
    """Lets threads in whose settings are those set now, and the others in the order in which they came.

    Args:
        wait_seconds: as WAIT_SECONDS.
    """

    def __init__(self, wait_seconds: float = WAIT_SECONDS) -> None:
        self._wait_seconds, self._own = wait_seconds, _Holds()
        self._changed, self._waiting = threading.Condition(), deque[object]()
        self._n_threads = 0
        self._set: Settings | None = None
        self._callers: Settings | None = None
        self._interrupted: list[Settings] = []

    @property
    def current(self) -> Settings:
        """Return the settings that this thread holds; without any the caller's."""
        return self._own.stack[-1] if self._own.stack else self._callers or Settings.read()

    @contextmanager
    def hold(self, settings: Settings) -> Iterator[None]:
        """Compute with these settings within the block, in this thread."""
        stack = self._own.stack
        self._switch(stack[-1] if stack else None, settings)
        stack.append(settings)
        try:
            yield
        finally:
            stack.pop()
            self._switch(settings, stack[-1] if stack else None)

    @contextmanager
    def released(self) -> Iterator[None]:
        """Hold nothing within the block, which may wait for another thread that computes."""
        stack = self._own.stack
        held = stack[-1] if stack else None
        self._own.stack = []
        self._switch(held, None)
        try:
            yield
        finally:
            self._own.stack = stack
            self._switch(None, held)

    def give_way(self) -> None:
        """Let the threads that wait compute first; costs nothing where none waits."""
        if self._waiting and self._own.stack:
            with self.released():
                pass

    def forget_other_threads(self) -> None:
        """Start again after a fork, of whose threads only the one that forked is left."""
        self._changed, self._waiting, self._interrupted = threading.Condition(), deque(), []
        self._n_threads = 1 if self._own.stack else 0
        if self._own.stack:
            self._set = self._own.stack[-1]
            self._set.apply()
        elif self._callers is not None:
            self._callers.apply()
            self._set = self._callers = None

    def _switch(self, old: Settings | None, new: Settings | None) -> None:
        """Exchange what this thread holds."""
        if old == new:
            return
        with self._changed:
            if old is not None:
                self._leave()
            if new is None:
                return
            try:
                self._wait_for_turn(new)
            except BaseException:  # Ctrl-C: the block around this one ends as it began
                if old is not None:
                    self._enter(old)
                raise
            self._enter(new)

    def _wait_for_turn(self, settings: Settings) -> None:
        """Wait until the settings are these or none are held, and all who came before have had their turn."""
        ticket = object()
        self._waiting.append(ticket)
        try:
            self._changed.wait_for(
                lambda: self._waiting[0] is ticket and (self._n_threads == 0 or self._set == settings),
                self._wait_seconds,
            )
        finally:
            self._waiting.remove(ticket)
            self._changed.notify_all()

    def _enter(self, settings: Settings) -> None:
        if self._n_threads == 0:
            self._callers = Settings.read()
        elif self._set is not None and self._set != settings:
            self._interrupted.append(self._set)
        if self._set != settings:
            settings.apply()
            self._set = settings
        self._n_threads += 1

    def _leave(self) -> None:
        self._n_threads -= 1
        if self._n_threads == 0 and self._callers is not None:
            self._callers.apply()
            self._set = self._callers = None
            self._interrupted.clear()
        elif self._interrupted:
            self._set = self._interrupted.pop()
            self._set.apply()
        self._changed.notify_all()


turns = Turns()
"""Of this process; other ones in tests."""

if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork either
    os.register_at_fork(after_in_child=turns.forget_other_threads)
