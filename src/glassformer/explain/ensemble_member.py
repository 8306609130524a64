"""Select one model of an ensemble, the one that is explained; the answer of all of them is a note."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glassformer.errors import UsageError
from glassformer.explain.answers import Answer, class_answer
from glassformer.explain.capture.exact_inference import exact_forward, exact_no_grad
from glassformer.explain.predictions import top_predictions
from glassformer.explain.subject import LoadedSubject, Subject
from glassformer.models.ensemble import Ensemble
from glassformer.tasks import Task
from glassformer.utils.formatting import shortened

MAX_HEADLINE_CHARS = 80


@dataclass(frozen=True)
class EnsembleMember:
    """The model of an ensemble that is traced."""

    size: int
    """Number of models in the ensemble."""
    member: int
    """Which of them is traced, counted from 1."""
    answer: Answer
    """Answer of all models together; the answer of an explanation is that of this member."""

    def warning(self, own: Answer) -> str:
        """Return a sentence that compares this model's answer with the ensemble's."""
        member_text, ensemble_text = (
            f"{shortened(answer['headline'], MAX_HEADLINE_CHARS)} ({answer['detail']})" for answer in (own, self.answer)
        )
        return (
            f"an ensemble of {self.size} models: this is member {self.member}, which predicts {member_text}; "
            f"the ensemble predicts {ensemble_text}"
        )


def ensemble_class_answer(task: Task, model: Ensemble, inputs: dict[str, Any]) -> Answer:
    """Return the class with the largest mean probability of an ensemble of classifiers."""
    with exact_no_grad(model):
        return class_answer(top_predictions(task, exact_forward(model, **inputs), [None], [None])[0])


def with_member(subject: Subject, member: int) -> Subject:
    """Return the subject with one model of its ensemble; a single model is its own first member.

    Raises:
        UsageError: there are fewer members.
    """
    members = list(subject.model.members) if isinstance(subject.model, Ensemble) else [subject.model]
    if not 1 <= member <= len(members):
        kind = f"an ensemble of {len(members)}" if len(members) > 1 else "a single model"
        raise UsageError(f"there is no member {member}: this run is {kind}", "members are counted from 1")
    return subject if len(members) == 1 else LoadedSubject(subject, members[member - 1])
