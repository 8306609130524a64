"""For all tests: calls of functions whose annotations have shapes are checked, and one thread computes.

Sums divided among threads have other last bits, and how many threads there are depends on what else runs.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator

import pytest
from tests.helpers.tiny_runs import Outcome, Runs, shared_runs
from tests.helpers.typechecker import install

os.environ.setdefault("OMP_NUM_THREADS", "1")
install()


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
