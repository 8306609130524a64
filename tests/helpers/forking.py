"""The command in processes of its own that start at once: forked from one that has imported it, and mortal as any.

A process that imports torch for itself spends most of its life on that.
"""

import functools
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from tests.helpers.undrawn import UNDRAWN

Act = Callable[[], None] | None
IMPORTED = "glassformer.cli.main glassformer.training.trainer matplotlib.pyplot sklearn.linear_model torch".split()


@functools.cache
def forking() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


def run(arguments: tuple[str, ...], environment: dict[str, str], output: Path, before: Act) -> None:
    """In the new process: what `python -m glassformer` does, with all it says in a file, and no figure drawn.

    `before` may break something.
    """
    import torch

    from glassformer.cli.main import main
    from glassformer.utils import plotting

    vars(plotting).update(UNDRAWN)
    os.environ.update(environment)
    torch.set_num_threads(1)
    message = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(message, 1)
    os.dup2(message, 2)
    if before is not None:
        before()
    sys.exit(main(arguments))


def until(condition: Callable[[], Any], ended: Callable[[], Any] = bool) -> None:
    """Wait until something holds, however busy the machine is, at most two minutes and until something has ended."""
    deadline = time.monotonic() + 120
    while not condition():
        assert not ended() and time.monotonic() < deadline, ended()
        time.sleep(0.005)


class Command:
    """`glassformer ARGUMENTS`, running; what it says goes to the file `output`."""

    def __init__(self, output: Path, arguments: tuple[str, ...], environment: dict[str, str], before: Act = None):
        self.output = output
        self.process = forking().Process(target=run, args=(arguments, environment, output, before), daemon=True)
        self.process.start()

    @property
    def returncode(self) -> int | None:
        """Its exit code, or minus the signal it died of; None while it lives."""
        return self.process.exitcode

    def send(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        with suppress(ProcessLookupError):  # it has just ended, as it may at any time
            os.kill(self.process.pid, number)

    def until(self, condition: Callable[[], Any]) -> None:
        """Wait until it holds; the process must not end before."""
        until(condition, lambda: self.returncode is not None and f"ended: {self.text()}")

    def wait(self, seconds: float) -> tuple[int, str]:
        """Exit code and all that was said, when it has ended."""
        self.process.join(seconds)
        assert self.returncode is not None, f"still running after {seconds} seconds: {self.text()}"
        return self.returncode, self.text()

    def text(self) -> str:
        return self.output.read_text("utf-8") if self.output.exists() else ""
