"""Requests for sweeps of edits, and their answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from glassformer.errors import UsageError
from glassformer.explain.edits.checkpoints import CheckpointsSweep, sweep_checkpoints
from glassformer.explain.edits.contributions import Contributions, contributions
from glassformer.explain.edits.lens import LayersSweep, sweep_layers
from glassformer.explain.edits.states import StatesSweep, sweep_states
from glassformer.explain.edits.sweeps import KeysSweep, PartsSweep, sweep_keys, sweep_parts
from glassformer.explain.explanation_data import ExplanationData
from glassformer.explain.request import check_fields, check_integer, check_text
from glassformer.explain.subject import Subject

SweepKind: TypeAlias = Literal["parts", "keys", "layers", "contributions", "states", "checkpoints"]


@dataclass(frozen=True)
class SweepRequest:
    """What to edit in turn."""

    trace: str
    """Id of the trace; for "checkpoints" of one with edits."""
    kind: SweepKind
    """Heads and blocks; keys of each head; predictions after each layer; parts of a logit; states of a second text;
    checkpoints."""
    other: str | None = None
    """Id of the second trace, for "states"."""
    prediction: int | None = None
    """Index of the prediction, for "contributions"; default: the first generated token."""

    @staticmethod
    def from_dict(data: Any) -> SweepRequest:
        """Return a request from parsed JSON.

        Raises:
            UsageError: a field is missing, unknown or invalid.
        """
        checks = {
            "trace": check_text,
            "kind": _check_kind,
            "other": check_text,
            "prediction": check_integer(0, 2**31 - 1),
        }
        request = SweepRequest(**check_fields(data, checks, required=("trace", "kind")))
        if (request.kind == "states") != (request.other is not None):
            raise UsageError("a sweep of states needs a second trace, and no other sweep does")
        if request.prediction is not None and request.kind != "contributions":
            raise UsageError("only contributions are of one prediction")
        return request


def _check_kind(name: str, value: Any) -> Any:
    if value not in get_args(SweepKind):
        raise UsageError(f"{name} should be one of {', '.join(get_args(SweepKind))}, not {str(value)[:40]!r}")
    return value


def run_sweep(
    subject: Subject, request: SweepRequest, find: Callable[[str], ExplanationData]
) -> PartsSweep | KeysSweep | LayersSweep | Contributions | StatesSweep | CheckpointsSweep:
    """Return the result of a sweep.

    Args:
        subject: the run.
        request: what to edit.
        find: returns the explanation with an id.

    Raises:
        UsageError: as in the sweeps; or the trace has edits where it should not, or none where it should.
        Cancelled: the request was given up.
    """
    explanation = find(request.trace)
    if (explanation.edited is not None) != (request.kind == "checkpoints"):
        message = f"a sweep of {request.kind} needs a trace with{'' if request.kind == 'checkpoints' else 'out'} edits"
        raise UsageError(message)
    match request.kind:
        case "parts":
            return sweep_parts(explanation)
        case "keys":
            return sweep_keys(explanation)
        case "layers":
            return sweep_layers(explanation)
        case "contributions":
            return contributions(explanation, request.prediction)
        case "states":
            return sweep_states(explanation, find(str(request.other)))
    return sweep_checkpoints(subject, explanation.request)
