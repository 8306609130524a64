"""Settings of the process: set while something computes, and put back."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator

import pytest
import torch

from glassformer.utils import device
from glassformer.utils.device import Computing, has_onednn, matmul_precision, tuned

CPU = torch.device("cpu")
ONEDNN = Computing(products="onednn")
FAST = "medium" if has_onednn() else "highest"
"""Some processors round to bf16 under "medium", and to some it means nothing."""


def settings() -> tuple[str, bool, bool, bool]:
    return (
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cuda.cudnn_sdp_enabled(),
    )


@pytest.fixture(params=[("highest", False, False), ("high", True, True), ("medium", True, False)], ids=str)
def callers(request: pytest.FixtureRequest) -> Iterator[tuple[str, bool, bool, bool]]:
    """What a caller has set."""
    before = settings()
    precision, strict, warn_only = request.param
    torch.set_float32_matmul_precision(precision)
    torch.use_deterministic_algorithms(strict, warn_only=warn_only)
    yield settings()
    torch.set_float32_matmul_precision(before[0])
    torch.use_deterministic_algorithms(before[1], warn_only=before[2])


def test_what_the_caller_set_is_put_back(callers: tuple[str, bool, bool, bool]) -> None:
    with tuned(CPU):
        assert settings()[:2] == ("highest", False)
    with tuned(CPU, ONEDNN):
        assert settings()[:2] == (FAST, False)
        with tuned(CPU, deterministic=True):
            assert settings()[:2] == ("highest", True)
        assert settings()[:2] == (FAST, False)
    assert settings() == callers
    with pytest.raises(ZeroDivisionError), tuned(CPU, deterministic=True):
        raise ZeroDivisionError
    assert settings() == callers


def test_nothing_rounds_where_fp32_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU rounds to TF32 under any other setting, some processors to bf16: predictions would not be the explained."""
    before = settings()
    with tuned(CPU, ONEDNN), matmul_precision("highest"):
        assert torch.get_float32_matmul_precision() == "highest"
    with tuned(torch.device("cuda"), ONEDNN):  # its switches are there without a GPU
        assert torch.get_float32_matmul_precision() == "highest" and not torch.backends.cuda.cudnn_sdp_enabled()
    monkeypatch.setattr(device, "has_onednn", lambda: False)
    with tuned(CPU, ONEDNN):
        assert torch.get_float32_matmul_precision() == "highest"
    assert settings() == before


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_memory_of_a_system_without_glibc_is_left_alone(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []

    def no_library(name: object) -> None:
        opened.append(name)
        raise OSError(f"{name}: no such file")

    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(ctypes, "CDLL", no_library)
    with tuned(CPU):
        assert torch.ones(3).sum() == 3
    assert opened == (["libc.so.6"] if platform == "linux" else [])
