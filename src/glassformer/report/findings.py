"""What stands out in a run, and what to try: the table of findings, each a function of test, sentence and advice.

Those of the data are in `data/check.py`: they are tested once, before the first step, and read back here. `LOG` and
`SCORES` are tested whenever a run is looked at. The report and the model card quote those of the data and of the
scores, `doctor` prints all. A rule yields findings, or raises `NotMade` where the record lacks what it needs; none
loads a model. The limits stand beside each other below; those of logged numbers lie between what sound and sick runs
gave (`benchmarks/doctor.json`). `training/examine.py` looks at weights.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from glassformer.data.check import FEW
from glassformer.data.diagnostics import Finding, NotMade
from glassformer.report.run_record import RunRecord
from glassformer.runs.folder import RunFolder
from glassformer.utils.formatting import counted

LEARNED, RISEN = 0.95, 1.2
"""Loss at the end, as a share of that at the start, from which nothing was learned, and from which it got worse."""
OVERFIT, STILL_IMPROVING, NEGLIGIBLE = 1.1, 0.99, 0.005
"""The last validation loss, as a share of the best before it, above which it overfits, and below which it improves;
and share of the first training loss: a smaller rise of the validation loss is none, and below it nothing is to gain."""
LONGER = "train longer: more --epochs, --steps or --minutes"
BELOW_CHANCE, ABOVE_CHANCE = 0.3, 1.5
"""Nats below and above ln of the number of answers between which first losses of untrained models lie, unless their
output is tied: up to 1 above, and 1.9 or more with a bias of 5."""
UPDATE_RATIOS, NEAR_PEAK = (3e-4, 2e-2), 0.5
"""Median ‖Δw‖ / ‖w‖ of sound runs, and the share of the largest learning rate from which a step counts."""
EXAMINED = ("first-loss", "answer-visible", "frozen", "scores", "heads", "dead-units")
"""The checks of `training/examine.py`, which need the weights; of some the log shows a part."""
GRADES = ("stop", "look", "know")
ORDER = ("divergence", "answer-visible", "first-loss", "frozen", "scores", "update-ratio", "", "heads", "dead-units")
"""Of the same grade causes come first and symptoms last; "" stands for all else."""


def needs(is_there: object, otherwise: str) -> None:
    """Raise NotMade with a reason where the record lacks something."""
    if not is_there:
        raise NotMade(otherwise)


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
        made = [*dict.fromkeys([*self.made, *other.made])]
        not_made = {name: why for name, why in (other.not_made | self.not_made).items() if name not in made}
        known = {finding.place for finding in self.findings}
        new = [finding for finding in other.findings if finding.place not in known]
        return Checkup(sorted([*self.findings, *new], key=_rank), made, not_made)


def _rank(finding: Finding) -> tuple[int, int]:
    return GRADES.index(finding.grade), ORDER.index(finding.place if finding.place in ORDER else "")


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
    checkup.findings.sort(key=_rank)
    return checkup


# --- the log ---------------------------------------------------------------------------------------------------


def log(facts: RunRecord) -> Iterator[Finding]:
    """Yield a finding if lines of the log could not be read."""
    if n := len(facts.damaged):
        lines = ", ".join(map(str, facts.damaged[:5])) + (f" … ({n} in all)" if n > 5 else "")
        matter = f"line{'s' * (n > 1)} {lines} of metrics.jsonl cannot be read, and {'are' if n > 1 else 'is'} left out"
        yield Finding(matter, "restore the file from a copy", "log", {"n": n})


def ending(facts: RunRecord) -> Iterator[Finding]:
    """Yield a finding about a NaN or infinite loss or gradient, or about a run that did not finish."""
    if facts.diverged:
        matter = f"the loss stopped being a number at step {facts.diverged.step}: {facts.diverged.message}"
        remedy = "lower --lr; set --max-grad-norm 1; raise --warmup"
        yield Finding(matter, remedy, "divergence", {"step": facts.diverged.step}, "stop")
    elif facts.evaluation is None:
        matter, remedy = f"the run is not finished (step {facts.steps})", RunFolder(facts.path).resume_command
        yield Finding(matter, remedy, "unfinished", {"step": facts.steps})


def training_loss(facts: RunRecord) -> Iterator[Finding]:
    """Yield a finding if the training loss hardly fell, or rose."""
    losses = [loss for loss in facts.logged("loss") if math.isfinite(loss)]
    needs(len(losses) >= 40, f"{len(losses)} steps are logged, and it takes 40")
    start, end = statistics.median(losses[:10]), statistics.median(losses[-10:])
    if end > LEARNED * start:
        what, remedy = "rose", "the learning rate is too large: halve --lr, or raise --warmup"
        if end <= RISEN * start:
            what, remedy = "hardly moved", "raise --lr; see with --overfit-batch whether it can learn at all"
        matter = f"the loss {what} (from {start:.3g} to {end:.3g})"
        yield Finding(matter, remedy, "training loss", {"start": start, "end": end})


def validation_loss(facts: RunRecord) -> Iterator[Finding]:
    """Yield a finding if the validation loss rose well before the end, or was clearly best at the end."""
    logged = [(row.epoch or 0.0, (row.valid or {}).get("loss")) for row in facts.validations]
    rows = [(loss, epoch) for epoch, loss in logged if loss is not None and math.isfinite(loss)]
    needs(len(rows) >= 3, f"the log has {counted(len(rows), 'validations')}, and it takes 3")
    (best, epoch), (last, _) = min(rows[:-1]), rows[-1]
    negligible = NEGLIGIBLE * next(iter(facts.logged("loss")), 0.0)
    numbers = {"best": best, "epoch": epoch, "last": last}
    if last > OVERFIT * best and not last - best <= negligible:
        matter = f"it overfits: the validation loss was best ({best:.3f}) at epoch {epoch:.1f} and ended at {last:.3f}"
        remedy = "fewer --epochs or a --patience, more --model.dropout or --word-mask-prob, a smaller model, more data"
        yield Finding(matter, remedy, "validation loss", numbers)
    elif negligible < last < STILL_IMPROVING * best:
        matter = f"it was still improving (validation loss {best:.3f} → {last:.3f})"
        yield Finding(matter, LONGER, "validation loss", numbers, "know")


def first_loss(facts: RunRecord) -> Iterator[Finding]:
    """Yield a finding if the first loss is far above that of guessing, ln of the number of answers.

    That of an untrained model is close to it. With a tied output, whose logits are larger, it can be 6 nats above.
    """
    loss, chance = first_loss_and_chance(facts)
    tied = facts.data.label_names is None and facts.config.model.tie_embeddings
    needs(not tied, "with a tied output untrained models can start anywhere above guessing: --examine")
    if loss > (limit := chance + ABOVE_CHANCE):
        matter = f"the first loss is {loss:.3g}, and guessing has {chance:.3g}"
        remedy = "an untrained model should be near it: look at the scale of its output and its bias"
        yield Finding(matter, remedy, "first-loss", {"loss": loss, "chance": chance, "limit": limit}, "stop")


def answer_visible(facts: RunRecord) -> Iterator[Finding]:
    """Yield a finding if the first loss is below that of guessing, which no untrained model can do."""
    loss, chance = first_loss_and_chance(facts)
    if loss < (limit := chance - BELOW_CHANCE):
        matter = f"the first loss is {loss:.3g}, and guessing has {chance:.3g}: an untrained model cannot know that"
        remedy = "the answer is in its input: are labels shifted by one? look at them with glassformer data show RECIPE"
        yield Finding(matter, remedy, "answer-visible", {"loss": loss, "chance": chance, "limit": limit}, "stop")


def first_loss_and_chance(facts: RunRecord) -> tuple[float, float]:
    """Return the loss of the first step and that of guessing, in nats."""
    needs(not facts.data.base, "it did not begin with random weights")
    needs(facts.task_report.guesses_evenly, "what guessing costs depends on how frequent the labels are, or on scale")
    losses = [row.loss for row in facts.training if row.step == 1 and math.isfinite(row.loss)]
    needs(losses, "the first step is not in the log")
    n = len(facts.data.label_names or ()) or facts.data.tokenizer.get("vocab_size", 0)
    needs(n >= 2, "data.json does not say how many answers there are")
    return losses[0], math.log(n)


def frozen(facts: RunRecord) -> Iterator[Finding]:
    """Yield a finding if a matrix did not move in any of two or more steps, `UPDATES_EVERY` apart."""
    rows = [row.update_ratios for row in facts.training if row.update_ratios and row.lr > 0]
    needs(len(rows) >= 2, f"{counted(len(rows), 'steps')} logged how far each matrix moved, and it takes 2")
    if still := [name for name in rows[0] if all(row.get(name) == 0 for row in rows)]:
        matter = f"{len(still)} of {len(rows[0])} matrices never moved, such as {still[0]}"
        remedy = "no gradient reaches it: look for detach(), or a part that the loss does not read"
        yield Finding(matter, remedy, "frozen", {"n": len(still), "n_all": len(rows[0])}, "stop", still[0])


def update_ratio(facts: RunRecord) -> Iterator[Finding]:
    """Yield a finding if the median matrix moves too little or too much a step while the rate is near its peak."""
    rows = [row for row in facts.training if row.update_ratios and row.step > 1 and row.lr > 0]
    peak = max((row.lr for row in facts.training), default=0.0)
    ratios = [statistics.median((row.update_ratios or {}).values()) for row in rows if row.lr >= NEAR_PEAK * peak]
    needs(ratios, "no step near the largest learning rate logged how far each matrix moved")
    ratio, (low, high) = statistics.median(ratios), UPDATE_RATIOS
    too_low = ratio < low and not facts.data.base  # weights that were trained before are large, and should move little
    if too_low or not ratio <= high:
        matter = f"a step moves the median matrix by {ratio:.2g} of its norm; sound runs move it by {low:g} to {high:g}"
        numbers = {"ratio": ratio, "low": low, "high": high}
        yield Finding(matter, "raise --lr" if too_low else "lower --lr", "update-ratio", numbers)


def data(facts: RunRecord) -> list[Finding]:
    """Return what was found in the data before the first step."""
    return facts.data.findings


# --- the scores ------------------------------------------------------------------------------------------------


def no_test(facts: RunRecord) -> Iterator[Finding]:
    """Yield a finding if the scores are those of the validation split."""
    if facts.evaluation and facts.evaluation.split != "test":
        matter = "these scores are on the validation split, which also chose the weights"
        yield Finding(matter, "name a test split with --test-file", "no test split")


def few_scored(facts: RunRecord) -> Iterator[Finding]:
    """Yield a finding if a score has a very wide interval."""
    (metric, _, interval), n = facts.score, facts.evaluation.n if facts.evaluation else 0
    if 0 < n < FEW and interval:
        spread = f"{metric.title} may be anything from {' to '.join(map(metric.write, interval))}"
        matter = f"only {counted(n, facts.task_report.unit)} {'was' if n == 1 else 'were'} scored: {spread}"
        yield Finding(matter, "score more texts", "few scored", {"n": n}, "know")


def baselines(facts: RunRecord) -> Iterator[Finding]:
    """Yield a finding for each simpler model whose headline score is in the interval of the model's, or better."""
    metric, score, interval = facts.score
    worst = interval[0 if metric.higher_is_better else 1] if interval else score
    best_at_end = any(row.best for row in facts.validations[-1:])
    remedy = LONGER if best_at_end else "if half of the data (--limit) does clearly worse, more would help"
    for key, title in facts.task_report.baselines.items():
        rival = facts.evaluation.baselines.get(key, {}).get(metric.name) if facts.evaluation else None
        if score is not None and worst is not None and rival is not None and not metric.better(worst, rival):
            does = "may do" if metric.better(score, rival) else "does"
            matter = f"“{title}” {does} as well or better here ({metric.title} {metric.write(rival)})"
            yield Finding(matter, remedy, "baseline")


def task(facts: RunRecord) -> Iterator[Finding]:
    """Yield what only the task can see in its scores."""
    for sentence in (facts.evaluation.scores.get("notes") or []) if facts.evaluation else []:
        yield Finding(sentence.removesuffix("."), place="task")


# --- the table -------------------------------------------------------------------------------------------------

LOG = (log, ending, answer_visible, first_loss, frozen, training_loss, update_ratio, validation_loss, data)
SCORES = (no_test, few_scored, baselines, task)
RULES = {rule.__name__.replace("_", "-"): rule for rule in (*LOG, *SCORES)}
"""Of a run, by the name of the check."""


def of_scores(facts: RunRecord) -> list[Finding]:
    """Return what a reader of the scores must mind."""
    return [finding for rule in SCORES for finding in rule(facts)]


def diagnose(facts: RunRecord) -> Checkup:
    """Make all checks of a run that need its folder alone; what was found in its data is read back."""
    return run_checks({name: partial(rule, facts) for name, rule in RULES.items()})
