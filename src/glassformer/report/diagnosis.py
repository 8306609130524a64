"""What a run's own log says went wrong, in plain words, each with what to try.

Every rule looks at the facts in the run folder and yields findings or nothing; none loads a model. The limits
are rules of thumb and stand beside each other below.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from glassformer.report.facts import RunFacts

PADDING = 0.25
UNKNOWN = 0.05
TRUNCATED = 0.2
OVERFIT = 1.1
LEARNED = 0.95
SPIKE = 2.0
HEIGHT = 0.1
"""Least height of a jump, as a share of the loss at the start."""
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
    """Where training ended because a loss or a gradient was no number; or one that was logged all the same."""
    logged = [row.step for row in facts.training if not (_finite(row.loss) and _finite(row.grad_norm))]
    if facts.diverged:
        matter = f"the loss stopped being a number at update {facts.diverged.step}: {facts.diverged.told}"
        yield Finding(matter, "lower --lr; set --clip 1; raise --warmup")
    elif logged:
        yield Finding(f"the loss stopped being a number at step {logged[0]}", "lower --lr; set --clip 1")


def unfinished(facts: RunFacts) -> Iterator[Finding]:
    """No evaluation: interrupted, killed or failed."""
    if facts.evaluation is None and facts.diverged is None:  # a run that diverged would diverge again
        yield Finding(
            f"the run is not finished (step {facts.steps})", f"glassformer train --resume {facts.path}"
        )


def unstable(facts: RunFacts) -> Iterator[Finding]:
    """Losses far above those just before, well after the start: the learning rate is too large.

    A jump counts by its height too. Where the loss is almost nothing, twice as much is still almost nothing.
    """
    losses = _losses(facts)
    if len(losses) < 40:
        return
    start, end = statistics.median(losses[:10]), statistics.median(losses[-10:])
    before = [statistics.median(losses[i - 20 : i]) for i in range(20, len(losses))]
    spikes = sum(
        loss > max(SPIKE * usual, usual + HEIGHT * start)
        for loss, usual in zip(losses[20:], before, strict=True)
    )
    if spikes >= max(3, len(losses) // 200) or end > 1.2 * start:
        yield Finding(
            f"the loss jumps ({spikes} times to more than {SPIKE:g} times what it just was; from "
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
    rows = _valid_losses(facts)
    if len(rows) < 3:
        return
    epoch, best = min(rows, key=lambda row: row[1])
    if (last := rows[-1][1]) > OVERFIT * best:
        yield Finding(
            f"it overfits: the validation loss was best ({best:.3f}) at epoch {epoch:.1f} and ended at {last:.3f}",
            "fewer --epochs or a --patience, more --model.dropout or --word-mask-prob, a smaller model, or more data",
        )


def still_improving(facts: RunFacts) -> Iterator[Finding]:
    """The last validation was the best, clearly."""
    rows = _valid_losses(facts)
    if len(rows) >= 3:
        before, last = min(loss for _, loss in rows[:-1]), rows[-1][1]
        if last < (1 - STILL_IMPROVING) * before:
            yield Finding(
                f"it was still improving (validation loss {before:.3f} → {last:.3f})",
                "train longer: more --epochs, --steps or --minutes",
            )


def padding(facts: RunFacts) -> Iterator[Finding]:
    """Slots computed for nothing."""
    shares = [row.padding for row in facts.training if row.padding is not None]
    if shares and (mean := statistics.fmean(shares)) > PADDING:
        yield Finding(
            f"{mean:.0%} of the computation is padding",
            "let batches be cut by --max-tokens rather than --batch-size; with it already, raise --max-tokens",
        )


def text(facts: RunFacts) -> Iterator[Finding]:
    """What the model never saw: unknown tokens, cut texts; and too few examples."""
    train, telling = facts.data.train, facts.telling
    if (train.unknown_rate or 0.0) > UNKNOWN:
        yield Finding(
            f"{train.unknown_rate:.1%} of the tokens are unknown",
            "a larger --text.vocab-size, or --text.tokenizer byte-bpe",
        )
    dropped = train.n_dropped or 0
    if dropped > 0.02 * max(1, train.n + dropped):
        yield Finding(f"{dropped:,} pairs were too long and left out", "a larger --text.max-len")
    if telling.running_text or train.n == 0:
        return
    truncated = (train.n_truncated or 0) / train.n
    if truncated > TRUNCATED:
        yield Finding(f"{truncated:.0%} of the texts are cut", telling.cut_remedy)
    if train.n < FEW_EXAMPLES:
        yield Finding(
            f"there are only {train.n} training examples",
            "more data helps more than any setting; keep the model small",
        )


def test_used(facts: RunFacts) -> Iterator[Finding]:
    """A score that is too good to be believed."""
    if facts.config.data.use_test_as_validation:
        yield Finding(
            "the test split chose the epoch, so its score is optimistic", "leave out --use-test-as-validation"
        )


RULES: tuple[Callable[[RunFacts], Iterator[Finding]], ...] = (
    not_a_number, unfinished, unstable, not_learning, overfitting, still_improving, padding, text, test_used,
)  # fmt: skip


def _losses(facts: RunFacts) -> list[float]:
    return [row.loss for row in facts.training if row.loss is not None and _finite(row.loss)]


def _valid_losses(facts: RunFacts) -> list[tuple[float, float]]:
    """(epoch, loss) of each validation that has a loss."""
    rows = [(row.epoch or 0.0, (row.valid or {}).get("loss")) for row in facts.validations]
    return [(epoch, loss) for epoch, loss in rows if loss is not None and _finite(loss)]


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
