"""One model of an ensemble, which is what can be looked into, and what all of them say together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from glassformer.errors import UsageError
from glassformer.explain.answers import Answer, decided
from glassformer.explain.capture.exactly import answer, asking
from glassformer.explain.predictions import predict
from glassformer.explain.subject import LoadedSubject, Subject
from glassformer.models.ensemble import Ensemble
from glassformer.style.words import shortened
from glassformer.tasks import Task

SHOWN_CHARS = 80
"""Of what each of them wrote, in a sentence."""


@dataclass(frozen=True)
class EnsembleMember:
    """Which model of an ensemble is looked into."""

    size: int
    """How many models there are."""
    member: int
    """Which of them this is, counted from 1."""
    own: Answer
    """What this one says by itself, while the answer of an explanation is that of all of them."""

    def sentence(self, answer: Answer) -> str:
        """What a reader must know, given the answer of all."""
        own, all_ = (
            f"{shortened(said['headline'], SHOWN_CHARS)} ({said['detail']})" for said in (self.own, answer)
        )
        return (
            f"an ensemble of {self.size} models: this is member {self.member}, which says {own}; "
            f"together they say {all_}"
        )

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def ensemble_answer(task: Task, model: Ensemble, inputs: dict[str, Any]) -> Answer:
    """The class that the mean of an ensemble's probabilities decides for."""
    with asking(model):
        return decided(predict(task, answer(model, **inputs), [None], [None])[0])


def with_member(subject: Subject, member: int) -> Subject:
    """The subject with one model of its ensemble; a model that is none is its own first member.

    Raises:
        UsageError: there are fewer members.
    """
    members = list(subject.model.members) if isinstance(subject.model, Ensemble) else [subject.model]
    if not 1 <= member <= len(members):
        what = f"an ensemble of {len(members)}" if len(members) > 1 else "a single model"
        raise UsageError(f"member {member} is not there: this run is {what}", "members are counted from 1")
    if len(members) == 1:
        return subject
    return LoadedSubject(subject, members[member - 1])
