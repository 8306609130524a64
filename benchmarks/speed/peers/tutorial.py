"""The published sentiment tutorial's model and loop, restated.

One post-norm block over 200 padded words, Adam, batch 16.

d 128, 8 heads, d_ff 2048, the 20,000 most frequent words, Adam 1e-4, dropout 0.1; padding is attended to and pooled, as
it is there. The loop is plain: fp32, examples in random order, every one padded to 200.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
from benchmarks.speed.peers.serving import answer, own_stdout, questions
from benchmarks.speed.peers.training import sinusoids
from torch import Tensor, nn
from torch.nn import functional as F

WORDS, LENGTH, D_MODEL, HEADS, D_FF, BATCH, LR = 20_000, 200, 128, 8, 2048, 16, 1e-4


class Attention(nn.Module):
    """Multi-head attention, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(D_MODEL, D_MODEL) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        weights = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).flatten(-2))


class Tutorial(nn.Module):
    """Embedding, sinusoids, one block, mean, one logit."""

    positions: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.attention, self.dropout = nn.Embedding(WORDS, D_MODEL), Attention(), nn.Dropout(0.1)
        self.register_buffer("positions", sinusoids(LENGTH, D_MODEL))
        self.feed_forward = nn.Sequential(nn.Linear(D_MODEL, D_FF), nn.ReLU(), nn.Linear(D_FF, D_MODEL))
        self.norm_1, self.norm_2, self.head = (nn.LayerNorm(D_MODEL), nn.LayerNorm(D_MODEL), nn.Linear(D_MODEL, 1))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.dropout(self.tokens(ids) * math.sqrt(D_MODEL) + self.positions)
        x = self.norm_1(x + self.dropout(self.attention(x)))
        x = self.norm_2(x + self.dropout(self.feed_forward(x)))
        return self.head(x.mean(dim=1))[:, 0]


class Training:
    """Its model, its optimizer, and the reviews: `ids` (N, 200) and `labels` (N,) for training and for the test."""

    def __init__(self, data: str, seed: int) -> None:
        torch.manual_seed(seed)
        with np.load(data) as arrays:
            self.arrays = {name: torch.from_numpy(arrays[name].astype(np.int64)) for name in arrays}
        self.model = Tutorial()
        self.optimizer = torch.optim.Adam(self.model.parameters(), LR, eps=1e-7)

    def batches(self, n: int | None = None) -> float:
        """Train on n batches, or on an epoch; the seconds it took."""
        began = time.perf_counter()
        self.model.train()
        for index in torch.randperm(len(self.arrays["ids"])).split(BATCH)[:n]:
            logits = self.model(self.arrays["ids"][index])
            loss = F.binary_cross_entropy_with_logits(logits, self.arrays["labels"][index].float())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return time.perf_counter() - began

    def accuracy(self) -> float:
        """Return the accuracy on the test reviews."""
        self.model.eval()
        with torch.inference_mode():
            found = torch.cat([self.model(ids) > 0 for ids in self.arrays["test_ids"].split(256)])
        return (found == self.arrays["test_labels"].bool()).float().mean().item()


def main() -> None:
    """Time some batches whenever asked, or train until the wanted accuracy."""
    answers = own_stdout()
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    training = Training(spec["data"], spec["seed"])
    answer(answers, {"warm_up": training.batches(10)})
    for question in questions():
        if not question.get("whole"):
            answer(answers, {"seconds": training.batches(question["batches"]), "reviews": BATCH * question["batches"]})
            continue
        training = Training(spec["data"], spec["seed"])
        seconds, epochs, accuracy = 0.0, 0, 0.0
        while accuracy < spec["accuracy"] and epochs < 20:
            seconds, epochs = seconds + training.batches(), epochs + 1
            accuracy = training.accuracy()
        answer(answers, {"seconds": seconds, "epochs": epochs, "accuracy": accuracy})


if __name__ == "__main__":
    main()
