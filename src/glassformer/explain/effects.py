"""What edits change: of one prediction (`Effect`), and of one text (`WhatIf`)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from glassformer.explain.answers import Answer
from glassformer.explain.record_store import RecordStore
from glassformer.explain.trace import Trace

EditKind: TypeAlias = Literal["set", "scale", "B", "mean", "blocked", "skip"]


@dataclass(frozen=True)
class Effect:
    """What edits change in one prediction."""

    position: int | None
    """Position of the prediction; null for the whole text, by a classifier."""
    target: str
    """The class or token that is followed: the model's own prediction, or the token that follows in the text."""
    contrast: str
    """What it is compared with: what the edited model predicts instead, else the second most probable."""
    before: str
    """The most probable class or token without edits."""
    after: str
    """The same with edits."""
    difference_before: float
    """Logit of the target minus that of the contrast, without edits."""
    difference_after: float
    """The same with edits."""
    log_prob_before: float
    """Log-probability of the target without edits, in nats."""
    log_prob_after: float
    """The same with edits."""
    rank_after: int
    """Number of classes or tokens with a larger logit than the target, with edits."""
    kl: float
    """Kullback–Leibler divergence of the distribution with edits from that without, in nats."""


@dataclass(frozen=True)
class AppliedEdit:
    """An edit of one step, as it was applied; aliases and wildcards are resolved."""

    edit: int
    """Index into `WhatIf.edits`."""
    step: str
    """Id of the step."""
    slice: str
    """Part of the step by axis names; all of it if empty."""
    kind: EditKind
    """As in `edits/grammar.py`. Weights that follow blocked scores are "set" to 0."""
    number: float
    """The number of "set" and "scale"."""
    source: str
    """The step whose values are used: of "skip" the state before the layer, else the step itself."""


@dataclass(frozen=True, eq=False)
class WhatIf:
    """The result of edits on one explanation."""

    edits: list[str]
    """The edits, as text."""
    applied: list[AppliedEdit]
    """The steps that they edit, in the order of application."""
    unchanged: list[str]
    """Edits that changed no number."""
    answer_before: str
    """The class, or the text that was decoded, without edits."""
    answer_after: str | None
    """The same with edits; null where it was not decoded again."""
    why_not: str
    """Why it was not decoded again; empty if it was."""
    same: list[str]
    """Ids of the steps whose numbers are the same with edits, to the bit."""
    effects: list[Effect]
    """What changes at each position that is predicted."""
    records: RecordStore
    """The records of the edited pass."""
    answer: Answer
    """The answer with edits and its probability; where it was not decoded again, of the same text."""

    @property
    def trace(self) -> Trace:
        """Return the trace of the edited pass."""
        assert self.records.trace is not None  # edits need a text that is kept whole
        return self.records.trace

    @property
    def changed(self) -> list[Effect]:
        """Return the effects at positions where the most probable class or token is another one."""
        return [effect for effect in self.effects if effect.before != effect.after]

    def to_json(self) -> dict[str, Any]:
        """Return everything but the records and the answer's line as JSON data."""
        fields = {name: value for name, value in vars(self).items() if name not in ("records", "answer")}
        return fields | {
            "applied": [asdict(applied) for applied in self.applied],
            "effects": [asdict(effect) for effect in self.effects],
        }
