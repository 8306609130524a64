"""The machine: which device, which precision, and the settings that make it fast.

Nothing here changes what is computed beyond the precision it names; every setting can be left out.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.utils.process_settings import Settings, turns

Precision = Literal["fp32", "bf16"]
Products = Literal["blas", "onednn"]
Attention = Literal["fused", "explicit"]


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


@dataclass(frozen=True)
class Computing:
    """With what a model computes; the defaults are the same on every machine.

    Args:
        precision: "bf16" is autocast over fp32 weights.
        products: what multiplies fp32 matrices on a CPU: torch's default ("blas": MKL, OpenBLAS …), or oneDNN.
        attention: torch's fused kernel, or explicit products; on a CPU.
        threads: most threads on a CPU; as many as torch has when absent.
    """

    precision: Precision = "fp32"
    products: Products = "blas"
    attention: Attention = "fused"
    threads: int | None = None


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Return a context in which matrix products are bf16 over fp32 weights, or which does nothing."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bf16" else nullcontext()


@contextmanager
def tuned(device: torch.device, computing: Computing = Computing(), deterministic: bool = False) -> Iterator[None]:
    """Compute with these settings within the block; the caller's are restored after it.

    - cuDNN attention is off: it plans anew for every shape, and ours change with every batch.
    - glibc keeps large blocks instead of returning them to the kernel after every use; this stays, and so does the
      size of cuBLAS's workspace, since neither changes a number.

    A thread that needs other settings of the process waits for its turn (`utils/process_settings.py`).
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # musl and others: slower, not wrong
            libc = ctypes.CDLL("libc.so.6")
            libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
            libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
            libc.mallopt(-8, 1)  # M_ARENA_MAX: the backward pass has a thread, whose arena gives back too
    n_threads, on_cpu = torch.get_num_threads(), device.type == "cpu"
    onednn = computing.products == "onednn" and on_cpu and has_onednn()
    cudnn_attention = turns.current.cudnn_attention and device.type != "cuda"
    flash = computing.attention == "fused" or not on_cpu
    settings = Settings("medium" if onednn else "highest", deterministic, False, cudnn_attention, flash)
    if deterministic and device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        with turns.hold(settings):
            if computing.threads is not None and on_cpu and computing.threads != n_threads:
                torch.set_num_threads(computing.threads)
            yield
    finally:
        if torch.get_num_threads() != n_threads:
            torch.set_num_threads(n_threads)


def matmul_precision(name: str) -> AbstractContextManager[None]:
    """Return a context in which this thread multiplies fp32 matrices in this precision: "highest", "high", "medium"."""
    return turns.hold(replace(turns.current, matmul=name))


@cache
def has_onednn() -> bool:
    """Return whether oneDNN multiplies fp32 matrices here, other than torch's default, and in full precision.

    The setting that selects it does nothing on some processors, and on those with AMX (Intel, from 2023) it rounds to
    bf16, though only in batched and in large products; so two are tried.
    """
    generator, errors = torch.Generator().manual_seed(0), list[float]()
    for shape in ((4, 64, 64), (512, 512)):
        a, products = torch.randn(shape, generator=generator), list[Tensor]()
        for name in ("highest", "medium"):
            with matmul_precision(name):
                products.append(a @ a)
        errors.append(float((products[1] - products[0]).abs().max() / products[0].abs().max()))
    return 0 < max(errors) < 1e-5  # fp32 gives 1e-7, bf16 1e-3


def _compute_alone() -> None:
    """Limit torch to one thread in a child that was forked.

    OpenMP's other threads are not in the child, and the first operation that is divided among them would wait for them
    forever. `torch.set_num_threads` in the child chooses otherwise, where the parent had not computed.
    """
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork either
    os.register_at_fork(after_in_child=_compute_alone)
