"""What is known before the first step: size, work, memory, what is cut, and how long it will take."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import nn

from glassformer.data.corpus import EncodedCorpus, fingerprint
from glassformer.data.oov import count_unknown_tokens, n_texts_with_unknown, warning
from glassformer.data.splits import Split
from glassformer.evaluate.intervals import FEW, wilson_interval
from glassformer.interop.choose import summary
from glassformer.models.build import d_ff_of
from glassformer.runs.records import SplitRecord
from glassformer.tasks import Task
from glassformer.training.budget import Pace
from glassformer.training.context import RunContext
from glassformer.utils.formatting import counted, duration, percent

Matter = tuple[str, str, str]
"""What is the matter, what joins both to a sentence, and what to do."""


@dataclass(frozen=True)
class Preflight:
    """Facts before step 1. FLOPs are of one training step a real token (forward × 3); bytes, seconds.

    `splits` are the parts of the data as the model sees them, the test part's answers apart; `exports` are the
    libraries that can hold the model.
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
    splits: dict[str, SplitRecord]
    exports: str
    warnings: list[str]
    advice: list[tuple[str, str]]

    def lines(self) -> list[str]:
        """Return the same as lines of text."""
        dropped = f", {counted(self.dropped, 'pairs')} too long and left out" if self.dropped else ""
        return [
            f"model       {self.n_parameters:,} parameters, {self.flops_per_token / 1e6:.1f} MFLOP per token, "
            f"about {self.memory_bytes / 2**20:,.0f} MiB to train",
            f"data        {counted(self.n_examples, 'examples')}, {self.n_tokens:,} tokens; "
            f"{self.truncated_rate:.1%} of texts truncated{dropped}; {self.padding:.1%} padding",
            f"unknown     {', '.join(_unknown(name, split) for name, split in self.splits.items())}",
            f"export      {self.exports}",
            f"speed       {self.tokens_per_s:,.0f} tokens/s, measured; an epoch takes "
            f"{duration(self.seconds_per_epoch)}, the run about {duration(self.estimated_seconds)}",
        ]


FEW_OF_A_CLASS, FEW_PAIRS = 20, 500
"""Training examples a class, or pairs, below which hardly anything is learned that holds elsewhere."""
MOST_OF_A_CLASS = 0.9
"""Share of one class from which accuracy says little."""
IN_WORDS = {"train": "training", "valid": "validation", "test": "test"}


def _unknown(name: str, split: SplitRecord) -> str:
    """Return `3.1% of tokens in validation (in 12 of 40 texts)`."""
    texts = f" (in {split.n_texts_unknown:,} of {split.n:,} texts)" if split.n_texts_unknown else ""
    return f"{percent(split.unknown_rate or 0.0, 2)} of tokens in {IN_WORDS[name]}{texts}"


def preflight(run: RunContext, pace: Pace) -> Preflight:
    """Look at the data and the model; how fast it goes was measured.

    The warnings are sentences; `advice` has of each what is the matter, and what to do.

    What patience may save and validations cost is not known, so `estimated_seconds` is that of the steps.
    """
    corpus, config, n_batches = run.train, run.config, len(run.task.epoch_batches(run.train, 0))
    model, c = run.task.build_model(), config.train
    stats, lengths = corpus.stats, corpus.lengths
    squares = (lengths.astype("float64") ** 2).sum()
    typical = float(squares / max(1, lengths.sum()))  # the length of the text that a token is in
    n_tokens = int(stats.get("n_tokens", 0))
    per_epoch, splits = pace.step * n_batches / c.accumulate, describe_splits(run)
    matters = [*_unread(run, splits), *_too_few(run), *_lopsided(run)]
    return Preflight(
        n_parameters=n_parameters(model),
        flops_per_token=(6 if c.adversarial else 3)
        * config.model.ensemble_size
        * run.task.forward_flops(min(typical, config.text.max_len)),
        memory_bytes=memory(model, run, n_tokens / max(1e-9, 1 - pace.padding) / max(1, n_batches)),
        n_examples=len(corpus),
        n_tokens=n_tokens,
        padding=pace.padding,
        truncated_rate=stats.get("n_truncated", 0) / max(1, stats.get("n", len(corpus))),
        dropped=int(stats.get("n_dropped", 0)),
        tokens_per_s=pace.tokens_per_s,
        seconds_per_epoch=per_epoch,
        estimated_seconds=min((c.epochs or math.inf) * per_epoch, (c.steps or math.inf) * pace.step),
        splits=splits,
        exports=summary(run.task.explain_as, config),
        warnings=["".join(each) for each in matters],
        advice=[(matter, remedy) for matter, _, remedy in matters],
    )


def _unread(run: RunContext, splits: dict[str, SplitRecord]) -> Iterator[Matter]:
    """Yield warnings about splits with many unknown tokens; with n-grams, unknown words are not a problem."""
    if run.task.tokenizer.ngrams is not None:
        return
    for name, split in list(splits.items())[1:]:
        if message := warning(IN_WORDS[name], split.unknown_rate, split.n_texts_unknown, split.n):
            matter, joint, remedy = message.rpartition(": ")
            yield matter, joint, remedy


def _too_few(run: RunContext) -> Iterator[Matter]:
    """Yield a warning about too few examples."""
    n, n_valid, classes = len(run.train), len(run.valid), run.task.label_names
    if run.task.running_text or run.train.is_running_text:
        return
    if n < FEW_OF_A_CLASS * len(classes or ()) or (not classes and n < FEW_PAIRS):
        among = f" of {len(classes)} classes" if classes else ""
        yield (
            f"only {counted(n, 'examples')}{among} to train on: expect little more than guessing on other texts",
            "; ",
            "add examples before trying settings",
        )
    if n_valid < FEW:
        low, high = wilson_interval(round(0.8 * n_valid), n_valid)
        doubt = f"where about 80% of them are right it may be {low:.0%} to {high:.0%} of others"
        yield (
            f"only {counted(n_valid, 'examples')} to validate on: "
            f"{doubt if classes else 'scores on others may be far from theirs'}",
            ", so ",
            "give more with --valid-file or --valid-fraction",
        )


def _lopsided(run: RunContext) -> Iterator[Matter]:
    """Yield warnings about classes that are very rare or very frequent in training."""
    if run.task.schema.target != "label":
        return
    counts = Counter(run.data.train.answers).most_common()
    lonely, (commonest, highest) = sorted(label for label, n in counts if n == 1), counts[0]
    if lonely:
        named = ", ".join(lonely[:5]) + (", …" if len(lonely) > 5 else "")
        yield (
            f"{len(lonely)} of {len(counts)} classes have one training example ({named}): expect them never to be "
            "answered",
            ", and ",
            "give more of them, or leave them out",
        )
    if highest > MOST_OF_A_CLASS * len(run.data.train):
        share = percent(highest / len(run.data.train))
        yield (
            f"{share} of the training texts are {commonest!r}: guessing is right as often",
            ", so ",
            "read macro F1 and the table of classes, not accuracy",
        )


def describe_splits(p: RunContext) -> dict[str, SplitRecord]:
    """Return each split as the model sees it: sizes, lengths, truncated and unknown tokens.

    Of the test split only the texts are read, never the targets.
    """
    parts = {"train": (p.train, p.data.train), "valid": (p.valid, p.data.valid)}
    splits = {name: _describe_split(p.task, *part) for name, part in parts.items()}
    if (test := p.data.test) is not None:
        running, text = p.task.running_text, p.config.text
        n_tokens, n_cut, n_unknown, n_texts = count_unknown_tokens(p.task.tokenizer, test.text, text, running)
        splits["test"] = SplitRecord(
            len(test),
            n_tokens,
            None if running else n_cut,
            n_unknown=n_unknown,
            sha256=fingerprint(test, []),
            unknown_rate=n_unknown / max(1, n_tokens),
            n_texts_unknown=None if running else n_texts,
        )
    return splits


def _describe_split(task: Task, corpus: EncodedCorpus, split: Split) -> SplitRecord:
    stats, (counts, edges) = corpus.stats, np.histogram(corpus.lengths, bins=30)
    columns = [column for column in (corpus.ids, corpus.target) if column is not None]
    running = task.running_text or corpus.is_running_text
    n_texts = None if running else n_texts_with_unknown(columns, task.tokenizer.unk_id)
    return SplitRecord(
        **stats | {"n": len(corpus)},
        unknown_rate=stats.get("n_unknown", 0) / max(1, stats.get("n_tokens", 0)),
        n_texts_unknown=n_texts,
        sha256=fingerprint(split, []),
        lengths={"edges": edges.tolist(), "counts": counts.tolist()},
    )


def n_parameters(model: nn.Module) -> int:
    """Return the number of trainable parameters; shared ones count once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def memory(model: nn.Module, run: RunContext, slots: float) -> float:
    """Return the bytes of weights, gradients, two Adam moments, and roughly the activations of a batch.

    Fused attention keeps no matrix of queries by keys. With activation checkpointing, layers keep their input, and one
    layer all activations.
    """
    c, width = run.config.model, 2 if run.precision == "bf16" else 4
    layer = 16 * c.d_model + 3 * d_ff_of(c)
    per_slot = c.n_layers * c.d_model + layer if run.config.train.activation_checkpointing else c.n_layers * layer
    return 16 * n_parameters(model) + width * per_slot * slots * c.ensemble_size
