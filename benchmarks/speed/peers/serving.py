"""How a peer's process talks with the harness: one JSON object a line, a question in and an answer out.

    python -m benchmarks.speed.peers.NAME SPEC        (SPEC is a JSON file)

A spec with settings is a `Spec`: the peer warms up first and says what it is; then every line on stdin is one round to
measure, until stdin ends. Any other spec is a training to a score (part i): at every line the peer trains for the
seconds asked for, and says how good the model is then. Only steps are timed: neither reading nor scoring is.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

import numpy as np
from benchmarks.speed.workloads import BOS, EOS, IGNORE_INDEX, PAD, Texts, Workload, load_data, padded


@dataclass(frozen=True)
class Settings:
    """Which row of a peer: the settings that a process shares.

    Args:
        precision: "fp32", or "bf16" for autocast; ours also "auto": with what a run chooses by its trial.
        medium: `torch.set_float32_matmul_precision("medium")`.
        flash: fused attention, where the choice is left to the user.
    """

    precision: str = "fp32"
    medium: bool = False
    flash: bool = False


@dataclass(frozen=True)
class Spec:
    """What a process is told: the workload, where its data is, and the row."""

    workload: Workload
    data: str
    settings: Settings
    seed: int = 0


@dataclass(frozen=True)
class ArrayBatch:
    """A batch as arrays, padded on the right.

    Args:
        ids: (B, S) what goes in. index: (B,) which examples these are.
        labels: (B,) classes, or (B, T) tokens, IGNORE_INDEX where nothing is scored.
        tgt_in: (B, T) what a decoder is given, BOS and the target; None without one.
        n_tokens: tokens that the figures count. n_slots, n_real: tokens that go in, with and without padding.
    """

    ids: np.ndarray
    index: np.ndarray
    labels: np.ndarray
    tgt_in: np.ndarray | None
    n_tokens: int
    n_slots: int
    n_real: int


def make_batch(w: Workload, texts: Texts, index: np.ndarray) -> ArrayBatch:
    """Return the examples of one entry of a batch plan."""
    start, length = texts.offsets[index], texts.offsets[index + 1] - texts.offsets[index]
    ids, n_in = padded(texts.ids, start, length), int(length.sum())
    if w.kind == "lm":
        return ArrayBatch(ids, index, padded(texts.ids, start + 1, length), None, n_in, ids.size, n_in)
    if w.kind == "classify":
        return ArrayBatch(ids, index, texts.labels[index], None, n_in, ids.size, n_in)
    start = texts.target_offsets[index]
    length = texts.target_offsets[index + 1] - start
    target = np.pad(padded(texts.target, start, length), ((0, 0), (0, 1)), constant_values=PAD)
    tgt_in = np.concatenate([np.full((len(index), 1), BOS), target[:, :-1]], axis=1)
    rows = np.arange(len(index))
    target[rows, length] = EOS
    labels = np.where(np.arange(target.shape[1]) <= length[:, None], target, IGNORE_INDEX)
    n_out = int(length.sum()) + len(index)
    return ArrayBatch(ids, index, labels, tgt_in, n_out, ids.size + tgt_in.size, n_in + n_out)


class Trainer(Protocol):
    """What a peer provides."""

    n_parameters: int

    def prepare(self, batch: ArrayBatch) -> Any:
        """Return the input of `update`; not measured, as a data loader in another process would do it."""
        ...

    def update(self, prepared: Any) -> float:
        """Run one optimizer step; return the mean loss in nats."""
        ...


class Curve(Protocol):
    """What a peer provides for a training to a score."""

    def step(self, seconds: float) -> bool:
        """Take one optimizer step, `seconds` after the start; return False if the training had ended."""
        ...

    def score(self) -> dict[str, Any]:
        """Return the score on the validation split, or the translations from which the harness computes it."""
        ...


def serve(make: Callable[[Spec], Trainer], curve: Callable[[dict[str, Any]], Curve] | None = None) -> None:
    """Serve as a peer, until stdin ends."""
    answers = own_stdout()
    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.load(file)
    if "settings" not in spec:
        assert curve is not None
        return serve_curve(curve, spec, answers)
    workload, settings = Workload(**spec["workload"]), Settings(**spec["settings"])
    return serve_rounds(make, Spec(workload, spec["data"], settings, spec["seed"]), answers)


def serve_curve(make: Callable[[dict[str, Any]], Curve], spec: dict[str, Any], answers: TextIO) -> None:
    """Start, and train further on each request."""
    began = time.perf_counter()
    trainer = make(spec)
    answer(answers, {"preparing": time.perf_counter() - began})
    seconds, n_steps, finished = 0.0, 0, False
    for question in questions():
        until = seconds + question["seconds"]
        while seconds < until and not finished:
            began = time.perf_counter()
            finished = not trainer.step(seconds)
            seconds += time.perf_counter() - began
            n_steps += not finished
        answer(answers, {"seconds": seconds, "steps": n_steps, "finished": finished} | trainer.score())


def serve_rounds(make: Callable[[Spec], Trainer], spec: Spec, answers: TextIO) -> None:
    """Warm up, and measure a round on each request."""
    texts, plans = load_data(spec.data)
    began = time.perf_counter()
    trainer = make(spec)
    curve = [trainer.update(trainer.prepare(make_batch(spec.workload, texts, index))) for index in plans["curve"]]
    batches = [make_batch(spec.workload, texts, index) for index in plans["bucketed"]]
    prepared = [(batch, trainer.prepare(batch)) for batch in batches]
    for _, ready in prepared:
        trainer.update(ready)
    facts = {"parameters": trainer.n_parameters, "curve": curve, "warm_up": time.perf_counter() - began}
    answer(answers, facts | {"chosen": getattr(trainer, "chosen", "")})
    for question in questions():
        some = prepared[: question.get("batches") or None]
        began = time.perf_counter()
        for _, ready in some:
            trainer.update(ready)
        seconds = time.perf_counter() - began
        n_tokens, n_slots, n_real = (
            sum(getattr(batch, name) for batch, _ in some) for name in ("n_tokens", "n_slots", "n_real")
        )
        measured = {"seconds": seconds, "tokens": n_tokens, "padding": 1 - n_real / n_slots, "peak_mb": peak_mb()}
        answer(answers, measured)


def keep_large_blocks() -> None:
    """Make glibc keep large blocks of memory instead of returning them after every use, as glassformer does."""
    if sys.platform == "linux":
        libc = ctypes.CDLL("libc.so.6")
        for option, value in ((-3, 1 << 30), (-1, 2**31 - 1), (-8, 1)):
            libc.mallopt(option, value)


def peak_mb() -> float:
    """Return the peak memory of this process, in 10⁶ bytes."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def own_stdout() -> TextIO:
    """Return the real stdout, for answers; what libraries print goes to stderr from here on."""
    real = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return real


def questions() -> Iterator[dict[str, Any]]:
    """Yield the requests from stdin."""
    for line in sys.stdin:
        yield json.loads(line)


def answer(answers: TextIO, values: dict[str, Any]) -> None:
    """Write one response."""
    answers.write(json.dumps(values) + "\n")
    answers.flush()
