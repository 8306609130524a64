"""The machine: which device, which precision, and the process-wide settings that make CPUs fast.

Nothing here changes what is computed beyond the precision it names; every setting can be left out.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

from glassformer.errors import UsageError

Precision = Literal["fp32", "bf16"]


def choose_device(name: str = "auto") -> torch.device:
    """CUDA, else MPS, else CPU; or the one asked for.

    Raises:
        UsageError: the device asked for is not here.
    """
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if name == "auto":
        return torch.device("cuda" if cuda else "mps" if mps else "cpu")
    if (name == "cuda" and not cuda) or (name == "mps" and not mps):
        raise UsageError(
            f"device {name} was asked for, and this machine has none", "use --device auto or cpu"
        )
    return torch.device(name)


def choose_precision(name: str, device: torch.device) -> Precision:
    """bf16 where the processor multiplies it natively and so faster, fp32 elsewhere; or the one asked for."""
    if name != "auto":
        return "bf16" if name == "bf16" else "fp32"
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    if device.type == "cpu":
        capable = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
        return "bf16" if capable.get("avx512_bf16") or capable.get("amx_bf16") else "fp32"
    return "fp32"


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Matrix products in bf16 over fp32 weights, or nothing at all."""
    if precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()


def tune_process(device: torch.device, deterministic: bool = False) -> None:
    """Process-wide settings for training; called by commands, never on import.

    - fp32 matrix products may take the fast kernels ("medium": still fp32 sums on x86 CPUs, where it
      picks oneDNN over MKL; TF32-like on GPUs).
    - glibc keeps large blocks instead of returning them to the kernel after every use.
    - cuDNN attention is off: it plans anew for every shape, and ours change with every batch.
    """
    torch.set_float32_matmul_precision("highest" if deterministic else "medium")
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)
        if deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(deterministic)
    if sys.platform == "linux":
        try:
            libc = ctypes.CDLL("libc.so.6")
            libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
            libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
            libc.mallopt(
                -8, 1
            )  # M_ARENA_MAX: the backward pass runs in a thread, and its arena gives back too
        except (OSError, AttributeError):
            pass  # musl and others: slower, not wrong
