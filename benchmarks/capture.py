"""What tracing costs: how much longer a forward pass takes. While nobody traces, there is nothing to measure.

    OMP_NUM_THREADS=1 python benchmarks/capture.py

The figures are medians of ratios of neighbouring measurements, so that a machine which is busy with other
things slows both sides alike.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.explain import trace
from glassformer.models import LanguageModel, TextClassifier, Translator
from glassformer.utils.device import tuned

VOCAB = 1000
CONFIG = ModelConfig(n_layers=6, d_model=256, n_heads=8)


def ratios(a: Callable[[], object], b: Callable[[], object], n: int) -> list[float]:
    """Return seconds of b over seconds of a, n times, alternating which runs first."""
    found = []
    for i in range(n + 2):
        seconds = {}
        for name, run in (("a", a), ("b", b)) if i % 2 else (("b", b), ("a", a)):
            start = time.perf_counter()
            run()
            seconds[name] = time.perf_counter() - start
        if i >= 2:  # the first two warm up
            found.append(seconds["b"] / seconds["a"])
    return found


def print_ratios(what: str, found: list[float]) -> None:
    """Print the quartiles of ratios."""
    low, middle, high = statistics.quantiles(found, n=4)
    print(f"{what:52} {middle:6.3f}   (quartiles {low:.3f} – {high:.3f}, n = {len(found)})")


def capture(length: int, n: int) -> None:
    """Measure a traced forward pass relative to a plain one, hooks included, and the size of the trace."""
    x = torch.randint(VOCAB, (1, length))
    classifier = TextClassifier(CONFIG, VOCAB, 2, 512), (x,)
    translator = Translator(CONFIG, VOCAB, 512), (x, x)
    language_model = LanguageModel(CONFIG, VOCAB, 512), (x,)
    for name, (model, args) in (("encoder", classifier), ("encoder-decoder", translator), ("decoder", language_model)):
        model.eval()

        def plain(model: torch.nn.Module = model, args: tuple[Tensor, ...] = args) -> None:
            model(*args)

        def traced(model: torch.nn.Module = model, args: tuple[Tensor, ...] = args) -> None:
            with trace(model):
                model(*args)

        def traced_and_read(model: torch.nn.Module = model, args: tuple[Tensor, ...] = args) -> None:
            with trace(model) as t:
                model(*args)
            list(t.values())

        with torch.no_grad():
            print_ratios(f"forward, traced / plain ({name}, length {length})", ratios(plain, traced, n))
            print_ratios("    and every record read", ratios(plain, traced_and_read, n))
            with trace(model) as t:
                model(*args)
        size = sum(r.value.numel() * r.value.element_size() for r in t.values())
        print(f"{'':4}{len(t)} records, {size / 1e6:.1f} MB, explicit against fused {t.check().value:.1e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=40, help="measurements a figure")
    parser.add_argument("--lengths", type=int, nargs="+", default=[24, 64, 128])
    args = parser.parse_args()
    torch.manual_seed(0)
    with tuned(torch.device("cpu")):  # as an explanation is made: memory that is freed is used again
        for n_tokens in args.lengths:
            capture(n_tokens, args.n)
