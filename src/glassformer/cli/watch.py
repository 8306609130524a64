"""`glassformer watch`: the page of a run that may still train, which `train --watch` starts beside the training."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from glassformer.cli import flags
from glassformer.cli.explain import PAGES, check_suffix
from glassformer.errors import UsageError
from glassformer.runs.folder import RunFolder, SeedsFolder, is_locked
from glassformer.utils import console
from glassformer.utils.atomic_io import atomic_write_text
from glassformer.utils.formatting import glassformer_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from glassformer.explain.watch.followed import Followed
    from glassformer.runs.records import StepMetrics

logger = logging.getLogger(__name__)

CHILD = """\
import os, signal, sys, threading
from glassformer.cli.main import main
def end_with_parent():
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=end_with_parent, daemon=True).start()
if hasattr(os, "nice"):
    os.nice(5)
sys.exit(main(sys.argv[1:]))
"""
"""What the page's process runs: a command that gives way to the training, and ends with who holds its stdin."""


@dataclass(frozen=True)
class WatchArguments:
    """Show a training in the browser while it runs, from its log and its snapshots, or write its replay."""

    usage: ClassVar = "watch RUN"
    example: ClassVar = "watch runs/imdb"
    control: bool = False
    """Let the page pause, step and stop the training."""
    out: str | None = None
    """File to write instead of serving (also -o): the curves and the answers of each snapshot, as one page."""
    port: int | None = None
    """Port to serve on; the first free one from 8317 on when absent."""
    browser: bool = True
    """Open the page in the browser; --no-browser only prints an address."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where the texts of the page are answered; auto leaves the accelerator to a training."""


def run_watch(given: flags.Given[WatchArguments]) -> None:
    """Run `glassformer watch`."""
    arguments, path = given.arguments(), Path(given.words[0])
    if SeedsFolder(path).exists:
        seeds = ", ".join(f"seed-{seed}" for seed in SeedsFolder(path).read()[1])
        raise UsageError(f"{path} holds several runs", f"follow one of them: {seeds}")
    if not path.is_dir():
        raise UsageError(f"there is no folder {path}", "give the folder that --out named, once the training has begun")
    if not RunFolder(path).resumable and RunFolder(path).model_folder:
        message = f"{path} holds a model without its training, so there is nothing to follow"
        raise UsageError(message, f"look inside: {glassformer_command('explain', path)}")
    check_suffix(arguments.out, PAGES)
    from glassformer.explain.watch.followed import Followed
    from glassformer.utils.device import choose_device

    device = "cpu" if arguments.device == "auto" and is_locked(path) else arguments.device
    followed = Followed(path, choose_device(device), may_write=arguments.control)
    if arguments.out is None:
        serve(followed, arguments)
    else:
        write_replay(followed, Path(arguments.out))


def write_replay(followed: Followed, out: Path) -> None:
    """Write the page with the curves, and the answers of each snapshot."""
    from glassformer.explain.page.replay import replay_html

    page, lacks = replay_html(followed.subject(), followed.training)
    atomic_write_text(out, page)
    for sentence in (*lacks, f"written: {out}"):
        logger.info(sentence)


def serve(followed: Followed, arguments: WatchArguments) -> None:
    """Serve the page until Ctrl-C."""
    from glassformer.explain.page import server

    if not RunFolder(followed.path).metrics.exists():
        logger.info(f"{followed.path} has no log yet: the page waits for it")

    def announce(address: str) -> None:
        logger.info(f"following {followed.path}; the page: {address}")
        console.write(address)

    server.serve(followed, port=arguments.port, open_browser=arguments.browser, on_ready=announce)
    logger.info("the page has ended")


@contextmanager
def watching(out: Path, browser: bool) -> Iterator[Callable[[StepMetrics], None]]:
    """Within the block, serve the page of a training, in a process that is started at the first step.

    Where somebody sits at a terminal the page stays after the training until Ctrl-C. The training continues where the
    page cannot be started.
    """
    pages: list[subprocess.Popen[bytes]] = []
    words = ["watch", str(out), "--control", "--device=cpu", *([] if browser else ["--no-browser"])]

    def on_step(report: StepMetrics) -> None:
        nonlocal words
        if words:
            environment, pipe = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": "1"}, subprocess.PIPE
            command, words = [sys.executable, "-c", CHILD, *words], []
            try:
                pages.append(subprocess.Popen(command, env=environment, stdin=pipe, stdout=subprocess.DEVNULL))
            except OSError as error:
                again = glassformer_command("watch", out)
                logger.warning(f"the page cannot be started: {error.strerror or error}; try: {again}")

    try:
        yield on_step
        if pages and console.is_terminal(sys.stderr) and console.is_terminal(sys.stdin):
            logger.info("the training has ended, and its page stays until Ctrl-C")
            with suppress(KeyboardInterrupt):
                pages[0].wait()
    finally:
        for page in pages:
            page.terminate()
            page.communicate()
