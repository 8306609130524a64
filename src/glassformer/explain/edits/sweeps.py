"""Sweeps: the same kind of edit for every part of a model, all in a few batches.

`sweep_parts`: each head and block switched off, each alone, and all heads of a block together. Single heads can each be
dispensable while all together are not, which only the sum shows.
`sweep_keys`: each head kept from attending to each token.

Every checkpoint reads the tokens of one model, the one that the request names (teacher forcing), so that edits of any
position fit, and the numbers of all checkpoints are of the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch

from glassformer.errors import UsageError
from glassformer.explain.edits.measure import Result, Unit, VariantEffect, effects, measure_of_answer, variant_effects
from glassformer.explain.edits.what_if import predictions_of, what_if
from glassformer.explain.explanation import Explanation
from glassformer.explain.inputs import filled_answer
from glassformer.explain.predictions import rows_of
from glassformer.explain.record_store import RecordStore
from glassformer.explain.subject import View, list_checkpoints
from glassformer.utils.device import tuned
from glassformer.utils.process_settings import check_cancelled


@dataclass(frozen=True)
class Part:
    """A part of the model, and what follows when it is switched off, or works alone."""

    step: str
    """Id of its attention weights, or of a feed-forward block's output."""
    kind: Literal["head", "heads", "block"]
    """A head; all heads of a block; a feed-forward block."""
    head: int | None
    """Number of the head, from 0."""
    off: VariantEffect
    """Effect of switching it off."""
    alone: VariantEffect | None
    """Effect of switching off the other heads of the same block; null where there are none."""


@dataclass(frozen=True, repr=False)
class PartsSweep(Result):
    """Every head and block of a model, switched off."""

    parts: list[Part]
    """In order of computation."""
    untrained: float
    """Largest change, in size, when a part of the same model with initial weights is off."""
    unit: Unit
    """Of the changes: "nats" of log-probability, or "number", the unit of the training numbers."""


@dataclass(frozen=True)
class KeysGrid:
    """The heads of one attention block, each kept from attending to each token."""

    step: str
    """Id of the attention weights."""
    stream: str
    """The stream of the keys."""
    effects: list[list[VariantEffect]]
    """One list per head, one effect per key."""


@dataclass(frozen=True, repr=False)
class KeysSweep(Result):
    """Every head of a model, kept from attending to each token."""

    grids: list[KeysGrid]
    """In order of computation."""
    unit: Unit
    """Of the changes: "nats" of log-probability, or "number", the unit of the training numbers."""

    def strongest(self, n: int = 10) -> list[VariantEffect]:
        """Return the n effects that lower the log-probability most, or change the number most, the largest first."""
        every = [effect for grid in self.grids for row in grid.effects for effect in row]
        return sorted(every, key=_strength(self.unit))[:n]


def sweep_parts(explanation: Explanation) -> PartsSweep:
    """Return the effect of switching off each head and block, of each head alone, and of all heads of a block."""
    plans = _plans(explanation)
    found = iter(variant_effects(explanation, [edits for plan in plans for edits in (plan.off, plan.alone) if edits]))
    parts = [Part(plan.step, plan.kind, plan.head, next(found), next(found) if plan.alone else None) for plan in plans]
    untrained = _untrained(explanation, [plan.off for plan in plans])
    return PartsSweep(parts, untrained, measure_of_answer(explanation).unit)


def sweep_keys(explanation: Explanation) -> KeysSweep:
    """Return the effect of blocking each key for each head; raises as `sweep_parts`."""
    attentions = [step for step in explanation.records.steps.values() if step.site == "weights"]
    variants = [
        [f"{step.id.removesuffix('weights')}scores[head:{h};key:{k}]=blocked"]
        for step in attentions
        for h in range(step.shape[0])
        for k in range(step.shape[-1])
    ]
    found = iter(variant_effects(explanation, variants))
    grids = []
    for step in attentions:
        n_heads, _, n_keys = step.shape
        rows = [[next(found) for _ in range(n_keys)] for _ in range(n_heads)]
        grids.append(KeysGrid(step.id, step.axes[-1].stream or "", rows))
    return KeysSweep(grids, measure_of_answer(explanation).unit)


class _Plan(NamedTuple):
    """A part with the edits that switch it off, and those that switch off the other heads of its block."""

    step: str
    kind: Literal["head", "heads", "block"]
    head: int | None
    off: list[str]
    alone: list[str]


def _plans(explanation: Explanation) -> list[_Plan]:
    """Return how each part is switched off."""
    plans: list[_Plan] = []
    for id, step in explanation.records.steps.items():
        if step.site == "weights":
            block = id.removesuffix(".weights")
            off = [f"{block}.context[head:{h}]=0" for h in range(step.shape[0])]
            plans += [_Plan(id, "head", h, [one], [edit for edit in off if edit != one]) for h, one in enumerate(off)]
            plans.append(_Plan(id, "heads", None, [f"{block}.context=0"], []))
        elif step.block == "ff" and step.site == "out":
            plans.append(_Plan(id, "block", None, [f"{id}=0"], []))
    return plans


def _untrained(explanation: Explanation, variants: Sequence[Sequence[str]]) -> float:
    """Return the largest change of what is followed by one edit alone, in the model with initial weights."""
    view = explanation.subject
    devices = [view.device] if view.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(0)
        model = view.run.task.build_model()
    # The edits of an edited explanation are of the trained model.
    initial = replace(view, weights=model.to(view.device).eval(), member=0)
    fresh = replace(explanation.base or explanation, subject=initial)
    totals = effects(fresh, [["logits*1"], *variants], measure_of_answer(explanation)).sum(dim=-1)
    return float((totals[1:] - totals[0]).abs().max())


@dataclass(frozen=True)
class CheckpointEffect:
    """What edits change in one checkpoint of a run."""

    checkpoint: str
    """"model" or the name of a checkpoint."""
    step: int | None
    """Its training step."""
    answer_before: str
    """What it answers without edits: class, number; or after each of the tokens that all checkpoints read, the next."""
    answer_after: str
    """The same with edits."""
    log_prob_before: float | None
    """Log-probability of the tokens, or of the class, without edits, in nats; null for a number."""
    log_prob_after: float | None
    """The same with edits."""
    number_before: float | None
    """The number without edits; null for classes and tokens."""
    number_after: float | None
    """The same with edits."""


@dataclass(frozen=True, repr=False)
class CheckpointsSweep(Result):
    """What edits change in every checkpoint of a run."""

    checkpoints: list[CheckpointEffect]
    """The first training step first."""
    unit: Unit
    """Of what is followed: "nats" of log-probability, or "number", the unit of the training numbers."""


def _strength(unit: Unit) -> Callable[[VariantEffect], float]:
    """Return the key by which the strongest effect is first: an answer loses probability; a number rises or falls."""
    return lambda effect: -abs(effect.change) if unit == "number" else effect.change


def sweep_checkpoints(explanation: Explanation) -> CheckpointsSweep:
    """Return the effect of the edits of an explanation at each checkpoint of its run, the first training step first."""
    if explanation.base is None:
        raise UsageError("a sweep of checkpoints needs edits", "as in: explain(run, TraceRequest(text, edits=…))")
    base, other, request = explanation.base, explanation.other, explanation.request
    measure, found = measure_of_answer(base), []
    for info in list_checkpoints(explanation.run):
        check_cancelled()
        model = base.subject.at(info["name"])
        at = _at(base, model)
        result = what_if(at, request.edits, None if other is None else _at(other, model), again=False)
        logits = [rows_of(one.records["logits"].value) for one in (at, result)]
        before, after = (_answer(base, one) for one in logits)
        values = [float(measure.of(one.double()).sum()) for one in logits]
        of_unit = (None, None, *values) if measure.unit == "number" else (*values, None, None)
        found.append(CheckpointEffect(info["name"], info["step"], before, after, *of_unit))
    return CheckpointsSweep(found, measure.unit)


def _at(explanation: Explanation, subject: View) -> Explanation:
    """Return the explanation of the same tokens by other weights."""
    with tuned(subject.device):
        records = RecordStore(subject.model, explanation.model_inputs, explanation.streams)
    moved = replace(explanation, subject=subject, records=records)
    return replace(moved, predictions=predictions_of(moved, records["logits"].value))


def _answer(explanation: Explanation, logits: Any) -> str:
    """Return what logits (P, C) predict, token by token, or the number of an output."""
    subject, masked, t = explanation.subject, explanation.generation.masked, explanation.subject.task.tokenizer
    if explanation.is_number or explanation.is_classifier:
        return measure_of_answer(explanation).read(logits, subject.task)[0]
    if masked:
        return filled_answer(subject, explanation.request.text, logits[masked])["headline"]
    best = logits[explanation.answered].argmax(dim=-1).tolist()
    return t.decode(best[:-1] if best[-1:] == [t.eos_id] else best)
