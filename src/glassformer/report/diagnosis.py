"""What a run's own log says went wrong, in plain words, each with what to try.

Every rule looks at the facts in the run folder and yields findings or nothing; none loads a model. The limits
are rules of thumb and stand beside each other below.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from glassformer.runs.facts import RunFacts

PADDING = 0.25
UNKNOWN = 0.05
TRUNCATED = 0.2
OVERFIT = 1.1
LEARNED = 0.95
SPIKE = 2.0
STILL_IMPROVING = 0.01
FEW_EXAMPLES = 500


@dataclass(frozen=True)
class Finding:
    """What is the matter, and what to try."""

    matter: str
    remedy: str


def diagnose(facts: RunFacts) -> list[Finding]:
    """All findings of a run, the gravest first; empty when nothing stands out."""
    return [finding for rule in RULES for finding in rule(facts)]


def not_a_number(facts: RunFacts) -> Iterator[Finding]:
    """A logged loss that is no number (JSON has none, so it is null), or none at all after a start."""
    for row in facts.training:
        if not _finite(row.get("loss")) or not _finite(row.get("grad_norm")):
            yield Finding(
                f"the loss stopped being a number at step {row['step']}", "lower --lr; set --clip 1"
            )
            return


def unfinished(facts: RunFacts) -> Iterator[Finding]:
    """No evaluation: interrupted, killed or failed."""
    if facts.evaluation is None:
        step = facts.training[-1]["step"] if facts.training else 0
        yield Finding(f"the run is not finished (step {step})", f"glassformer train --resume {facts.path}")


def unstable(facts: RunFacts) -> Iterator[Finding]:
    """Losses far above those just before, well after the start: the learning rate is too large."""
    losses = _losses(facts)
    if len(losses) < 40:
        return
    spikes = [i for i in range(20, len(losses)) if losses[i] > SPIKE * statistics.median(losses[i - 20 : i])]
    start, end = statistics.median(losses[:10]), statistics.median(losses[-10:])
    if len(spikes) >= max(3, len(losses) // 200) or end > 1.2 * start:
        yield Finding(
            f"the loss jumps ({len(spikes)} times to more than {SPIKE:g} times what it just was; from "
            f"{start:.3g} to {end:.3g} over the run)",
            "the learning rate is too large: halve --lr, or raise --warmup",
        )


def not_learning(facts: RunFacts) -> Iterator[Finding]:
    """A loss that hardly moved."""
    losses = _losses(facts)
    if len(losses) >= 40:
        start, end = statistics.median(losses[:10]), statistics.median(losses[-10:])
        if LEARNED * start < end <= 1.2 * start:
            yield Finding(
                f"the loss hardly moved (from {start:.3f} to {end:.3f})",
                "raise --lr; see with --overfit-batch whether it can learn at all; look at labels with: data show",
            )


def overfitting(facts: RunFacts) -> Iterator[Finding]:
    """A validation loss that rose again well before the end."""
    rows = [row for row in facts.validations if _finite(row["valid"].get("loss"))]
    if len(rows) < 3:
        return
    best = min(rows, key=lambda row: row["valid"]["loss"])
    last = rows[-1]
    if last["valid"]["loss"] > OVERFIT * best["valid"]["loss"]:
        yield Finding(
            f"it overfits: the validation loss was best ({best['valid']['loss']:.3f}) at epoch {best['epoch']:.1f} "
            f"and ended at {last['valid']['loss']:.3f}",
            "fewer --epochs or a --patience, more --model.dropout or --word-mask-prob, a smaller model, or more data",
        )


def still_improving(facts: RunFacts) -> Iterator[Finding]:
    """The last validation was the best, clearly."""
    rows = [row for row in facts.validations if _finite(row["valid"].get("loss"))]
    if len(rows) >= 3:
        before = min(row["valid"]["loss"] for row in rows[:-1])
        if rows[-1]["valid"]["loss"] < (1 - STILL_IMPROVING) * before:
            yield Finding(
                f"it was still improving (validation loss {before:.3f} → {rows[-1]['valid']['loss']:.3f})",
                "train longer: more --epochs, --steps or --minutes",
            )


def padding(facts: RunFacts) -> Iterator[Finding]:
    """Slots computed for nothing."""
    shares = [row["padding"] for row in facts.training if _finite(row.get("padding"))]
    if shares and (mean := statistics.fmean(shares)) > PADDING:
        yield Finding(
            f"{mean:.0%} of the computation is padding",
            "let batches be cut by --max-tokens rather than --batch-size; with it already, raise --max-tokens",
        )


def text(facts: RunFacts) -> Iterator[Finding]:
    """What the model never saw: unknown tokens, cut texts; and too few examples."""
    train = facts.data.get("splits", {}).get("train", {})
    unknown, n = train.get("unknown_rate") or 0.0, train.get("n") or 0
    if unknown > UNKNOWN:
        yield Finding(
            f"{unknown:.1%} of the tokens are unknown",
            "a larger --text.vocab-size, or --text.tokenizer byte-bpe",
        )
    truncated = (train.get("n_truncated") or 0) / n if n else 0.0
    if facts.task != "lm" and truncated > TRUNCATED:
        remedy = "a larger --text.max-len" + (
            ", or --text.truncate head+tail" if facts.task == "classify" else ""
        )
        yield Finding(f"{truncated:.0%} of the texts are cut", remedy)
    dropped = train.get("n_dropped") or 0
    if dropped > 0.02 * max(1, n + dropped):
        yield Finding(f"{dropped:,} pairs were too long and left out", "a larger --text.max-len")
    if facts.task != "lm" and 0 < n < FEW_EXAMPLES:
        yield Finding(
            f"there are only {n} training examples",
            "more data helps more than any setting; keep the model small",
        )


def test_used(facts: RunFacts) -> Iterator[Finding]:
    """A score that is too good to be believed."""
    if facts.config.get("data", {}).get("use_test_as_validation"):
        yield Finding(
            "the test split chose the epoch, so its score is optimistic", "leave out --use-test-as-validation"
        )


RULES: tuple[Callable[[RunFacts], Iterator[Finding]], ...] = (
    not_a_number, unfinished, unstable, not_learning, overfitting, still_improving, padding, text, test_used,
)  # fmt: skip


def _losses(facts: RunFacts) -> list[float]:
    return [row["loss"] for row in facts.training if _finite(row.get("loss"))]


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
