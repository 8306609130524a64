"""What a run's own log says went wrong, in plain words, each with what to try.

Every rule looks at the facts in the run folder and yields diagnostics or nothing; none loads a model. The limits
are rules of thumb and stand beside each other below.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from glassformer.data.check import OTHER_MODEL
from glassformer.data.diagnostics import FEW_EXAMPLES as FEW
from glassformer.data.diagnostics import Finding
from glassformer.report.run_record import RunRecord, readable_records
from glassformer.runs.folder import RunFolder
from glassformer.tasks import task_class

PADDING = 0.25
UNKNOWN = 0.05
OVERFIT = 1.1
LEARNED = 0.95
RISEN = 1.2
SPIKE = 2.0
HEIGHT = 0.1
"""Least height of a jump, as a share of the loss at the start."""
STILL_IMPROVING = 0.01
SOLVED = {"accuracy": 0.99, "exact_match": 0.99}
"""Scores from which on longer training has too little left to gain to be advised."""
NEGLIGIBLE = 0.005
"""Validation loss, as a share of the training loss at the start, below which the same holds."""
FEW_EXAMPLES = 500


def diagnose(facts: RunRecord) -> list[Finding]:
    """Return all diagnostics of a run, the most severe first; empty if nothing stands out."""
    with readable_records(facts.path):
        return [finding for rule in RULES for finding in rule(facts)]


def how_it_ended(facts: RunRecord) -> Iterator[Finding]:
    """Yield findings about NaN or infinite losses and gradients, and about runs that did not finish."""
    broken = [row.step for row in facts.training if not (_finite(row.loss) and _finite(row.grad_norm))]
    if facts.diverged:
        matter = f"the loss stopped being a number at step {facts.diverged.step}: {facts.diverged.message}"
        remedy = "lower --lr; set --max-grad-norm 1; raise --warmup"
        yield Finding(matter, remedy, "divergence", {"step": facts.diverged.step})
    elif broken:
        matter, remedy = f"the loss stopped being a number at step {broken[0]}", "lower --lr; set --max-grad-norm 1"
        yield Finding(matter, remedy, "divergence", {"step": broken[0]})
    if facts.evaluation is None and facts.diverged is None:  # a run that diverged would diverge again
        matter = f"the run is not finished (step {facts.steps})"
        yield Finding(matter, RunFolder(facts.path).resume_command, "unfinished", {"step": facts.steps})


def training_loss(facts: RunRecord) -> Iterator[Finding]:
    """Yield findings about spikes of the training loss well after the start, and about a loss that hardly falls.

    The height of a spike counts too: if the loss is close to zero, twice as much still is.
    """
    losses = [loss for loss in facts.logged("loss") if math.isfinite(loss)]
    if len(losses) < 40:
        return
    start, end = statistics.median(losses[:10]), statistics.median(losses[-10:])
    before = [statistics.median(losses[i - 20 : i]) for i in range(20, len(losses))]
    jumps = zip(losses[20:], before, strict=True)
    spikes = sum(loss > max(SPIKE * usual, usual + HEIGHT * start) for loss, usual in jumps)
    if spikes >= max(3, len(losses) // 200) or end > RISEN * start:
        yield Finding(
            f"the loss jumps ({spikes} times to more than {SPIKE:g} times what it just was; from "
            f"{start:.3g} to {end:.3g} over the run)",
            "the learning rate is too large: halve --lr, or raise --warmup",
            "training loss",
            {"spikes": spikes, "start": start, "end": end},
        )
    if LEARNED * start < end <= RISEN * start:
        yield Finding(
            f"the loss hardly moved (from {start:.3f} to {end:.3f})",
            "raise --lr; see with --overfit-batch whether it can learn at all; look at labels with: data show",
            "training loss",
            {"start": start, "end": end},
        )


def validation_loss(facts: RunRecord) -> Iterator[Finding]:
    """Yield findings about a validation loss that rose well before the end, or that was clearly best at the end."""
    logged = [(row.epoch or 0.0, (row.valid or {}).get("loss")) for row in facts.validations]
    rows = [(loss, epoch) for epoch, loss in logged if loss is not None and math.isfinite(loss)]
    if len(rows) < 3:
        return
    (before, epoch), (last, _) = min(rows[:-1]), rows[-1]
    if last > OVERFIT * before:
        yield Finding(
            f"it overfits: the validation loss was best ({before:.3f}) at epoch {epoch:.1f} and ended at {last:.3f}",
            "fewer --epochs or a --patience, more --model.dropout or --word-mask-prob, a smaller model, or more data",
            "validation loss",
            {"best": before, "epoch": epoch, "last": last},
        )
    if last < (1 - STILL_IMPROVING) * before and not _solved(facts, last):
        matter = f"it was still improving (validation loss {before:.3f} → {last:.3f})"
        remedy = "train longer: more --epochs, --steps or --minutes"
        yield Finding(matter, remedy, "validation loss", {"best": before, "last": last})


def _solved(facts: RunRecord, loss: float) -> bool:
    """Return True if the possible gain, in the score or the validation loss, is negligible."""
    scores, start = facts.validations[-1].valid or {}, facts.logged("loss")[:1]
    solved = any(scores.get(name, 0.0) >= enough for name, enough in SOLVED.items())
    return solved or any(loss < NEGLIGIBLE * first for first in start)


def text(facts: RunRecord) -> Iterator[Finding]:
    """Yield findings about padding, unknown tokens, examples left out and too few examples."""
    train, shares = facts.data.train, facts.logged("padding")
    if shares and (mean := sum(shares) / len(shares)) > PADDING:
        yield Finding(
            f"{mean:.0%} of the computation is padding",
            "let batches be cut by --max-tokens rather than --batch-size; with it already, raise --max-tokens",
            "padding",
            {"share": mean},
        )
    if (train.unknown_rate or 0.0) > UNKNOWN:
        own = facts.config.train.init_from is None
        remedy = "a larger --text.vocab-size, or --text.tokenizer byte-bpe" if own else OTHER_MODEL
        matter = f"{train.unknown_rate:.1%} of the tokens are unknown"
        yield Finding(matter, remedy, "unknown tokens", {"rate": train.unknown_rate or 0.0})
    dropped = train.n_dropped or 0
    if dropped > 0.02 * max(1, train.n + dropped):
        matter = f"{dropped:,} pairs were too long and left out"
        yield Finding(matter, "a larger --text.max-len", "left out", {"n": dropped})
    if train.n_empty:
        unit = "pairs with an empty side" if train.n_dropped is not None else "texts without a token to predict"
        matter, remedy = f"{train.n_empty:,} {unit} were left out", "look at the data: glassformer data check"
        yield Finding(matter, remedy, "left out", {"n": train.n_empty})
    if task_class(facts.config.task).running_text or train.n == 0:
        return
    if train.n < FEW_EXAMPLES and all(finding.place != FEW for finding in facts.data.findings):
        own = facts.config.train.init_from is None
        remedy = "more data helps more than any setting" + ("; keep the model small" if own else "")
        yield Finding(f"there are only {train.n} training examples", remedy, FEW, {"n": train.n})


def data(facts: RunRecord) -> Iterator[Finding]:
    """Yield what was found in the data before the first step."""
    yield from facts.data.findings


def test_used(facts: RunRecord) -> Iterator[Finding]:
    """Yield a finding if the score is implausibly good."""
    if facts.config.data.use_test_as_validation:
        matter = "the test split chose the epoch, so its score is optimistic"
        yield Finding(matter, "leave out --use-test-as-validation", "test split")


RULES = (how_it_ended, training_loss, validation_loss, data, text, test_used)


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
