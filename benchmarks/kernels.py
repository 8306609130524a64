"""Which kernels are fastest on this processor: explicit or fused attention, MKL or oneDNN for fp32 products.

    python -m benchmarks.kernels                                # this processor
    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 python -m benchmarks.kernels

The second command imitates a processor without AVX-512. `nn/attention.py` and `utils/device.py` hold the choices that
follow from these tables. Each figure is the median of interleaved repeats of forward and backward.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from glassformer.nn.attention import Mask, fused_attention
from glassformer.utils.console import plain_table

N_TOKENS, N_HEADS, D_HEAD = 4096, 4, 64
LENGTHS = 16, 32, 64, 128, 192, 256, 384, 512, 1024, 2048
SHAPES = (128, 128, 512), (512, 128, 128), (1536, 128, 512), (1536, 512, 128), (4096, 256, 256), (4096, 256, 1024)
"""Rows, inputs and outputs of a linear layer."""


def seconds(run: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def medians(runs: list[Callable[[], object]], repeats: int) -> list[float]:
    """Return the median seconds of each function, interleaved, after one call that is not counted."""
    for run in runs:
        run()
    times = [[seconds(run) for run in runs] for _ in range(repeats)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def attention_step(length: int, dtype: torch.dtype, causal: bool, kernel: bool) -> Callable[[], object]:
    """Return forward and backward of attention over `N_TOKENS` tokens in texts of one length."""
    shape = max(1, N_TOKENS // length), N_HEADS, length, D_HEAD
    q, k, v = (torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3))
    padding = torch.arange(length) < torch.full((shape[0], 1), max(1, length - 3))
    mask = Mask.of(causal=(length, length)) if causal else Mask.of(padding_mask=padding)

    def step() -> Tensor:
        out = fused_attention(q, k, v, mask, kernel=kernel)
        out.sum().backward()
        return out

    return step


def attention_table(repeats: int) -> str:
    """Return milliseconds of explicit and fused attention by length, precision and mask."""
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        for causal in (False, True):
            for length in LENGTHS:
                runs = [attention_step(length, dtype, causal, kernel) for kernel in (False, True)]
                explicit, fused = medians(runs, repeats)
                name = "causal" if causal else "padding"
                faster = "fused" if fused < explicit else "explicit"
                cells = f"{1e3 * explicit:.1f}", f"{1e3 * fused:.1f}", f"{explicit / fused:.2f}"
                rows.append((str(dtype).removeprefix("torch."), name, length, *cells, faster))
    return plain_table(("dtype", "mask", "keys", "explicit ms", "fused ms", "ratio", "faster"), rows)


def linear_step(shape: tuple[int, int, int], precision: str) -> Callable[[], object]:
    """Return forward and backward of a linear layer in fp32, with MKL ("highest") or oneDNN ("medium")."""
    n_rows, n_in, n_out = shape
    layer, x = nn.Linear(n_in, n_out), torch.randn(n_rows, n_in, requires_grad=True)

    def step() -> None:
        torch.set_float32_matmul_precision(precision)
        layer(x).sum().backward()
        torch.set_float32_matmul_precision("highest")

    return step


def linear_table(repeats: int) -> str:
    """Return GFLOP/s of both matrix libraries by shape."""
    rows = []
    for shape in SHAPES:
        flops = 6 * shape[0] * shape[1] * shape[2]
        mkl, onednn = medians([linear_step(shape, name) for name in ("highest", "medium")], repeats)
        faster = "oneDNN" if onednn < mkl else "MKL"
        rows.append((" × ".join(map(str, shape)), f"{flops / mkl / 1e9:.0f}", f"{flops / onednn / 1e9:.0f}", faster))
    return plain_table(("rows × in × out", "MKL GFLOP/s", "oneDNN GFLOP/s", "faster"), rows)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    print(f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads, torch {torch.__version__}\n")
    print(linear_table(repeats), "\n")
    print(attention_table(repeats))


if __name__ == "__main__":
    main()
