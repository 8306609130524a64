"""JoeyNMT for part i: its model and greedy search; Adam, inverse square root of the step, label smoothing 0.1."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from benchmarks.speed.peers.curve import TorchCurve, serve_curve
from benchmarks.speed.peers.joeynmt import ITS_PAD, Translator
from benchmarks.speed.peers.serving import Settings, Spec, make_batch
from benchmarks.speed.peers.training import Batch
from benchmarks.speed.workloads import EOS, PAD, Texts, Workload
from joeynmt.search import transformer_greedy

SENTENCES = 128
"""Translated at a time."""


class JoeyNMTCurve(TorchCurve):
    """JoeyNMT on the batches of Glassformer's sampler, in its order.

    Args:
        spec: beside what `TorchCurve` reads, "workload"; "layer_norm", "pre" or "post"; "warmup" steps; "data", a file
            with the fields of `Texts`, `plan` and `plan_sizes`, the examples of each batch, and `valid` and
            `valid_offsets`, the sources.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        torch.manual_seed(spec["seed"])
        self.workload = Workload(**spec["workload"])
        super().__init__(Translator(Spec(self.workload, spec["data"], Settings()), spec["layer_norm"]), spec)
        with np.load(spec["data"]) as arrays:
            self.texts = Texts(*(arrays[name] for name in Texts.__dataclass_fields__))
            self.plan = np.split(arrays["plan"], arrays["plan_sizes"].cumsum()[:-1])
            self.sources = np.split(arrays["valid"], arrays["valid_offsets"][1:-1])

    def lr(self, seconds: float) -> float:
        """Return linear warm-up, then the inverse square root of the step."""
        step, warmup = self.n_steps + 1, self.spec["warmup"]
        return self.spec["lr"] * min(step / warmup, (warmup / step) ** 0.5)

    def batch(self) -> Batch:
        """Return the next batch of the plan."""
        arrays = make_batch(self.workload, self.texts, self.plan[self.n_steps % len(self.plan)])
        assert arrays.tgt_in is not None
        labels, ids = torch.from_numpy(arrays.labels), torch.from_numpy(arrays.ids)
        return Batch(ids, ids != PAD, torch.from_numpy(arrays.tgt_in), labels)

    @torch.no_grad()
    def score(self) -> dict[str, list[list[int]]]:
        """Return the translations, as ids, of the validation sentences, in their order."""
        model: Any = self.model.model.eval()
        order = sorted(range(len(self.sources)), key=lambda i: len(self.sources[i]))
        found: dict[int, list[int]] = {}
        for begin in range(0, len(order), SENTENCES):
            some = order[begin : begin + SENTENCES]
            width = max(len(self.sources[i]) for i in some)
            ids = np.stack(
                [np.pad(self.sources[i], (0, width - len(self.sources[i])), constant_values=PAD) for i in some]
            )
            src = torch.from_numpy(ids)
            mask = (src != PAD)[:, None, :]
            memory = model._encode(src.masked_fill(src == PAD, ITS_PAD), mask.sum(dim=(1, 2)), mask)[0]
            rows = transformer_greedy(mask, 2 * width, model, memory, None)[0]
            for i, row in zip(some, rows.tolist(), strict=True):
                found[i] = row[: row.index(EOS)] if EOS in row else row
        return {"translations": [found[i] for i in range(len(order))]}


if __name__ == "__main__":
    serve_curve(JoeyNMTCurve)
