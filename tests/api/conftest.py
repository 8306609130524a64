"""Processes that scikit-learn starts end with the file that needed them."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _no_workers_left(_nothing_left: None) -> Iterator[None]:
    yield
    module = sys.modules.get("joblib.externals.loky.reusable_executor")
    if module is not None and module._executor is not None:
        module._executor.shutdown(wait=True)
