"""Requests for sweeps of edits, and their answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from glassformer.config.fields import number, string
from glassformer.errors import UsageError
from glassformer.explain.edits.checkpoints import CheckpointsSweep, sweep_checkpoints
from glassformer.explain.edits.contributions import Contributions, contributions
from glassformer.explain.edits.lens import LayersSweep, sweep_layers
from glassformer.explain.edits.states import StatesSweep, sweep_states
from glassformer.explain.edits.sweeps import KeysSweep, PartsSweep, sweep_keys, sweep_parts
from glassformer.explain.explanation import Explanation
from glassformer.explain.request import IDS, Request

SweepKind: TypeAlias = Literal["parts", "keys", "layers", "contributions", "states", "checkpoints"]


@dataclass(frozen=True)
class SweepRequest(Request):
    """What to edit in turn."""

    trace: str = string(40)
    """Id of the trace; for "checkpoints" of one with edits."""
    kind: SweepKind  # pyright: ignore[reportGeneralTypeIssues]  # `string(40)` is a field without default
    """Heads and blocks; keys of each head; predictions after each layer; parts of a logit; states of a second text;
    checkpoints."""
    other: str | None = string(40, None)
    """Id of the second trace, for "states"."""
    prediction: int | None = number(None, IDS)
    """Index of the prediction, for "contributions"; default: the first generated token."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.kind == "states") != (self.other is not None):
            raise UsageError("a sweep of states needs a second trace, and no other sweep does")
        if self.prediction is not None and self.kind != "contributions":
            raise UsageError("only contributions are of one prediction")


def run_sweep(
    request: SweepRequest, find: Callable[[str], Explanation]
) -> PartsSweep | KeysSweep | LayersSweep | Contributions | StatesSweep | CheckpointsSweep:
    """Return the result of a sweep."""
    explanation = find(request.trace)
    if request.kind == "checkpoints" and explanation.edited is None:
        raise UsageError("a sweep of checkpoints needs a trace with edits")
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
    return sweep_checkpoints(explanation)
