"""For all tests: the same start wherever they are run, nothing left by any file of them, and checked shapes.

One thread computes: sums divided among threads have other last bits, and how many there are depends on what else runs.
"""

from __future__ import annotations

import gc
import io
import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec

os.environ["OMP_NUM_THREADS"] = "1"  # also of the processes that tests start

import numpy as np
import pytest
import torch
from tests.helpers.graphs_in_torch import put_in_place
from tests.helpers.leftovers import left, living, settings
from tests.helpers.tiny_runs import Outcome, Runs, shared_runs
from tests.helpers.typechecker import install
from tests.helpers.undrawn import UNDRAWN

install()
torch.set_num_threads(1)
from glassformer.utils import plotting  # noqa: E402 - after the type checker is in place

DRAWN = {name: getattr(plotting, name) for name in UNDRAWN}

KEPT = {"PATH", "CI", "COVERAGE_FILE", "OMP_NUM_THREADS", "GLASSFORMER_DATA", "GLASSFORMER_KILLS", "VIRTUAL_ENV"}
KEPT |= {"ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "FBGEMM_ENABLE_INSTRUCTIONS"}
"""The variables of the caller that tests see, besides those of pytest itself."""


def pytest_configure() -> None:
    """Take nothing else over from the caller: `nohup` ignores a signal, a shell in the background another."""
    if os.name == "posix":
        for name in [name for name in os.environ if name not in KEPT and not name.startswith(("PYTEST", "COV_"))]:
            del os.environ[name]
        os.environ["LC_ALL"] = "C.UTF-8"
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Look for garbage seldom, and not among what is imported: that took a quarter of the time."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[None]:
    """A home and a folder for temporary files of this process's own; matplotlib's list of fonts is kept."""
    base = tmp_path_factory.mktemp("process")
    with pytest.MonkeyPatch.context() as patch:
        for name, folder in (("HOME", base / "home"), ("TMPDIR", base / "temporary")):
            (folder / ".cache").mkdir(parents=True)
            patch.setenv(name, str(folder))
        patch.setenv("MPLCONFIGDIR", str(pytestconfig.cache.mkdir("matplotlib")))
        patch.setattr(tempfile, "tempdir", None)
        yield


@pytest.fixture(scope="module", autouse=True)
def _nothing_left(_own_folders: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each file of tests leaves the process as it was, and has a cache folder of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLASSFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        before = settings(), living()
        yield
        found = left(*before)
        gc.freeze()  # what has been imported meanwhile
    assert not found, "\n".join(found)


@pytest.fixture(scope="module", autouse=True)
def _quick_files(request: pytest.FixtureRequest) -> Iterator[None]:
    """No file is forced onto the disk, and a report's figures are drawn only in what bears the mark `draws` itself.

    Both were three quarters of the time of a tiny training. What is forced, and when, is tested one level above
    (`tests/helpers/crashing.py`).
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("glassformer.utils.atomic_io.os.fsync", lambda handle: None)
        draw_or_not(request, patch)
        yield


@pytest.fixture(autouse=True)
def _drawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    draw_or_not(request, monkeypatch)


def draw_or_not(request: pytest.FixtureRequest, patch: pytest.MonkeyPatch) -> None:
    """Draw figures in a test or a file with the mark, and in no other."""
    drawn = DRAWN if "draws" in {mark.name for mark in request.node.own_markers} else UNDRAWN
    for name, function in drawn.items():
        patch.setattr(f"glassformer.utils.plotting.{name}", function)


@pytest.fixture(autouse=True)
def _graphs_in_torch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the slow tests few ONNX graphs are recorded (`tests/helpers/graphs_in_torch.py`)."""
    whole = "not slow" not in request.config.option.markexpr
    if not whole and request.node.get_closest_marker("records") is None and find_spec("onnxruntime"):
        put_in_place(monkeypatch)


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """Each test begins with the same random numbers, whatever ran before it."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _log_to_stderr() -> Iterator[None]:
    """Show log messages on stderr, as the command does: tests read them with capsys."""
    from glassformer.utils.console import log_to_stderr

    with log_to_stderr():
        yield


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """`cli("predict", run, stdin=b"a\\n")` → exit code, stdout, stderr."""
    from glassformer.cli.main import main

    def call(*arguments: object, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        capsys.readouterr()
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return shared_runs(tmp_path_factory)
