"""Where the difference of two texts is: the residual stream of one is put in the place of the other's, state by state.

Both directions are measured (Heimersheim and Nanda 2024, "How to use and interpret activation patching"): `noising`
puts the second text's state into the first, and asks how much of the first answer is lost; `denoising` puts the first
text's state into the second, and asks how much of the first answer comes back. A state can be needed and not suffice,
or suffice and not be needed.
"""

from __future__ import annotations

from dataclasses import dataclass

from glassformer.errors import UsageError
from glassformer.explain.edits.apply import check_whole
from glassformer.explain.edits.measure import (
    Measure,
    Unit,
    base_logits,
    effects,
    measure_of_answer,
    measure_of_difference,
)
from glassformer.explain.explanation import Explanation
from glassformer.utils.formatting import shortened

MIN_DIFFERENCE = 0.5
"""Smallest difference of the two texts' logit differences of which a share is given."""
MIN_DEVIATIONS = 0.1
"""The same of their numbers, in standard deviations of the training numbers."""


@dataclass(frozen=True)
class StateRow:
    """The states of one depth, token by token."""

    stream: str
    """The stream of the tokens."""
    state: str
    """The embedding ("source", "embedding") or the state after a layer ("encoder.0.state")."""
    noising: list[float | None]
    """Share of the first answer that is lost with this state from the second text; null: the token has no partner."""
    denoising: list[float | None]
    """Share of the first answer that comes back with this state of the first text in the second."""


@dataclass(frozen=True, repr=False)
class StatesSweep:
    """Every state of the residual stream, exchanged between two texts."""

    position: int | None
    """Position of the first prediction that differs; null for a classifier or a number."""
    answer: str
    """What is predicted there in the first text."""
    other_answer: str
    """What is predicted there in the second text."""
    difference: float
    """Logit of the first answer minus that of the second, in the first text; or its number minus the training mean."""
    other_difference: float
    """The same in the second text."""
    rows: list[StateRow]
    """Stream by stream, each from the embedding to the last layer."""
    unit: Unit
    """Of the differences: "nats", as of log-probabilities, or "number", the unit of the training numbers."""

    def __repr__(self) -> str:
        texts = f"{shortened(self.answer, 40)!r} and {shortened(self.other_answer, 40)!r}"
        return f"<StatesSweep between {texts} in {self.unit}: {len(self.rows)} rows>"


def sweep_states(explanation: Explanation, other: Explanation) -> StatesSweep:
    """Return the share of the answer that each state of the residual stream carries."""
    explanation.check_has_answer()
    check_whole(explanation, other)
    measure, (answer, foil), least = _compared(explanation, other)
    m_a, m_b = (measure.of(base_logits(e)).item() for e in (explanation, other))
    if abs(m_a - m_b) < least:
        why = f"the logit difference is {m_a:.2f} in one text and {m_b:.2f} in the other, too similar for shares"
        hint = "choose texts whose answers are more certain"
        if measure.unit == "number":
            why = f"the number is {answer} for one text and {foil} for the other, too similar for shares"
            hint = f"choose a second text whose number is at least {least:.3g} away"
        raise UsageError(why, hint)
    end = None if explanation.generation.masked is not None else measure.positions[0]
    found = list[StateRow]()
    for stream, (_, states) in enumerate(states_of(explanation)):
        pairs = _pairs(explanation, other, stream, end)
        edits = [(state, i, j) for state in states for i, j in pairs]
        there = [[f"{s}[token:{i}]=B[token:{j}]"] for s, i, j in edits]
        here = [[f"{s}[token:{j}]=B[token:{i}]"] for s, i, j in edits]
        lost = (m_a - effects(explanation, there, measure, other)[:, 0]) / (m_a - m_b) if edits else []
        back = (effects(other, here, measure, explanation)[:, 0] - m_b) / (m_a - m_b) if edits else []
        none: list[float | None] = [None] * len(explanation.streams[stream])
        rows = [StateRow(explanation.streams[stream].name, state, [*none], [*none]) for state in states]
        for at, ((_, i, _), noising, denoising) in enumerate(zip(edits, lost, back, strict=True)):
            row = rows[at // len(pairs)]
            row.noising[i], row.denoising[i] = float(noising), float(denoising)
        found += rows
    if all(share is None for row in found for share in row.noising):
        message = "no token of one text stands for one of the other: the texts share no beginning and no end"
        raise UsageError(message, "choose texts of equally many tokens")
    return StatesSweep(measure.positions[0], answer, foil, m_a, m_b, found, measure.unit)


def _compared(a: Explanation, b: Explanation) -> tuple[Measure, tuple[str, str], float]:
    """Return what is compared of two texts, both answers, and the smallest difference of which a share is given."""
    if a.is_number:
        [first], [second] = (measure_of_answer(a).read(base_logits(e), a.subject.task) for e in (a, b))
        return measure_of_difference(a, 0), (first, second), MIN_DEVIATIONS * a.subject.task.decision.scale[1]
    measure = measure_of_difference(a, *_first_difference(a, b))
    return measure, (measure.target, measure.contrast), MIN_DIFFERENCE


def _first_difference(a: Explanation, b: Explanation) -> tuple[int, int, int]:
    """Return the index of the first prediction that differs, and what is predicted there in both texts."""
    if a.labels is not None and b.labels is not None and a.labels.shown != b.labels.shown:
        name = a.labels.each[a.labels.shown].name
        raise UsageError("the two texts are looked at for different labels", f"choose {name!r} for the second, too")
    if a.is_classifier:
        first, second = a.predictions[0].top[0].id, b.predictions[0].top[0].id
        if first == second:
            raise UsageError("both texts have the same answer", "choose a second text with another answer")
        return 0, first, second
    if a.generation.masked != b.generation.masked:
        raise UsageError("both texts need [MASK] at the same positions", "change other tokens")
    if a.generation.first != b.generation.first:
        raise UsageError("both prompts need equally many tokens", "change a token of the prompt for another")
    for i, j in zip(a.generated, b.generated, strict=False):
        first, second = (p.actual or p.top[0] for p in (a.predictions[i], b.predictions[j]))
        if first.id != second.id:
            return i, first.id, second.id
    raise UsageError("both texts have the same answer", "choose a second text with another answer")


def states_of(explanation: Explanation) -> list[tuple[str, list[str]]]:
    """Return for each stream the stack that reads it, and the names of its states in order of computation."""
    depths = explanation.records.n_layers
    names = ["embedding"] if len(depths) == 1 else ["source", "target"]
    return [
        (stack, [name, *(f"{stack}.{layer}.state" for layer in range(depth))])
        for name, (stack, depth) in zip(names, depths.items(), strict=True)
    ]


def _pairs(a: Explanation, b: Explanation, stream: int, end: int | None) -> list[tuple[int, int]]:
    """Return positions that stand for each other: all of equally long texts, else the common beginning and end.

    Of a generated stream those after the prediction are left out, as it cannot depend on them.
    """
    first, second = a.streams[stream].ids, b.streams[stream].ids
    if end is not None and stream == len(a.streams) - 1:
        first, second = first[: end + 1], second[: end + 1]
    if len(first) == len(second):
        return [(i, i) for i in range(len(first))]
    shortest = min(len(first), len(second))
    n_start = next((i for i in range(shortest) if first[i] != second[i]), shortest)
    left = shortest - n_start
    n_end = next((i for i in range(left) if first[-1 - i] != second[-1 - i]), left)
    start = [(i, i) for i in range(n_start)]
    return start + [(len(first) - i, len(second) - i) for i in range(n_end, 0, -1)]
