"""The benchmarks set up the process that they run in, for good; here it is put back after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _settings_put_back() -> Iterator[None]:
    precision = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(precision)
