"""With what a run computes: precision, library of matrix products and attention, as a trial of two seconds finds them.

Each may be twice as fast or as slow, by processor, build of torch and shapes, so nothing is concluded from a name or
from instructions. What is found is written into the run's settings (docs/speed.md).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor, nn

from glassformer.config import Config, TrainConfig
from glassformer.data.batches import Batch
from glassformer.tasks import Task
from glassformer.utils.cpu_threads import Threads, cores
from glassformer.utils.device import Attention, Computing, Precision, Products, autocast, has_onednn, tuned

if TYPE_CHECKING:  # an answer needs nothing of a training
    from glassformer.training.loop import RunContext

SHORT = 2e12
"""FLOPs of training below which a run takes the fixed settings: 20 s at 100 GFLOP/s, in which a trial gains nothing."""
SECONDS, BEHIND, TIE = 2.0, 1.5, 0.03
"""The most that a trial takes after each setting was timed once, how many times slower than the best a setting is tried
no further, and what share faster it must be to be taken."""
TOKENS = 1024
"""The most of a batch that is timed."""
CHOICES: dict[str, tuple[Any, ...]] = {
    "precision": get_args(Precision),
    "products": get_args(Products),
    "attention": get_args(Attention),
}
"""What is chosen, the safe value of each first."""


def computing_of(train: TrainConfig) -> Computing:
    """Return with what these settings compute; what they leave open is as on every machine."""
    named = {name: value for name in CHOICES if (value := getattr(train, name)) != "auto"}
    return Computing(**named, threads=train.threads)


@contextmanager
def computing(context: RunContext) -> Iterator[RunContext]:
    """Choose what the configuration leaves open, write it there, and compute with it within the block.

    Where no number of threads is given, and none is fixed by OMP_NUM_THREADS, it is adapted to other programs.
    """
    context = chosen(context)
    train = context.config.train
    fixed = train.threads is not None or train.deterministic or "OMP_NUM_THREADS" in os.environ
    with tuned(context.device, computing_of(train), train.deterministic):
        adapted = context.device.type == "cpu" and not fixed
        yield replace(context, threads=Threads(torch.get_num_threads(), len(cores())) if adapted else None)


def chosen(context: RunContext) -> RunContext:
    """Return the context with every open setting chosen, by the first process: tried, or fixed for short runs."""
    train = context.config.train
    if all(getattr(train, name) != "auto" for name in CHOICES):
        return context  # of a run that is resumed or repeated
    found, speeds = computing_of(train), dict[Computing, float]()
    n_batches = len(context.task.epoch_batches(context.train, 0))
    n_epochs = min(train.epochs or math.inf, (train.steps or math.inf) * train.accumulate / n_batches)
    n_tokens = context.train.stats.get("n_tokens", 0) * n_epochs
    flops = flops_per_token(context.task, context.config.text.max_len) * n_tokens
    is_fixed = train.deterministic or context.device.type == "mps"
    with context.group.raise_together():
        if context.group.is_main and not is_fixed and (train.minutes is not None or flops >= SHORT):
            with torch.random.fork_rng(devices=[context.device] if context.device.type == "cuda" else []):
                found, speeds = trial(context)
    known = [dict(zip(CHOICES, each, strict=True)) for each in product(*CHOICES.values())]
    (index,) = context.group.broadcast(known.index({name: getattr(found, name) for name in CHOICES}))
    first = sorted(speeds, key=lambda c: (c != found, -speeds[c]))
    line = "; ".join(f"{in_words(c)}: {float(f'{speeds[c]:.3g}'):,.0f} tokens/s" for c in first)
    config = replace(context.config, train=replace(train, **known[int(index)]))
    return replace(context.with_config(config), choice=f"{line} (a trial)" if line else "")


def n_passes(config: Config) -> int:
    """Return how many forward and backward passes of one model a step takes."""
    return config.model.ensemble_size * (2 if config.train.adversarial else 1)


def flops_per_token(task: Task, length: float) -> float:
    """Return the FLOPs of training on one token of a text of a length; a backward pass is two forward passes."""
    return 3 * n_passes(task.config) * task.forward_flops(length)


def in_words(c: Computing) -> str:
    """Return a setting without its threads in words: `fp32, products by MKL, fused attention`."""
    library = "oneDNN" if c.products == "onednn" else "MKL" if torch.backends.mkl.is_available() else "BLAS"
    products = f", products by {library}" if c.precision == "fp32" else ""
    return f"{c.precision}{products}, {c.attention} attention"


def candidates(train: TrainConfig, device: torch.device, d_model: int) -> list[Computing]:
    """Return the settings to try, the safe ones first."""
    values = {name: [v for v in CHOICES[name] if getattr(train, name) in ("auto", v)] for name in CHOICES}
    several = len(values["precision"]) > 1
    if device.type == "cuda":
        emulated, alone = several and not torch.cuda.is_bf16_supported(False), ["products", "attention"]
    else:
        emulated, alone = several and bf16_slowdown(d_model) > BEHIND, [] if has_onednn() else ["products"]
    values |= {name: values[name][:1] for name in alone + ["precision"] * emulated}
    found = [Computing(*each, threads=train.threads) for each in product(*values.values())]
    # In bf16 nothing depends on who multiplies in fp32.
    return [c for c in found if c.precision == "fp32" or c.products == values["products"][0]]


def bf16_slowdown(d_model: int) -> float:
    """Return how many times slower a product of matrices is in bf16 than in fp32, as where it is emulated."""

    def seconds(x: Tensor) -> float:
        began, _ = time.perf_counter(), x @ x.T
        return time.perf_counter() - began

    x = torch.randn(4 * d_model, d_model)
    fp32, bf16 = (min([seconds(y) for _ in range(3)][1:]) for y in (x, x.bfloat16()))
    return bf16 / max(fp32, 1e-9)


def trial(context: RunContext) -> tuple[Computing, dict[Computing, float]]:
    """Time steps under each setting, forward and backward; return the fastest, and the tokens/s of all.

    They take turns, A, B, A, B, so that what else the machine does is shared; the least time of each counts. The first
    round, in which kernels are built, does not.
    """
    from glassformer.models.ensemble import members_of
    from glassformer.training.loop import LossModule

    device, task, train = context.device, context.task, context.config.train
    plan = sorted(task.epoch_batches(context.train, 0)[:32], key=len)
    index = plan[len(plan) // 2]
    n_tokens = task.make_batch(context.train, index).n_tokens / len(index)
    batch = task.make_batch(context.train, index[: max(1, int(TOKENS / n_tokens))]).to(device)
    module = LossModule(members_of(task.build_model())[0].to(device).train(), task)  # the others take as long
    left = candidates(train, device, context.config.model.d_model)
    least, began, n_rounds = dict.fromkeys(left, math.inf), time.perf_counter(), 0
    while n_rounds < 2 or (len(left) > 1 and time.perf_counter() - began < SECONDS):
        for c in left:
            seconds = seconds_of_step(module, batch, device, c)
            least[c] = seconds if n_rounds < 2 else min(seconds, least[c])
        n_rounds += 1
        if n_rounds > 1:
            left = [c for c in left if least[c] <= BEHIND * min(least.values())]
    fast = [c for c in left if least[c] <= (1 + TIE) * min(least.values())]
    speeds = {c: batch.n_tokens / seconds / n_passes(context.config) for c, seconds in least.items()}
    return fast[0], speeds


def seconds_of_step(module: nn.Module, batch: Batch, device: torch.device, c: Computing) -> float:
    """Return the seconds of a forward and backward pass under a setting."""
    with tuned(device, c):
        began = time.perf_counter()
        with autocast(device, c.precision):
            loss = module(batch)
        loss.backward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = time.perf_counter() - began
    module.zero_grad()
    return seconds
