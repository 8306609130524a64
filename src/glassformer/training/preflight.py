"""What is known before the first update: size, work, memory, what is cut, and how long it will take."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn

from glassformer.config import Config
from glassformer.models.build import d_ff_of
from glassformer.style.words import duration
from glassformer.training.budget import Pace
from glassformer.training.context import RunContext


@dataclass(frozen=True)
class Preflight:
    """Facts before step 1. FLOPs are of one training update a real token (forward × 3); bytes, seconds."""

    n_parameters: int
    flops_per_token: float
    memory_bytes: float
    n_examples: int
    n_tokens: int
    padding: float
    truncated_rate: float
    dropped: int
    unknown_rate: float
    tokens_per_s: float
    seconds_per_epoch: float
    estimated_seconds: float

    def lines(self) -> list[str]:
        """The same for people."""
        dropped = f", {self.dropped} pairs too long and left out" if self.dropped else ""
        return [
            f"model       {self.n_parameters:,} parameters, {self.flops_per_token / 1e6:.1f} MFLOP a token, "
            f"about {self.memory_bytes / 2**20:,.0f} MiB to train",
            f"data        {self.n_examples:,} examples, {self.n_tokens:,} tokens; {self.truncated_rate:.1%} of texts cut"
            f"{dropped}; {self.unknown_rate:.2%} unknown; {self.padding:.1%} padding",
            f"speed       {self.tokens_per_s:,.0f} tokens/s, measured; an epoch takes "
            f"{duration(self.seconds_per_epoch)}, the run about {duration(self.estimated_seconds)}",
        ]  # fmt: skip


def preflight(run: RunContext, pace: Pace) -> Preflight:
    """Look at the data and the model; how fast it goes was measured.

    What patience may save and validations cost is not known, so `estimated_seconds` is that of the updates.
    """
    corpus, config, n_batches = run.train, run.config, len(run.task.epoch_batches(run.train, 0))
    model, c = run.task.build_model(), config.train
    stats, lengths = corpus.stats, corpus.lengths
    squares = (lengths.astype("float64") ** 2).sum()
    typical = float(squares / max(1, lengths.sum()))  # the length of the text that a token is in
    n_tokens = int(stats.get("n_tokens", 0))
    per_epoch = pace.update * n_batches / c.accumulate
    return Preflight(
        n_parameters=n_parameters(model),
        flops_per_token=(6 if c.r_drop else 3) * run.task.forward_flops(min(typical, config.text.max_len)),
        memory_bytes=memory(model, config, n_tokens / max(1e-9, 1 - pace.padding) / max(1, n_batches)),
        n_examples=len(corpus),
        n_tokens=n_tokens,
        padding=pace.padding,
        truncated_rate=stats.get("n_truncated", 0) / max(1, stats.get("n", len(corpus))),
        dropped=int(stats.get("n_dropped", 0)),
        unknown_rate=stats.get("n_unknown", 0) / max(1, n_tokens),
        tokens_per_s=pace.tokens_per_s,
        seconds_per_epoch=per_epoch,
        estimated_seconds=min((c.epochs or math.inf) * per_epoch, (c.steps or math.inf) * pace.update),
    )


def n_parameters(model: nn.Module) -> int:
    """Trainable parameters, shared ones once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def memory(model: nn.Module, config: Config, slots: float) -> float:
    """Bytes of weights, gradients, two Adam moments, and roughly what a batch leaves for the backward pass."""
    c = config.model
    per_slot = c.n_layers * (16 * c.d_model + 3 * d_ff_of(c) + 3 * c.n_heads * config.text.max_len) * 4
    return 16 * n_parameters(model) + per_slot * slots
