"""The machine: which device, which precision, and the settings that make it fast.

Nothing here changes what is computed beyond the precision it names; every setting can be left out.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cache
from typing import Literal

import torch

from glassformer.errors import UsageError
from glassformer.utils.process_settings import Settings, turns

Precision = Literal["fp32", "bf16"]


def choose_device(name: str = "auto") -> torch.device:
    """Return the device of that name; for "auto" CUDA, else MPS, else the CPU.

    Raises:
        UsageError: the device asked for is not here.
    """
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if name == "auto":
        return torch.device("cuda" if cuda else "mps" if mps else "cpu")
    if (name == "cuda" and not cuda) or (name == "mps" and not mps):
        message = f"device {name} was asked for, and this machine has none"
        raise UsageError(message, "use --device auto or cpu")
    return torch.device(name)


def uses_avx512() -> bool:
    """Return whether torch's kernels are those for AVX-512."""
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


def choose_precision(name: str, device: torch.device) -> Precision:
    """Return the precision of that name; for "auto" bf16 where the processor multiplies it natively, else fp32."""
    if name != "auto":
        fast = name == "bf16"
    elif device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        # `ATEN_CPU_CAPABILITY` may keep torch from instructions that the processor has.
        able = torch.cpu.get_capabilities() if device.type == "cpu" and uses_avx512() else {}
        fast = able.get("avx512_bf16") or able.get("amx_bf16")
    return "bf16" if fast else "fp32"


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Return a context in which matrix products are bf16 over fp32 weights, or which does nothing."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bf16" else nullcontext()


@contextmanager
def tuned(device: torch.device, deterministic: bool = False) -> Iterator[None]:
    """Apply settings that make the computation within the block fast; the caller's are restored after it.

    - fp32 matrix products may take the fast kernels of a CPU ("medium": oneDNN instead of MKL) where a trial shows
      that they round nothing. With `deterministic`, and on a GPU, whose fast kernels round to TF32, they may not.
    - cuDNN attention is off: it plans anew for every shape, and ours change with every batch.
    - glibc keeps large blocks; this stays, and so does the size of cuBLAS's workspace, since neither
      changes a number.

    They belong to the process: a thread that needs others waits for its turn (`utils/process_settings.py`).
    """
    _keep_large_blocks()
    n_threads = torch.get_num_threads()
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        with turns.hold(_settings_for(device, deterministic)):
            yield
    finally:
        if torch.get_num_threads() != n_threads:
            torch.set_num_threads(n_threads)


@contextmanager
def tuned_process(device: torch.device) -> Iterator[None]:
    """Apply the settings of `tuned` within the block to all threads that hold no others, and hold none.

    For a thread that waits meanwhile for others, which compute.
    """
    before = Settings.read()
    _keep_large_blocks()
    _settings_for(device, deterministic=False).apply()
    try:
        yield
    finally:
        before.apply()


@contextmanager
def many_shapes(device: torch.device) -> Iterator[None]:
    """Use MKL for fp32 matrix products on a CPU within the block, whatever is set outside.

    oneDNN, which "medium" prefers, is faster for large products, but compiles a kernel for every new shape. That costs
    more than a small product, and decoding has new shapes at every step.
    """
    with matmul_precision("highest") if device.type == "cpu" else nullcontext():
        yield


def matmul_precision(name: str) -> AbstractContextManager[None]:
    """Return a context in which this thread multiplies fp32 matrices in this precision: "highest", "high", "medium".

    Threads that need another one meanwhile wait for their turn.
    """
    return turns.hold(replace(turns.current, matmul=name))


def current_matmul_precision() -> str:
    """Return the precision in which this thread multiplies fp32 matrices, whatever another thread has set."""
    return turns.current.matmul


def _settings_for(device: torch.device, deterministic: bool) -> Settings:
    cudnn_attention = turns.current.cudnn_attention and device.type != "cuda"
    fast = not deterministic and device.type == "cpu" and not rounds_matmul("cpu", "medium")
    return Settings("medium" if fast else "highest", deterministic, False, cudnn_attention)


@cache
def rounds_matmul(device: str, setting: str) -> bool:
    """Return whether products of fp32 matrices have less than fp32 precision under this setting, by a trial.

    "medium" allows rounding to bf16 or TF32. Few processors do it, and those with AMX (Intel, from 2023) only in
    batched and in large products, so both are tried.
    """
    generator = torch.Generator().manual_seed(0)
    errors = []
    for shape in ((4, 64, 64), (512, 512)):
        a, b = (torch.randn(shape, generator=generator) for _ in range(2))
        with matmul_precision(setting):
            product = (a.to(device) @ b.to(device)).cpu().double()
        exact = a.double() @ b.double()
        errors.append(float((product - exact).abs().max() / exact.abs().max()))
    return max(errors) > 1e-5  # fp32 gives 1e-7, bf16 1e-3


def _keep_large_blocks() -> None:
    """Make glibc keep large blocks of memory instead of returning them to the kernel after every use."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # musl and others: slower, not wrong
            libc = ctypes.CDLL("libc.so.6")
            libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
            libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
            libc.mallopt(-8, 1)  # M_ARENA_MAX: the backward pass has a thread, whose arena gives back too


def _compute_alone() -> None:
    """Limit torch to one thread in a child that was forked.

    OpenMP's other threads are not in the child, and the first operation that is divided among them would wait for them
    forever. `torch.set_num_threads` in the child chooses otherwise, where the parent had not computed.
    """
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork either
    os.register_at_fork(after_in_child=_compute_alone)
