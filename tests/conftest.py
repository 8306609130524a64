"""For all tests: calls of functions whose annotations have shapes are checked, and one thread computes.

Sums divided among threads have other last bits, and how many threads there are depends on what else runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.helpers.typechecker import install

os.environ.setdefault("OMP_NUM_THREADS", "1")
install()


@pytest.fixture(autouse=True)
def _log_to_stderr() -> Iterator[None]:
    """Show log messages on stderr, as the command does: tests read them with capsys."""
    from glassformer.utils.console import log_to_stderr

    with log_to_stderr():
        yield
