"""A nanoGPT-like language model, restated: one file, fused attention, queries, keys and values in one product.

For part i it learns characters with AdamW, and a cosine schedule over the seconds that it has. Read from nanoGPT's
train.py: weights N(0, 0.02²), those that end a residual branch divided by √(2 · layers); weight decay 0.1 on matrices;
betas 0.9 and 0.99; gradients clipped at 1; 100 steps of warm-up; a cosine from 1e-3 to 1e-4.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from benchmarks.speed.peers.serving import Settings, Spec, serve
from benchmarks.speed.peers.training import Batch, TorchCurve, build
from benchmarks.speed.workloads import Workload
from torch import Tensor, nn
from torch.nn import functional as F

WARMUP, LOWEST = 100, 0.1


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, d_model: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.dropout = n_heads, nn.Dropout(dropout)
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.up, self.down = nn.Linear(d_model, 4 * d_model), nn.Linear(4 * d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in self.qkv(self.norm_1(x)).chunk(3, dim=-1)
        )
        context = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(context.transpose(1, 2).flatten(-2)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm_2(x)))))


class NanoGPT(nn.Module):
    """Embeddings, blocks, norm, tied output."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        w = spec.workload
        self.tokens, self.positions = (nn.Embedding(w.vocab_size, w.d_model), nn.Embedding(w.max_len, w.d_model))
        self.dropout, self.norm = nn.Dropout(w.dropout), nn.LayerNorm(w.d_model)
        self.blocks = nn.ModuleList(Block(w.d_model, w.n_heads, w.dropout) for _ in range(w.n_layers))

    def forward(self, batch: Batch) -> Tensor:
        x = self.dropout(self.tokens(batch.ids) + self.positions(torch.arange(batch.ids.shape[1])))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


class NanoGPTCurve(TorchCurve):
    """NanoGPT on windows of a running text.

    Args:
        spec: beside what `TorchCurve` reads, "workload"; "data", a file with `train` and `valid` (N,) and `windows`
            (W, 3), the start, end and first scored position of each; "rows" of a batch; "horizon" of the schedule, s.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        torch.manual_seed(spec["seed"])
        workload = Workload(**spec["workload"])
        model = NanoGPT(Spec(workload, spec["data"], Settings()))
        for name, p in model.named_parameters():
            if p.ndim > 1:
                ends_branch = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * workload.n_layers) if ends_branch else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)
        super().__init__(model, spec)
        self.length = workload.max_len
        with np.load(spec["data"]) as arrays:
            self.train, self.valid, self.windows = (arrays[name] for name in ("train", "valid", "windows"))

    def lr(self, seconds: float) -> float:
        """Return warm-up over steps, then a cosine over seconds."""
        cosine = 0.5 + 0.5 * math.cos(math.pi * min(1.0, seconds / self.spec["horizon"]))
        return self.spec["lr"] * min((self.n_steps + 1) / WARMUP, LOWEST + (1 - LOWEST) * cosine)

    def batch(self) -> Batch:
        """Return windows from random places."""
        start = self.rng.integers(len(self.train) - self.length, size=self.spec["rows"])
        rows = torch.from_numpy(self.train[start[:, None] + np.arange(self.length + 1)])
        return Batch(rows[:, :-1], None, None, rows[:, 1:])

    @torch.no_grad()
    def score(self) -> dict[str, float]:
        """Return nats per character of the validation text, in the windows that Glassformer is scored in."""
        self.model.eval()
        total, n = 0.0, 0
        for some in np.array_split(self.windows, -(-len(self.windows) // 64)):
            at = some[:, :1] + np.arange(self.length + 1)
            ids = torch.from_numpy(self.valid[at])
            labels = ids[:, 1:].masked_fill(torch.from_numpy(at[:, 1:] < some[:, 2:]), -100)
            logits = self.model(Batch(ids[:, :-1], None, None, labels))
            total += F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="sum").item()
            n += int((labels != -100).sum())
        return {"score": total / n}


if __name__ == "__main__":
    serve(build({"lm": NanoGPT}), NanoGPTCurve)
