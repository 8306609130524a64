"""`glassformer explain RUN --follow`: the page of a run that may still train, which `train --watch` starts."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.errors import UsageError
from glassformer.runs.folder import RunFolder, SeedsFolder
from glassformer.runs.lock import is_locked
from glassformer.utils import console
from glassformer.utils.atomic_io import atomic_write_text
from glassformer.utils.formatting import glassformer_command

if TYPE_CHECKING:
    from glassformer.runs.records import StepMetrics

logger = logging.getLogger(__name__)

ALLOWED = {"follow", "control", "out", "port", "browser", "device"}
END_SECONDS = 5.0
NICE = 5
"""By how much the page's process gives way to the training."""


def check_follow(arguments: Any, has_text: bool) -> None:
    """Refuse --control alone, and what does not go with --follow, with a UsageError; takes `ExplainArguments`."""
    if not arguments.follow:
        raise UsageError("--control goes with --follow", "as in: glassformer explain RUN --follow --control")
    if has_text:
        raise UsageError("--follow takes no text", "type texts into the page, on the screen Training")
    changed = [f.name for f in fields(arguments) if getattr(arguments, f.name) != f.default]
    if others := [name for name in changed if name not in ALLOWED]:
        raise UsageError(f"--{others[0].replace('_', '-')} does not go with --follow", "leave one of them out")
    if arguments.out is not None:
        if Path(arguments.out).suffix.lower() not in (".html", ".htm"):
            raise UsageError("--follow writes a page", "name a .html file: -o replay.html")
        if arguments.control:
            raise UsageError("a saved page cannot ask a training for anything", "leave out --control")


def follow(path: Path, arguments: Any) -> None:
    """Serve the page of a run that trains, or write its replay."""
    from glassformer.explain.watch.followed import Followed
    from glassformer.utils.device import choose_device

    if SeedsFolder(path).exists:
        seeds = ", ".join(f"seed-{seed}" for seed in SeedsFolder(path).read()[1])
        raise UsageError(f"{path} holds several runs", f"follow one of them: {seeds}")
    if not path.is_dir():
        raise UsageError(f"there is no folder {path}", "give the folder that --out named, once the training has begun")
    if not RunFolder(path).resumable and RunFolder(path).model_folder:
        message = f"{path} holds a model without its training, so there is nothing to follow"
        raise UsageError(message, f"look inside: {glassformer_command('explain', path)}")
    trains = arguments.device == "auto" and is_locked(path)  # which needs the accelerator for itself
    device = choose_device("cpu" if trains else arguments.device)
    followed = Followed(path, device, may_write=arguments.control)
    if arguments.out is not None:
        return write_replay(followed, Path(arguments.out))
    if not RunFolder(path).metrics.exists():
        logger.info(f"{path} has no log yet: the page waits for it")
    serve(followed, arguments)


def write_replay(followed: Any, out: Path) -> None:
    """Write the page with the curves, and the answers of each snapshot."""
    from glassformer.explain.page.replay import replay_html

    page, lacks = replay_html(followed.subject(), followed.training)
    atomic_write_text(out, page)
    for sentence in lacks:
        logger.info(sentence)
    logger.info(f"written: {out}")


def serve(followed: Any, arguments: Any) -> None:
    """Serve the page until Ctrl-C."""
    from glassformer.explain.page import server

    def announce(address: str) -> None:
        _announced.append(address)
        ends = "stops the training, which is saved" if _ends_with_training else "ends the page, not the training"
        logger.info(f"following {followed.path}; Ctrl-C {ends}; the page: {address}")
        console.write(address)

    server.serve(followed, port=arguments.port, open_browser=arguments.browser, on_ready=announce)
    logger.info("the page has ended")


_announced = list[str]()
"""Addresses of the page that were printed; the last one has not been opened."""
_ends_with_training = False
"""Whether this process is that of the page of a training, which ends with it."""
CHILD = "import sys; from glassformer.cli.explain_follow import as_child; sys.exit(as_child(sys.argv[1:]))"


def as_child(argv: list[str]) -> int:
    """Run `glassformer explain` with these arguments, until the process that holds the other end of stdin ends.

    What is written into it asks for the address of the page again.
    """
    global _ends_with_training
    from glassformer.cli.main import main

    _ends_with_training = True

    def watch_parent() -> None:
        with suppress(OSError):
            while os.read(0, 4096):
                for address in _announced[-1:]:
                    logger.info(f"the page: {address}")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch_parent, name="glassformer-parent", daemon=True).start()
    with suppress(AttributeError, OSError):
        os.nice(NICE)
    return main(["explain", *argv])


class Watching:
    """The page beside a training: `on_step` starts it at the first step.

    Args:
        out: the run folder. browser: whether to open it in the browser.
    """

    def __init__(self, out: Path, browser: bool) -> None:
        self.out, self.browser = out, browser
        self._process: subprocess.Popen[bytes] | None = None

    def on_step(self, report: StepMetrics) -> None:
        """Start the page, once; where it cannot be started the training continues."""
        if self._process is not None:
            return
        flags = ["--follow", "--control", "--device=cpu", *([] if self.browser else ["--no-browser"])]
        command = [sys.executable, "-c", CHILD, str(self.out), *flags]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": "1"}
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=nowhere)
        except OSError as error:
            again = glassformer_command("explain", "--follow", self.out)
            logger.warning(
                f"the page cannot be started: {error.strerror or error}; the training continues; try: {again}"
            )
            self.on_step = lambda report: None  # type: ignore[method-assign]

    def stay(self) -> None:
        """Keep the page after the training, until Ctrl-C, where somebody sits at a terminal."""
        if self._process is not None and console.is_terminal(sys.stderr) and console.is_terminal(sys.stdin):
            logger.info("the training has ended, and its page stays until Ctrl-C")
            with suppress(KeyboardInterrupt, OSError):
                if self._process.stdin is not None:
                    self._process.stdin.write(b"\n")
                    self._process.stdin.flush()
                self._process.wait()

    def end(self) -> None:
        """End the page."""
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def watching(out: Path, browser: bool) -> Iterator[Watching]:
    """Within the block, serve the page of a training that has begun its steps."""
    page = Watching(out, browser)
    try:
        yield page
    finally:
        page.end()
