"""One model of an ensemble, which is what can be looked into, and what all of them say together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from glassformer.errors import UsageError
from glassformer.explain.checkpoints import Loaded, Subject
from glassformer.explain.manifest import answer_of
from glassformer.explain.predictions import predict
from glassformer.models.ensemble import Ensemble


@dataclass(frozen=True)
class Together:
    """What an ensemble says; the mirror of `Together` in web/src/types.ts.

    Attributes:
        size: how many models there are. member: which of them is looked into, counted from 1.
        answer: {"headline", "detail"} of the mean of their probabilities.
    """

    size: int
    member: int
    answer: dict[str, str]

    @staticmethod
    def of(subject: Subject, member: int, inputs: dict[str, Any]) -> Together | None:
        """What the whole of a subject says to these arguments of its model; None where it is a single model."""
        if not isinstance(subject.model, Ensemble):
            return None
        with torch.no_grad():
            said = predict(subject.task, subject.model(**inputs), [None], [None])
        answer = answer_of(subject.task.name, said, None, "")
        return Together(len(subject.model.members), member, answer)

    def sentence(self, own: dict[str, str]) -> str:
        """What a reader must know, given the member's own answer."""
        one, all_ = (f"{answer['headline']} {answer['detail']}" for answer in (own, self.answer))
        return (
            f"an ensemble of {self.size} models: this is member {self.member}, which says {one}; "
            f"together they say {all_}"
        )

    def to_json(self) -> dict[str, Any]:
        """As in types.ts."""
        return asdict(self)


def at_member(subject: Subject, member: int) -> Subject:
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
    return Loaded(subject.path, subject.task, members[member - 1], subject.device)
