"""A step's floor: the sum of its exact matrix products, forward and backward, each timed alone at its best.

No training of this model by these products can be faster on this machine; how far a step lies above says what is left.

    python -m benchmarks.speed.floor SPEC
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from benchmarks.speed.peers.serving import ArrayBatch, Spec, keep_large_blocks, make_batch
from benchmarks.speed.workloads import Workload, load_data

from glassformer.utils.device import matmul_precision

LEAST_SECONDS, MOST_TIMES, LEAST_TIMES = 0.01, 20, 3
"""How long, and how often, each product is timed."""


@dataclass(frozen=True)
class Product:
    """n products (m, k) × (k, o), and how often a step has them."""

    n: int
    m: int
    k: int
    o: int

    @property
    def flops(self) -> int:
        """Return the FLOPs, two per multiply–add."""
        return 2 * self.n * self.m * self.k * self.o

    def backward(self) -> tuple[Product, Product]:
        """Return the two products of the gradients of its factors: dY Wᵀ and Xᵀ dY."""
        return Product(self.n, self.m, self.o, self.k), Product(self.n, self.k, self.m, self.o)


def forward_products(w: Workload, batch: ArrayBatch) -> Counter[Product]:
    """Count the matrix products of one forward pass over a batch, padding included.

    Attention counts full matrices of scores, also where a causal mask hides half of each.
    """
    rows, width, d = *batch.ids.shape, w.d_model
    if batch.tgt_in is None:
        products = _layers(w, rows, width, w.n_layers)
        if w.kind == "lm":
            products[Product(1, rows * width, d, w.vocab_size)] += 1
        else:
            products[Product(1, rows, d, 2)] += 1
        return products
    target = batch.tgt_in.shape[1]
    products = _layers(w, rows, width, w.n_layers) + _layers(w, rows, target, w.n_layers)
    cross = Counter({Product(1, rows * target, d, d): 2, Product(1, rows * width, d, 2 * d): 1})
    cross += _attention(w, rows, target, width)
    for product, times in cross.items():
        products[product] += times * w.n_layers
    n_labels = int((batch.labels >= 0).sum())
    products[Product(1, n_labels, d, w.vocab_size)] += 1
    return products


def step_products(w: Workload, batches: Iterable[ArrayBatch]) -> Counter[Product]:
    """Count the products of forward and backward passes over all batches of a round."""
    products: Counter[Product] = Counter()
    for batch in batches:
        for product, times in forward_products(w, batch).items():
            for each in (product, *product.backward()):
                products[each] += times
    return products


def _layers(w: Workload, rows: int, width: int, n_layers: int) -> Counter[Product]:
    """Count the products of self attention, with its three projections as one, and feed-forward."""
    d, tokens = w.d_model, rows * width
    layer = Counter([Product(1, tokens, d, 3 * d), Product(1, tokens, d, d)])
    layer += Counter([Product(1, tokens, d, w.d_ff), Product(1, tokens, w.d_ff, d)])
    layer += _attention(w, rows, width, width)
    return Counter({product: times * n_layers for product, times in layer.items()})


def _attention(w: Workload, rows: int, queries: int, keys: int) -> Counter[Product]:
    """Count the products of scores and weighted sums of every head."""
    heads, d_head = rows * w.n_heads, w.d_model // w.n_heads
    return Counter([Product(heads, queries, d_head, keys), Product(heads, queries, keys, d_head)])


def seconds_of(product: Product, dtype: torch.dtype) -> float:
    """Return the minimum seconds of several runs, over the memory layouts that autograd uses."""
    shape = (product.n, product.m, product.k), (product.n, product.k, product.o)
    a, b = (torch.randn(s if product.n > 1 else s[1:], dtype=dtype) for s in shape)
    a_t, b_t = (x.transpose(-1, -2).contiguous().transpose(-1, -2) for x in (a, b))
    return min(_quickest(lambda x=x, y=y: x @ y) for x, y in ((a, b), (a, b_t), (a_t, b)))


def _quickest(run: Callable[[], object]) -> float:
    run()
    best, began, times = float("inf"), time.perf_counter(), 0
    while times < LEAST_TIMES or (time.perf_counter() - began < LEAST_SECONDS and times < MOST_TIMES):
        at = time.perf_counter()
        run()
        best, times = min(best, time.perf_counter() - at), times + 1
    return best


def seconds_alone(products: Counter[Product], precision: str) -> float:
    """Return the total seconds of all products, each shape timed alone, by the library and precision that is fastest.

    `precision` "bf16" allows both, "fp32" itself alone.
    """

    def least(product: Product) -> float:
        seconds = []
        for library in ("highest", "medium"):
            with matmul_precision(library):
                seconds.append(seconds_of(product, torch.float32))
        return min(seconds + ([seconds_of(product, torch.bfloat16)] if precision == "bf16" else []))

    return sum(times * least(product) for product, times in products.items())


def main() -> None:
    """Print {"seconds", "flops"} of one round."""
    spec = Spec.read(sys.argv[1])
    keep_large_blocks()
    texts, plans = load_data(spec.data)
    batches = [make_batch(spec.workload, texts, index) for index in plans["bucketed"]]
    products = step_products(spec.workload, batches)
    flops = sum(times * product.flops for product, times in products.items())
    print(json.dumps({"seconds": seconds_alone(products, spec.settings.precision), "flops": flops}))


if __name__ == "__main__":
    main()
