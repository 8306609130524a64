"""What a test needs of the machine it runs on."""

from __future__ import annotations

from typing import Any

import pytest
import torch

needs_fbgemm = pytest.mark.skipif(
    "fbgemm" not in torch.backends.quantized.supported_engines, reason="this torch is without FBGEMM"
)
"""A test of FBGEMM's kernels, which torch has on x86."""


def with_fbgemm(*parameters: object) -> Any:
    """A case that takes them."""
    return pytest.param(*parameters, marks=needs_fbgemm)
