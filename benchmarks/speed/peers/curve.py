"""A peer's process for part i: it trains for the seconds asked for, and says how good the model is then.

Only steps are timed: neither reading nor scoring is. See `benchmarks/speed/quality.py`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from benchmarks.speed.peers.serving import answer, keep_large_blocks, own_stdout, questions
from benchmarks.speed.peers.training import Batch, torch_step
from torch import nn


class Trainer(Protocol):
    """What a peer provides."""

    def step(self, seconds: float) -> bool:
        """Take one optimizer step, `seconds` after the start; return False if the training had ended."""
        ...

    def score(self) -> dict[str, Any]:
        """Return the score on the validation split, or the translations from which the harness computes it."""
        ...


def serve_curve(make: Callable[[dict[str, Any]], Trainer]) -> None:
    """Serve: read the spec, start, and train further on each request."""
    answers = own_stdout()
    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.load(file)
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


class TorchCurve:
    """The plain training loop of a torch module, with the process settings of Glassformer (`tuned`).

    Args:
        model: gives logits (B, T, V) for what `batch` returns.
        spec: "precision" of autocast, "threads" of torch (its own choice if absent),
            "seed", "betas", "weight_decay" of the matrices, and "label_smoothing".
    """

    def __init__(self, model: nn.Module, spec: dict[str, Any]) -> None:
        torch.set_float32_matmul_precision("medium")
        if "threads" in spec:
            torch.set_num_threads(spec["threads"])
        keep_large_blocks()
        self.model, self.spec, self.n_steps = model.train(), spec, 0
        self.rng = np.random.default_rng(spec["seed"])
        matrices = [p for p in model.parameters() if p.ndim > 1]
        vectors = [p for p in model.parameters() if p.ndim <= 1]
        groups = [{"params": matrices, "weight_decay": spec["weight_decay"]}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, spec["lr"], betas=tuple(spec["betas"]), eps=1e-9, fused=True)

    def lr(self, seconds: float) -> float:
        """Return the learning rate of the next step."""
        raise NotImplementedError

    def batch(self) -> Batch:
        """Return the next batch."""
        raise NotImplementedError

    def step(self, seconds: float) -> bool:
        """Run forward, backward, clipping and a step."""
        how = self.lr(seconds), self.spec["precision"], self.spec["label_smoothing"]
        torch_step(self.model.train(), self.optimizer, self.batch(), *how)
        self.n_steps += 1
        return True
