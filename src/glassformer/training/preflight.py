"""What is known before the first update: size, work, memory, what is cut, and how long it will take."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

import torch
from torch import nn

from glassformer.config import Config, ModelConfig
from glassformer.data.batching import epoch_batches, make_batch
from glassformer.data.corpus import EncodedCorpus
from glassformer.models.build import d_ff_of, d_head_of
from glassformer.runtime import Precision
from glassformer.style.words import duration
from glassformer.tasks.base import Task
from glassformer.training.loop import update
from glassformer.training.state import TrainState

TRIAL_UPDATES = 4


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
        cut = f"{self.truncated_rate:.1%} of texts cut" + (
            f", {self.dropped} pairs too long and left out" if self.dropped else ""
        )
        return [
            f"model       {self.n_parameters:,} parameters, {self.flops_per_token / 1e6:.1f} MFLOP a token, "
            f"about {self.memory_bytes / 2**20:,.0f} MiB to train",
            f"data        {self.n_examples:,} examples, {self.n_tokens:,} tokens; {cut}; "
            f"{self.unknown_rate:.2%} unknown; {self.padding:.1%} padding",
            f"speed       {self.tokens_per_s:,.0f} tokens/s in {TRIAL_UPDATES} trial updates; an epoch takes "
            f"{duration(self.seconds_per_epoch)}, the run at most {duration(self.estimated_seconds)}",
        ]  # fmt: skip

    def as_dict(self) -> dict[str, float]:
        """For JSON."""
        return asdict(self)


def preflight(
    task: Task, corpus: EncodedCorpus, config: Config, device: torch.device, precision: Precision
) -> Preflight:
    """Look at the data, build a model that is thrown away, and time a few updates of it."""
    model = task.build_model().to(device)
    plan = epoch_batches(corpus, task.name, config.train, config.text, epoch=0)
    state = TrainState.start(model, config.train)
    step = max(1, len(plan) // TRIAL_UPDATES)
    trial = [
        make_batch(corpus, task.name, i, task.tokenizer).to(device) for i in plan[::step][:TRIAL_UPDATES]
    ]
    update(state, task, trial[:1], 0.0, config.train, device, precision)  # warm-up, not counted
    began = time.perf_counter()
    for batch in trial:
        update(state, task, [batch], 0.0, config.train, device, precision)
    seconds = time.perf_counter() - began
    n_real, n_slots = sum(b.n_tokens for b in trial), sum(b.n_slots for b in trial)
    per_epoch = seconds / len(trial) * len(plan)
    stats = corpus.stats
    lengths = corpus.lengths
    typical = float((lengths.astype("float64") ** 2).sum() / max(1, lengths.sum())) if len(lengths) else 1.0
    return Preflight(
        n_parameters=n_parameters(model),
        flops_per_token=3 * forward_flops(config.model, task, min(typical, config.text.max_len)),
        memory_bytes=memory(model, config, n_slots / max(1, len(trial))),
        n_examples=len(corpus),
        n_tokens=int(stats.get("n_tokens", 0)),
        padding=1 - n_real / max(1, n_slots),
        truncated_rate=stats.get("n_truncated", 0) / max(1, stats.get("n", len(corpus))),
        dropped=int(stats.get("n_dropped", 0)),
        unknown_rate=stats.get("n_unknown", 0) / max(1, stats.get("n_tokens", 0)),
        tokens_per_s=n_real / seconds,
        seconds_per_epoch=per_epoch,
        estimated_seconds=_estimate(config, per_epoch, len(plan)),
    )


def n_parameters(model: nn.Module) -> int:
    """Trainable parameters, shared ones once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def forward_flops(c: ModelConfig, task: Task, length: float) -> float:
    """FLOPs of a forward pass a real token: two a multiply–add, matrix products only."""
    d, width = c.d_model, c.n_heads * d_head_of(c)
    feed = (6 if c.activation == "swiglu" else 4) * d * d_ff_of(c)
    attention, cross = 8 * d * width + 4 * length * width, 8 * d * width + 4 * length * width
    vocabulary = 2 * d * task.tokenizer.vocab_size
    n_dec = c.n_decoder_layers or c.n_layers
    match task.name:
        case "classify":
            return c.n_layers * (attention + feed)
        case "lm":
            return n_dec * (attention - 2 * length * width + feed) + vocabulary
        case "translate":  # source and target tokens are about as many: half the work of each a token
            decoder = n_dec * (attention - 2 * length * width + cross + feed) + vocabulary
            return (c.n_layers * (attention + feed) + decoder) / 2


def memory(model: nn.Module, config: Config, slots: float) -> float:
    """Bytes of weights, gradients, two Adam moments, and roughly what a batch leaves for the backward pass."""
    c = config.model
    per_slot = c.n_layers * (16 * c.d_model + 3 * d_ff_of(c) + 3 * c.n_heads * config.text.max_len) * 4
    return 16 * n_parameters(model) + per_slot * slots


def _estimate(config: Config, per_epoch: float, n_batches: int) -> float:
    c, bounds = config.train, []
    if c.epochs is not None:
        bounds.append(c.epochs * per_epoch)
    if c.steps is not None:
        bounds.append(c.steps * per_epoch / max(1, n_batches) * c.accumulate)
    if c.minutes is not None:
        bounds.append(c.minutes * 60)
    return min(bounds) if bounds else float("inf")
