"""What a run's own log says went wrong, in plain words, each with what to try.

Every rule looks at the facts in the run folder and yields findings, or raises `NotMade` where the folder lacks what it
needs; none loads a model. The limits stand beside each other below; those of logged numbers lie between what sound and
sick runs gave (`benchmarks/doctor.json`). `explain/examine.py` looks at weights.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from glassformer.data.check import OTHER_MODEL
from glassformer.data.diagnostics import FEW_EXAMPLES as FEW
from glassformer.data.diagnostics import Finding
from glassformer.report.run_record import RunRecord, readable_records
from glassformer.runs.folder import RunFolder
from glassformer.tasks import task_class
from glassformer.utils.formatting import counted

PADDING = 0.25
UNKNOWN = 0.05
OVERFIT = 1.1
LEARNED = 0.95
RISEN = 1.2
SPIKE, HEIGHT, SPREAD = 2.0, 0.5, 3.0
"""A jump of the loss is to so many times its median over the last 20 steps, higher by this share of the loss at the
start, and by so many times what their second largest is above that median. So a batch with one hard example is none."""
STILL_IMPROVING = 0.01
SOLVED = {"accuracy": 0.99, "exact_match": 0.99}
"""Scores from which on longer training has too little left to gain to be advised."""
NEGLIGIBLE = 0.005
"""Validation loss, as a share of the training loss at the start, below which the same holds; and so much of a rise."""
FEW_EXAMPLES = 500
OF_ACTIVITY = ("scores", "heads", "dead-units")
EXAMINED = ("first-loss", "answer-visible", "frozen", *OF_ACTIVITY)
"""The checks of `explain/examine.py`, which need the weights; of some the log shows a part."""
GRADES = ("stop", "look", "know")
CAUSES = ("divergence", "answer-visible", "first-loss", "frozen", "scores", "update-ratio")
SYMPTOMS = ("heads", "dead-units")
"""What is listed before and after all else of the same grade."""
BELOW_CHANCE, ABOVE_CHANCE = 0.3, 1.5
"""Nats below and above ln of the number of answers between which first losses of untrained models lie, unless their
output is tied: up to 1 above, and 1.9 or more with a bias of 5."""
UPDATE_RATIOS, NEAR_PEAK = (3e-4, 2e-2), 0.5
"""Median ‖Δw‖ / ‖w‖ of sound runs, and the share of the largest learning rate from which a step counts."""


class NotMade(Exception):
    """A check could not be made; the message is the reason."""


@dataclass
class Checkup:
    """What checks found.

    Attributes:
        findings: the most severe grade first, causes before symptoms.
        made: names of the checks that were made.
        not_made: those that could not be, and why.
    """

    findings: list[Finding] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    not_made: dict[str, str] = field(default_factory=dict)

    def __add__(self, other: Checkup) -> Checkup:
        """Return both; what one could make was made, and what this one found is not listed again."""
        made = list(dict.fromkeys([*self.made, *other.made]))
        not_made = {name: why for name, why in {**other.not_made, **self.not_made}.items() if name not in made}
        known = {finding.place for finding in self.findings}
        new = [finding for finding in other.findings if finding.place not in known]
        return Checkup(_by_grade([*self.findings, *new]), made, not_made)


def run_checks(checks: Mapping[str, Callable[[], Iterable[Finding]]]) -> Checkup:
    """Make checks by name; one whose numbers are not as they were written could not be made."""
    checkup = Checkup()
    for name, check in checks.items():
        try:
            checkup.findings += check()
            checkup.made.append(name)
        except NotMade as reason:
            checkup.not_made[name] = str(reason)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            checkup.not_made[name] = f"the records are not as they were written: {str(error)[:200]}"
    checkup.findings = _by_grade(checkup.findings)
    return checkup


def _by_grade(findings: list[Finding]) -> list[Finding]:
    """Sort by grade, then causes before the rest, and symptoms last; else as they were found."""

    def rank(finding: Finding) -> tuple[int, int]:
        place = finding.place
        among = CAUSES.index(place) if place in CAUSES else len(CAUSES) + (place in SYMPTOMS)
        return GRADES.index(finding.grade), among

    return sorted(findings, key=rank)


def check_log(facts: RunRecord) -> Checkup:
    """Make all checks of a run that need its folder alone."""
    return run_checks({name: partial(rule, facts) for name, rule in RULES.items()})


def diagnose(facts: RunRecord) -> list[Finding]:
    """Return all findings of `check_log`, the most severe first; empty if nothing stands out."""
    with readable_records(facts.path):
        return check_log(facts).findings


def how_it_ended(facts: RunRecord) -> Iterator[Finding]:
    """Yield findings about NaN or infinite losses and gradients, and about runs that did not finish."""
    broken = [row.step for row in facts.training if not (_finite(row.loss) and _finite(row.grad_norm))]
    if facts.diverged:
        matter = f"the loss stopped being a number at step {facts.diverged.step}: {facts.diverged.message}"
        remedy = "lower --lr; set --max-grad-norm 1; raise --warmup"
        yield Finding(matter, remedy, "divergence", {"step": facts.diverged.step}, "stop")
    elif broken:
        matter, remedy = f"the loss stopped being a number at step {broken[0]}", "lower --lr; set --max-grad-norm 1"
        yield Finding(matter, remedy, "divergence", {"step": broken[0]}, "stop")
    if facts.evaluation is None and facts.diverged is None:  # a run that diverged would diverge again
        matter = f"the run is not finished (step {facts.steps})"
        yield Finding(matter, RunFolder(facts.path).resume_command, "unfinished", {"step": facts.steps})


def training_loss(facts: RunRecord) -> Iterator[Finding]:
    """Yield findings about jumps of the training loss well after the start, and about a loss that hardly falls.

    With class weights a batch that has a rare class costs many times as much, and jumps are not counted.
    """
    losses = [loss for loss in facts.logged("loss") if math.isfinite(loss)]
    if len(losses) < 40:
        raise NotMade(f"{len(losses)} steps are logged, and it takes 40")
    n = min(facts.task_report.steps_averaged, len(losses) - 39)
    losses = [statistics.fmean(losses[i : i + n]) for i in range(len(losses) - n + 1)]
    start, end = statistics.median(losses[:10]), statistics.median(losses[-10:])
    weighted = facts.config.train.class_weight != "none"
    spikes = 0 if weighted else sum(_jumps(losses[i - 20 : i], losses[i], start) for i in range(20, len(losses)))
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


def _jumps(recent: list[float], loss: float, start: float) -> bool:
    """Return whether a loss stands out of those just before, against what they are and how far they spread."""
    usual, spread = statistics.median(recent), sorted(recent)[-2] - statistics.median(recent)
    return loss > max(SPIKE * usual, usual + HEIGHT * start, usual + SPREAD * spread)


def validation_loss(facts: RunRecord) -> Iterator[Finding]:
    """Yield findings about a validation loss that rose well before the end, or that was clearly best at the end."""
    logged = [(row.epoch or 0.0, (row.valid or {}).get("loss")) for row in facts.validations]
    rows = [(loss, epoch) for epoch, loss in logged if loss is not None and math.isfinite(loss)]
    if len(rows) < 3:
        raise NotMade(f"the log has {counted(len(rows), 'validations')}, and it takes 3")
    (before, epoch), (last, _) = min(rows[:-1]), rows[-1]
    start = (facts.logged("loss") or [math.inf])[0]
    if last > OVERFIT * before and (last - before > NEGLIGIBLE * start or not math.isfinite(start)):
        yield Finding(
            f"it overfits: the validation loss was best ({before:.3f}) at epoch {epoch:.1f} and ended at {last:.3f}",
            "fewer --epochs or a --patience, more --model.dropout or --word-mask-prob, a smaller model, or more data",
            "validation loss",
            {"best": before, "epoch": epoch, "last": last},
        )
    if last < (1 - STILL_IMPROVING) * before and not _solved(facts, last):
        matter = f"it was still improving (validation loss {before:.3f} → {last:.3f})"
        remedy = "train longer: more --epochs, --steps or --minutes"
        yield Finding(matter, remedy, "validation loss", {"best": before, "last": last}, "know")


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
        yield Finding(matter, "a larger --text.max-len", "left out", {"n": dropped}, "know")
    if train.n_empty:
        unit = "pairs with an empty side" if train.n_dropped is not None else "texts without a token to predict"
        matter, remedy = f"{train.n_empty:,} {unit} were left out", "look at the data: glassformer data check"
        yield Finding(matter, remedy, "left out", {"n": train.n_empty})
    if task_class(facts.config.task).running_text or train.n == 0:
        return
    if train.n < FEW_EXAMPLES and all(finding.place != FEW for finding in facts.data.findings):
        own = facts.config.train.init_from is None
        remedy = "more data helps more than any setting" + ("; keep the model small" if own else "")
        yield Finding(f"there are only {train.n} training examples", remedy, FEW, {"n": train.n}, "know")


def data(facts: RunRecord) -> Iterator[Finding]:
    """Yield what was found in the data before the first step."""
    yield from facts.data.findings


def test_used(facts: RunRecord) -> Iterator[Finding]:
    """Yield a finding if the score is implausibly good."""
    if facts.config.data.use_test_as_validation:
        matter = "the test split chose the epoch, so its score is optimistic"
        yield Finding(matter, "leave out --use-test-as-validation", "test split")


def first_loss(facts: RunRecord) -> Iterator[Finding]:
    """Yield a finding if the first loss is far above that of guessing, ln of the number of answers.

    That of an untrained model is close to it. With a tied output, whose logits are larger, it can be 6 nats above.
    """
    loss, chance = first_loss_and_chance(facts)
    if facts.data.label_names is None and facts.config.model.tie_embeddings:
        raise NotMade("with a tied output untrained models can start anywhere above guessing: --examine")
    limit = chance + ABOVE_CHANCE
    if loss > limit:
        yield Finding(
            f"the first loss is {loss:.3g}, and guessing has {chance:.3g}",
            "an untrained model should be near it: look at the scale of its output and its bias",
            "first-loss",
            {"loss": loss, "chance": chance, "limit": limit},
            "stop",
        )


def answer_visible(facts: RunRecord) -> Iterator[Finding]:
    """Yield a finding if the first loss is below that of guessing, which no untrained model can do."""
    loss, chance = first_loss_and_chance(facts)
    if loss < chance - BELOW_CHANCE:
        yield Finding(
            f"the first loss is {loss:.3g}, and guessing has {chance:.3g}: an untrained model cannot know that",
            "the answer is in its input: are labels shifted by one? look at them with glassformer data show",
            "answer-visible",
            {"loss": loss, "chance": chance, "limit": chance - BELOW_CHANCE},
            "stop",
        )


def first_loss_and_chance(facts: RunRecord) -> tuple[float, float]:
    """Return the loss of the first step and that of guessing, in nats."""
    if facts.data.base:
        raise NotMade("it did not begin with random weights")
    if facts.task_report.averaged[1] == "numbers":
        raise NotMade("an answer that is a number is not guessed among several")
    if not facts.task_report.guesses_evenly:
        raise NotMade("what guessing costs depends on how frequent the labels are")
    if not facts.training or facts.training[0].step != 1 or not math.isfinite(facts.training[0].loss):
        raise NotMade("the first step is not in the log")
    n = len(facts.data.label_names or ()) or facts.data.tokenizer.get("vocab_size")
    if not isinstance(n, int) or n < 2:
        raise NotMade("data.json does not say how many answers there are")
    return facts.training[0].loss, math.log(n)


def frozen(facts: RunRecord) -> Iterator[Finding]:
    """Yield a finding if a matrix did not move in any of two or more steps, `UPDATES_EVERY` apart."""
    rows = [row.update_ratios for row in facts.training if row.update_ratios and row.lr > 0]
    if len(rows) < 2:
        raise NotMade(f"{counted(len(rows), 'steps')} logged how far each matrix moved, and it takes 2")
    still = [name for name in rows[0] if all(row.get(name) == 0 for row in rows)]
    if still:
        matter = f"{len(still)} of {len(rows[0])} matrices never moved, such as {still[0]}"
        remedy = "no gradient reaches it: look for detach(), or a part that the loss does not read"
        yield Finding(matter, remedy, "frozen", {"n": len(still), "n_all": len(rows[0])}, "stop", still[0])


def update_ratio(facts: RunRecord) -> Iterator[Finding]:
    """Yield a finding if the median matrix moves too little or too much a step while the rate is near its peak."""
    rows = [row for row in facts.training if row.update_ratios and row.step > 1 and row.lr > 0]
    peak = max((row.lr for row in facts.training), default=0.0)
    ratios = [statistics.median((row.update_ratios or {}).values()) for row in rows if row.lr >= NEAR_PEAK * peak]
    if not ratios:
        raise NotMade("no step near the largest learning rate logged how far each matrix moved")
    ratio = statistics.median(ratios)
    low, high = UPDATE_RATIOS
    numbers = {"ratio": ratio, "low": low, "high": high}
    if ratio < low and not facts.data.base:  # weights that were trained before are large, and should move little
        matter = f"a step moves the median matrix by {ratio:.2g} of its norm; sound runs move it by {low:g} or more"
        yield Finding(matter, "raise --lr", "update-ratio", numbers)
    elif not ratio <= high:
        matter = f"a step moves the median matrix by {ratio:.2g} of its norm; sound runs move it by {high:g} at most"
        yield Finding(matter, "lower --lr", "update-ratio", numbers)


def damaged_log(facts: RunRecord) -> Iterator[Finding]:
    """Yield a finding if lines of the log could not be read, or a run that was evaluated has none."""
    if facts.evaluation is not None and not facts.training:
        matter = "the run was evaluated, and its log has no step of the training"
        yield Finding(matter, "restore it from a copy", "log", {"n": 0})
    elif n := len(facts.damaged):
        lines = ", ".join(map(str, facts.damaged[:5])) + (f" … ({n} in all)" if n > 5 else "")
        matter = f"line{'s' * (n > 1)} {lines} of metrics.jsonl cannot be read, and {'are' if n > 1 else 'is'} left out"
        yield Finding(matter, "restore the file from a copy", "log", {"n": n})


RULES: dict[str, Callable[[RunRecord], Iterable[Finding]]] = {
    "log": damaged_log,
    "ending": how_it_ended,
    "answer-visible": answer_visible,
    "first-loss": first_loss,
    "frozen": frozen,
    "training loss": training_loss,
    "update-ratio": update_ratio,
    "validation loss": validation_loss,
    "data": data,
    "text": text,
    "test split": test_used,
}


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
