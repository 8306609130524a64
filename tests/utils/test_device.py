"""Settings of the process: set while something computes, and put back."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator

import pytest
import torch

from glassformer.utils import device
from glassformer.utils.device import choose_precision, many_shapes, rounds_matmul, tuned

CPU = torch.device("cpu")
FAST = "highest" if rounds_matmul("cpu", "medium") else "medium"
"""Some processors multiply bf16 natively, and round to it under "medium"."""


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
        assert settings()[:2] == (FAST, False)
        with tuned(CPU, deterministic=True):
            assert settings()[:2] == ("highest", True)
        assert settings()[:2] == (FAST, False)
    assert settings() == callers
    with pytest.raises(ZeroDivisionError), tuned(CPU, deterministic=True):
        raise ZeroDivisionError
    assert settings() == callers


def test_cudnn_attention_is_off_on_a_gpu_and_then_as_it_was() -> None:
    """The switch is there without a GPU, so it can be tested without one."""
    before = settings()
    with tuned(torch.device("cuda")):
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert settings() == before


def test_decoding_takes_the_library_without_a_kernel_for_every_shape() -> None:
    with tuned(CPU):
        with many_shapes(CPU):
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == FAST
        with many_shapes(torch.device("cuda")):
            assert torch.get_float32_matmul_precision() == FAST


def test_nothing_rounds_where_fp32_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU rounds to TF32 under any other setting, some processors to bf16: predictions would not be the explained."""
    with tuned(torch.device("cuda")):
        assert torch.get_float32_matmul_precision() == "highest"
    monkeypatch.setattr(device, "rounds_matmul", lambda name, setting: True)
    with tuned(CPU):
        assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("capabilities", [{}, {"avx2": True}, {"neon": True, "bf16": True}, {"avx512_bf16": False}])
def test_without_native_bf16_on_x86_the_precision_is_fp32(
    capabilities: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arm processors with bf16 are not measured, so they compute in fp32 unless bf16 is requested."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert choose_precision("auto", CPU) == "fp32" and choose_precision("bf16", CPU) == "bf16"


@pytest.mark.parametrize(("kernels", "precision"), [("AVX512", "bf16"), ("AVX2", "fp32"), ("DEFAULT", "fp32")])
def test_bf16_takes_the_processor_and_the_kernels(
    kernels: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: kernels)
    assert choose_precision("auto", CPU) == precision


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
