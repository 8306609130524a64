"""With what a run computes: precision, library of matrix products, attention and threads, as a trial here finds them.

Each may be twice as fast or as slow, by processor, build of torch and shapes, so nothing is concluded from a name or
from instructions. What is found is kept in the cache folder, and written into the run's settings (docs/speed.md).
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor, nn

from glassformer.config import Config, TrainConfig
from glassformer.data.batches import Batch
from glassformer.data.download import cache_dir
from glassformer.errors import CheckpointError, ResourceError
from glassformer.models.build import d_ff_of
from glassformer.nn.layers import Stack
from glassformer.tasks import Task
from glassformer.utils.atomic_io import write_folder_atomically
from glassformer.utils.cpu_threads import GIVE_UP, Threads, cores, usage
from glassformer.utils.device import Attention, Computing, Precision, Products, autocast, has_onednn, tuned
from glassformer.utils.formatting import counted
from glassformer.utils.safe_read import LIMITS, read_json_object

if TYPE_CHECKING:  # an answer reads what is kept, and needs nothing of a training
    from glassformer.training.state import RunContext

logger = logging.getLogger(__name__)

SHORT = 2e12
"""FLOPs of training below which a run takes the fixed settings: 20 s at 100 GFLOP/s, in which a trial gains nothing."""
SECONDS, ROUNDS = 2.0, 2
"""The most that a trial takes, and how often each setting is timed on the same examples."""
FIRST_TOKENS, BEHIND, TIE = 192, 1.5, 0.03
"""Tokens that are timed first: with fewer, a cast of the weights counts most. How many times slower than the best a
setting is tried no further, and what share faster it must be to be taken."""


def computing_of(train: TrainConfig) -> Computing:
    """Return with what these settings compute; what they leave open is as on every machine."""
    named = {name: value for name in CHOICES if (value := getattr(train, name)) != "auto"}
    most = None if has_fixed_threads(train) else train.most_threads
    return Computing(**named, threads=train.threads or (most and min(most, len(cores()))))


def has_fixed_threads(train: TrainConfig) -> bool:
    """Return whether the number of threads is given, and neither tried nor adapted to other programs."""
    return train.threads is not None or train.deterministic or "OMP_NUM_THREADS" in os.environ


CHOICES: dict[str, tuple[Any, ...]] = {
    "precision": get_args(Precision),
    "products": get_args(Products),
    "attention": get_args(Attention),
}
"""What is chosen besides the threads, the safe value of each first."""


@contextmanager
def computing(context: RunContext) -> Iterator[RunContext]:
    """Choose what the configuration leaves open, write it there, and compute with it within the block."""
    context = chosen(context)
    train = context.config.train
    with tuned(context.device, computing_of(train), train.deterministic):
        adapted = context.device.type == "cpu" and not has_fixed_threads(train)
        yield replace(context, threads=Threads(torch.get_num_threads(), len(cores())) if adapted else None)


def chosen(context: RunContext) -> RunContext:
    """Return the context with every open setting chosen, by the first process: kept, tried, or fixed for short runs."""
    train = context.config.train
    if all(getattr(train, name) != "auto" for name in CHOICES):
        return context  # of a run that is resumed or repeated
    found, line = computing_of(train), ""
    with context.group.raise_together():
        if context.group.is_main and is_worth_a_trial(context):
            with torch.random.fork_rng(devices=[context.device] if context.device.type == "cuda" else []):
                found, line = kept_or_tried(context)
    known = [dict(zip(CHOICES, each, strict=True)) for each in product(*CHOICES.values())]
    index = known.index({name: getattr(found, name) for name in CHOICES})
    index, threads = map(int, context.group.broadcast(index, found.threads or 0))
    most = threads if threads and train.threads is None else train.most_threads
    settled = replace(train, **known[index], most_threads=most)
    return replace(context.with_config(replace(context.config, train=settled)), choice=line)


def is_worth_a_trial(context: RunContext) -> bool:
    """Return whether the run is long enough for one, and may be anything but the same on every machine."""
    train, corpus = context.config.train, context.train
    if train.deterministic or context.device.type == "mps":
        return False
    n_batches = len(context.task.epoch_batches(corpus, 0))
    n_epochs = min(train.epochs or math.inf, (train.steps or math.inf) * train.accumulate / n_batches)
    flops = flops_per_token(context.task, context.config.text.max_len) * corpus.stats.get("n_tokens", 0) * n_epochs
    return train.minutes is not None or flops >= SHORT


def n_passes(config: Config) -> int:
    """Return how many forward and backward passes of one model a step takes."""
    return config.model.ensemble_size * (2 if config.train.adversarial else 1)


def flops_per_token(task: Task, length: float) -> float:
    """Return the FLOPs of training on one token of a text of a length; a backward pass is two forward passes."""
    return 3 * n_passes(task.config) * task.forward_flops(length)


# --- what is kept ---------------------------------------------------------------------------------------------


def machine(device: torch.device) -> str:
    """Return a name for the processor, or the GPU, and for the kernels with which torch computes on it."""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    torchs = torch.__version__, torch.backends.cpu.get_cpu_capability(), torch.backends.mkl.is_available(), gpu
    threads, able = (len(cores()), torch.get_num_threads()), sorted(torch.cpu.get_capabilities().items())
    facts = torchs, threads, able, sorted(each for each in os.environ.items() if each[0].startswith(KERNELS))
    return f"{device.type}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}"


CHOICE, OPEN = "choice.json", "open"
KERNELS = "ATEN_CPU", "ONEDNN_", "DNNL_", "MKL_", "FBGEMM_", "OMP_NUM_THREADS"
"""Beginnings of the variables on which kernels depend."""


def shape_of(config: Config, n_tokens: int) -> str:
    """Return the shapes of a model, the vocabulary of `n_tokens` and the longest text by their powers of two."""
    c = config.model
    rough = f"v{round(math.log2(n_tokens))}-l{round(math.log2(config.text.max_len))}"
    return f"{config.task}-{c.n_layers}x{c.d_model}-h{c.n_heads}-f{d_ff_of(c)}-{rough}"


def kept_in(context: RunContext, batch: Batch) -> Path:
    """Return the folder of the choice for this model, the rows and lengths of a batch, and what the settings fix."""
    fixed = [getattr(context.config.train, name) for name in (*CHOICES, "threads", "most_threads")]
    kind = OPEN if all(value in ("auto", None) for value in fixed) else "fixed"
    name = f"{machine(context.device)}-{shape_of(context.config, context.task.tokenizer.vocab_size)}-{kind}"
    more = repr((fixed, n_passes(context.config), [round(math.log2(n)) for n in batch.ids.shape]))
    return cache_dir() / "computing" / f"{name}-{hashlib.sha256(more.encode()).hexdigest()[:8]}"


def read_kept(folder: Path) -> tuple[Computing, str] | None:
    """Return a choice and what led to it in words; None where there is none, or none that can be used."""
    with suppress(CheckpointError, TypeError, KeyError):
        kept = read_json_object(folder / CHOICE, LIMITS["settings"])
        found, tried = Computing(**kept["choice"]), kept["tried"]
        known = all(getattr(found, name) in values for name, values in CHOICES.items())
        some = found.threads is None or (type(found.threads) is int and 0 < found.threads <= len(cores()))
        if known and some and isinstance(tried, str) and tried.isprintable():
            return found, tried
    return None


def keep(folder: Path, found: Computing, tried: str) -> tuple[Computing, str] | None:
    """Write a choice; return the one that is there then: of two runs that begin at once the first writes it."""
    try:
        with write_folder_atomically(folder, replace=folder.exists() and read_kept(folder) is None) as new:
            (new / CHOICE).write_text(json.dumps({"choice": asdict(found), "tried": tried}, indent=2), encoding="utf-8")
    except (OSError, ResourceError) as error:
        logger.warning(f"what was tried is not kept, so that another run may find otherwise: {error}")
    return read_kept(folder)


def kept_or_tried(context: RunContext) -> tuple[Computing, str]:
    """Return the choice for this run, and a line that says it and the tokens/s of each setting that was tried."""
    index = typical_batch(context)
    folder = kept_in(context, context.task.make_batch(context.train, index))
    kept, how, fixed = read_kept(folder), "as measured before", computing_of(context.config.train).threads
    if kept is None:
        began, busy = time.perf_counter(), context.device.type == "cpu" and others_busy()
        try:
            found, speeds = trial(context, index, busy)
        except (RuntimeError, NotImplementedError, LookupError) as error:  # what a device or a model of one's own lacks
            logger.warning(f"no trial of what is fastest: {error}")
            return computing_of(context.config.train), ""
        first, *others = sorted(speeds, key=lambda name: (name != in_words(found), -speeds[name]))
        threads = "" if found.threads is None else f", {counted(found.threads, 'threads')}"
        tried = f"{first}{threads}: {speeds[first]:,.0f} tokens/s"
        tried += "".join(f"; {name} {f'{speeds[name]:,.0f}' if speeds[name] else 'not timed'}" for name in others)
        how = f"a trial of {time.perf_counter() - began:.1f} s{' beside other programs' * busy}, to compare"
        kept = keep(folder, replace(found, threads=None if fixed else found.threads), tried) or (found, tried)
    return replace(kept[0], threads=fixed or kept[0].threads), f"{kept[1]} ({how})"


def computing_for_answers(task: Task, precision: Precision, device: torch.device) -> Computing:
    """Return with what a trained model answers: the precision of its run, and what was found here for its shapes.

    In bf16 the two kinds of attention round otherwise, so there the run's stays.
    """
    own = task.config.train.attention if precision == "bf16" else "auto"
    pattern = f"{machine(device)}-{shape_of(task.config, task.tokenizer.vocab_size)}-{OPEN}-*"
    kept = filter(None, map(read_kept, sorted((cache_dir() / "computing").glob(pattern))))
    found = next((choice for choice, _ in kept if choice.precision == precision), Computing(precision))
    return found if own == "auto" else replace(found, attention=own)


def in_words(c: Computing) -> str:
    """Return a setting without its threads in words: `fp32, products by MKL, fused attention`."""
    library = "oneDNN" if c.products == "onednn" else "MKL" if torch.backends.mkl.is_available() else "BLAS"
    products = f", products by {library}" if c.precision == "fp32" else ""
    return f"{c.precision}{products}, {c.attention} attention"


# --- the trial ------------------------------------------------------------------------------------------------


def typical_batch(context: RunContext) -> Any:
    """Return the entry of the batch plan with the median number of examples: batches have about as many tokens each."""
    plan = sorted(context.task.epoch_batches(context.train, 0)[:32], key=len)
    return plan[len(plan) // 2]


def candidates(train: TrainConfig, device: torch.device, d_model: int, clock: Callable[[], float]) -> list[Computing]:
    """Return the settings to try, the safe ones first."""
    values = {name: [v for v in CHOICES[name] if getattr(train, name) in ("auto", v)] for name in CHOICES}
    several = len(values["precision"]) > 1
    if device.type == "cuda":
        emulated, alone = several and not torch.cuda.is_bf16_supported(False), ["products", "attention"]
    else:
        emulated, alone = several and bf16_slowdown(d_model, clock) > BEHIND, [] if has_onednn() else ["products"]
    values |= {name: values[name][:1] for name in alone + ["precision"] * emulated}
    found = [Computing(*each, threads=computing_of(train).threads) for each in product(*values.values())]
    # In bf16 nothing depends on who multiplies in fp32. What differs most comes first, should the time end.
    found = [c for c in found if c.precision == "fp32" or c.products == values["products"][0]]
    return sorted(found, key=lambda c: (c.products != values["products"][0], c.precision != "fp32"))


def bf16_slowdown(d_model: int, clock: Callable[[], float]) -> float:
    """Return how many times slower a product of matrices is in bf16 than in fp32."""

    def seconds(x: Tensor) -> list[float]:
        began, _ = clock(), x @ x.T
        return [clock() - began]

    x = torch.randn(4 * d_model, d_model)
    (fp32,), (bf16,) = least_times([lambda y=y: seconds(y) for y in (x, x.bfloat16())], math.inf)
    return bf16 / max(fp32, 1e-9)


def others_busy() -> bool:
    """Return whether other programs use a core that torch would compute on, after looking for a moment."""
    before, _, now = usage(), time.sleep(0.2), usage()
    others = (now.all - before.all - (now.own - before.own)) / (now.clock - before.clock)
    return len(cores()) - others + GIVE_UP < torch.get_num_threads()


def trial(context: RunContext, index: Any, busy: bool = False) -> tuple[Computing, dict[str, float]]:
    """Time steps under each setting, forward and backward; return the fastest, and the tokens/s of all.

    A step of all layers follows from one without layers and one with a layer in each stack. What is clearly slower on
    few examples is dropped, and the rest is timed on as many as the time allows. Beside busy programs, where threads
    would wait for one another, one thread is timed, by its own time.
    """
    from glassformer.models.ensemble import members_of
    from glassformer.training.state import LossModule

    began, device, train, task = time.perf_counter(), context.device, context.config.train, context.task
    clock = time.process_time if busy and sys.platform != "win32" else time.perf_counter  # there it ticks 64 times a s
    fixed, most = computing_of(train).threads, torch.get_num_threads()
    n_threads = 1 if busy else fixed or most
    module = LossModule(members_of(task.build_model())[0].to(device).train(), task)  # the others take as long
    depth = max((len(m.layers) for m in module.modules() if isinstance(m, Stack)), default=1)

    def whole_steps(tried: list[Computing], n: int, rounds: int = ROUNDS) -> list[float]:
        """Return the least seconds of a step of all layers on n examples under each setting."""
        batch = task.make_batch(context.train, index[:n]).to(device)
        runs = [partial(seconds_without_and_with_a_layer, module, batch, c, device, clock) for c in tried]
        times = least_times(runs, began + (0.9 if rounds == ROUNDS else 0.8) * SECONDS, rounds)
        return [max(1e-6, none + depth * max(0.0, one - none)) for none, one in times]

    with tuned(device, Computing(threads=n_threads)):
        left = candidates(train, device, context.config.model.d_model, clock)
    left = [replace(c, threads=n_threads) for c in left]
    n_tokens = task.make_batch(context.train, index).n_tokens / len(index)
    n = min(len(index), math.ceil(FIRST_TOKENS / max(1, n_tokens)))
    starts, seconds = time.perf_counter(), whole_steps(left, n)
    of_example = (time.perf_counter() - starts) / (n * len(left))  # under each setting, all its calls together
    ratio = {c: s / min(seconds) for c, s in zip(left, seconds, strict=True)}
    left, few = [c for c in left if ratio[c] <= 2 * BEHIND], dict(zip(left, seconds, strict=True))

    def most_examples(n_settings: int, until: float) -> int:
        return min(len(index), int((began + until * SECONDS - time.perf_counter()) / (n_settings * of_example)))

    if len(left) > 1 and (more := most_examples(len(left), 0.8)) > n:
        grown = (len(index) - more) / (more - n)  # what a step costs for each weight does not grow with the examples
        seconds = [s + grown * max(0.0, s - few[c]) for c, s in zip(left, whole_steps(left, more, 8), strict=True)]
        n, ratio = len(index), ratio | {c: s / min(seconds) for c, s in zip(left, seconds, strict=True)}
    ratio = {c: x / min(ratio[c] for c in left) for c, x in ratio.items()}
    found = replace(min((c for c in left if ratio[c] <= 1 + TIE), key=lambda c: c.precision != "fp32"), threads=fixed)
    rate = n * n_tokens / min(seconds) / n_passes(context.config)
    numbers = [most, *sorted({len(cores()), -(-most // 2)} - {most})]
    if device.type == "cpu" and fixed is None and not busy and not has_fixed_threads(train):
        tried = [replace(found, threads=number) for number in numbers]
        times = whole_steps(tried, max(1, min(n, most_examples(len(numbers), 0.85))))
        best = min(range(len(times)), key=times.__getitem__)
        late = time.perf_counter() > began + 0.9 * SECONDS  # then perhaps not all were timed
        best = 0 if late or times[best] > 0.9 * times[0] else best
        found, rate = tried[best], rate * times[0] / times[best]
    return found, {in_words(c): float(f"{rate / x:.3g}") for c, x in ratio.items()}


def seconds_without_and_with_a_layer(
    module: nn.Module, batch: Batch, c: Computing, device: torch.device, clock: Callable[[], float]
) -> list[float]:
    """Return the seconds of a step without layers, and of one with one layer in each stack."""
    stacks, seconds = [(m, m.layers) for m in module.modules() if isinstance(m, Stack)], list[float]()
    for n in (0, 1):
        for stack, layers in stacks:
            stack.layers = layers[:n]
        with tuned(device, c):
            began = clock()
            with autocast(device, c.precision):
                loss = module(batch)
            loss.backward()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds.append(clock() - began)
        module.zero_grad()
    for stack, layers in stacks:
        stack.layers = layers
    return seconds


def least_times(runs: Sequence[Callable[[], Sequence[float]]], until: float, rounds: int = ROUNDS) -> list[list[float]]:
    """Return the least of each of the times that a function returns; run in turn, A, B, A, B, until a moment.

    The first round counts only where no other ends in time; what it does not reach takes for ever. What is slow ends.
    """
    least, left = [[math.inf, math.inf]] * len(runs), list(range(len(runs)))
    for n in range(1 + rounds):
        times = dict[int, Sequence[float]]()
        for i in left:
            if n + i > 0 and time.perf_counter() > until:
                break
            times[i] = runs[i]()
        if n > 0 and len(times) < len(left):
            break
        for i, now in times.items():
            least[i] = list(now) if n < 2 else [*map(min, now, least[i])]
        if n > 0:
            left = [i for i in left if sum(least[i]) <= BEHIND * min(sum(least[j]) for j in left)]
        if len(left) < 2 and n > 0:
            break
    return least
