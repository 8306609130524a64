"""What is known before the first update: size, work, memory, what is cut, and how long it will take."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from torch import nn

from glassformer.config import Config
from glassformer.data.corpus import EncodedCorpus, fingerprint
from glassformer.data.splits import Split
from glassformer.data.unknown import count_unknown, unknown_texts, warning
from glassformer.models.build import d_ff_of
from glassformer.runs.values import SplitFacts
from glassformer.style.words import duration, percent
from glassformer.tasks import Task
from glassformer.training.budget import Pace
from glassformer.training.context import RunContext


@dataclass(frozen=True)
class Preflight:
    """Facts before step 1. FLOPs are of one training update a real token (forward × 3); bytes, seconds.

    `splits` are the parts of the data as the model sees them, the test part's answers apart.
    """

    n_parameters: int
    flops_per_token: float
    memory_bytes: float
    n_examples: int
    n_tokens: int
    padding: float
    truncated_rate: float
    dropped: int
    tokens_per_s: float
    seconds_per_epoch: float
    estimated_seconds: float
    splits: dict[str, SplitFacts]

    def lines(self) -> list[str]:
        """The same for people."""
        dropped = f", {self.dropped} pairs too long and left out" if self.dropped else ""
        return [
            f"model       {self.n_parameters:,} parameters, {self.flops_per_token / 1e6:.1f} MFLOP a token, "
            f"about {self.memory_bytes / 2**20:,.0f} MiB to train",
            f"data        {self.n_examples:,} examples, {self.n_tokens:,} tokens; {self.truncated_rate:.1%} of texts cut"
            f"{dropped}; {self.padding:.1%} padding",
            f"unknown     {', '.join(_unknown(name, split) for name, split in self.splits.items())}",
            f"speed       {self.tokens_per_s:,.0f} tokens/s, measured; an epoch takes "
            f"{duration(self.seconds_per_epoch)}, the run about {duration(self.estimated_seconds)}",
        ]  # fmt: skip

    def warnings(self) -> list[str]:
        """What to mend before it is trained."""
        told = (
            warning(IN_WORDS[name], s.unknown_rate, s.n_texts_unknown, s.n) for name, s in self.splits.items()
        )
        return [sentence for sentence in told if sentence]


IN_WORDS = {"train": "training", "valid": "validation", "test": "test"}


def _unknown(name: str, split: SplitFacts) -> str:
    """`3.1% of tokens in validation (in 12 of 40 texts)`."""
    texts = f" (in {split.n_texts_unknown:,} of {split.n:,} texts)" if split.n_texts_unknown else ""
    return f"{percent(split.unknown_rate or 0.0, 2)} of tokens in {IN_WORDS[name]}{texts}"


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
        flops_per_token=3 * run.task.forward_flops(min(typical, config.text.max_len)),
        memory_bytes=memory(model, config, n_tokens / max(1e-9, 1 - pace.padding) / max(1, n_batches)),
        n_examples=len(corpus),
        n_tokens=n_tokens,
        padding=pace.padding,
        truncated_rate=stats.get("n_truncated", 0) / max(1, stats.get("n", len(corpus))),
        dropped=int(stats.get("n_dropped", 0)),
        tokens_per_s=pace.tokens_per_s,
        seconds_per_epoch=per_epoch,
        estimated_seconds=min((c.epochs or math.inf) * per_epoch, (c.steps or math.inf) * pace.update),
        splits=describe_splits(run),
    )


def describe_splits(p: RunContext) -> dict[str, SplitFacts]:
    """Each part as the model sees it: sizes, lengths, what is cut or unknown.

    Of the test part only the texts are looked at, never what belongs to them.
    """
    parts = {"train": (p.train, p.data.train), "valid": (p.valid, p.data.valid)}
    splits = {name: _describe_split(p.task, *part) for name, part in parts.items()}
    if (test := p.data.test) is not None:
        running, text = p.task.telling.running_text, p.config.text
        n_tokens, n_cut, n_unknown, n_texts = count_unknown(p.task.tokenizer, test.text, text, running)
        splits["test"] = SplitFacts(
            len(test), n_tokens, None if running else n_cut, n_unknown=n_unknown, sha256=fingerprint(test, []),
            unknown_rate=n_unknown / max(1, n_tokens), n_texts_unknown=None if running else n_texts,
        )  # fmt: skip
    return splits


def _describe_split(task: Task, corpus: EncodedCorpus, split: Split) -> SplitFacts:
    stats, (counts, edges) = corpus.stats, np.histogram(corpus.lengths, bins=30)
    columns = [column for column in (corpus.ids, corpus.target) if column is not None]
    n_texts = None if task.telling.running_text else unknown_texts(columns, task.tokenizer.unk_id)
    return SplitFacts(
        **stats | {"n": len(corpus)},
        unknown_rate=stats.get("n_unknown", 0) / max(1, stats.get("n_tokens", 0)),
        n_texts_unknown=n_texts,
        sha256=fingerprint(split, []),
        lengths={"edges": edges.tolist(), "counts": counts.tolist()},
    )


def n_parameters(model: nn.Module) -> int:
    """Trainable parameters, shared ones once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def memory(model: nn.Module, config: Config, slots: float) -> float:
    """Bytes of weights, gradients, two Adam moments, and roughly what a batch leaves for the backward pass."""
    c = config.model
    per_slot = c.n_layers * (16 * c.d_model + 3 * d_ff_of(c) + 3 * c.n_heads * config.text.max_len) * 4
    return 16 * n_parameters(model) + per_slot * slots
