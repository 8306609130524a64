"""The effect of edits at every saved point of training: when the part that they change came to matter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from glassformer.explain.compute import compute_explanation
from glassformer.explain.edits.what_if import what_if
from glassformer.explain.explanation_data import ExplanationData
from glassformer.explain.request import TraceRequest
from glassformer.explain.subject import Subject, list_checkpoints
from glassformer.utils.cancellation import check_cancelled


@dataclass(frozen=True)
class CheckpointEffect:
    """What edits change in one checkpoint of a run."""

    checkpoint: str
    """"model" or the name of a checkpoint."""
    step: int | None
    """Its training step."""
    answer_before: str
    """Its answer without edits."""
    answer_after: str | None
    """Its answer with edits; null where it was not decoded again."""


@dataclass(frozen=True)
class CheckpointsSweep:
    """What edits change in every checkpoint of a run."""

    checkpoints: list[CheckpointEffect]
    """The first training step first."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON data."""
        return asdict(self)


def sweep_checkpoints(
    subject: Subject,
    request: TraceRequest,
    explain: Callable[[Subject, TraceRequest], ExplanationData] = compute_explanation,
) -> CheckpointsSweep:
    """Return the effect of the edits of a request at each checkpoint, the first training step first.

    Each checkpoint decodes the text itself, without edits and with them.

    Args:
        subject: a loaded `Run`.
        request: a text, its edits, and the second text of =B.
        explain: returns the explanation of a request without edits.

    Raises:
        UsageError: an edit does not fit, or the text is too long.
        Cancelled: the computation was cancelled between two checkpoints.
    """
    found = []
    for info in list_checkpoints(subject):
        check_cancelled()
        at = replace(request, checkpoint=info["name"])
        base = explain(subject, at.without_edits())
        other = None if at.other_text is None else explain(subject, at.of_other_text())
        result = what_if(base, at.edits, other)
        found.append(CheckpointEffect(info["name"], info["step"], result.answer_before, result.answer_after))
    return CheckpointsSweep(found)
