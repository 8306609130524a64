"""Sweeps: the same kind of edit all over a model, in a few batches.

parts: each head and block switched off, each head alone, and all heads of a block together. Single heads can each be
dispensable while all together are not, which only the sum shows.
keys: each head kept from attending to each token.
layers: what the model would answer after each layer, with the later ones skipped. Of a decoder this is the logit lens
(nostalgebraist 2020); of the encoder of a translator, whose decoder then reads an early memory, DecoderLens (Langedijk
et al. 2023, https://arxiv.org/abs/2310.03686). The last norm takes its statistics from the state that it reads. Early
rows are biased: those states were not made for this reader (Belrose et al. 2023, https://arxiv.org/abs/2303.08112).
contributions, states: `contributions.py`, `states.py`.
checkpoints: the edits of an explanation at each checkpoint of its run. Every checkpoint reads the tokens of one model,
the one that the request names (teacher forcing), so that edits of any position fit, and the numbers of all checkpoints
are of the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.explain.capture.tape import Step
from glassformer.explain.edits.contributions import contributions
from glassformer.explain.edits.measure import Sweep, SweepRow, effects, measure_of_answer, swept
from glassformer.explain.edits.states import StatesSweep, states_of, sweep_states
from glassformer.explain.edits.what_if import predictions_of, what_if
from glassformer.explain.explanation import Explanation
from glassformer.explain.inputs import filled_answer
from glassformer.explain.predictions import rows_of
from glassformer.explain.record_store import RecordStore
from glassformer.explain.subject import View, list_checkpoints
from glassformer.utils.device import tuned
from glassformer.utils.process_settings import check_cancelled

SweepKind = Literal["parts", "keys", "layers", "contributions", "states", "checkpoints"]
Variants = list[tuple[str, list[str]]]
"""Names, and the edits of each."""


def sweep(
    explanation: Explanation, kind: SweepKind, other: Explanation | None = None, prediction: int | None = None
) -> Sweep | StatesSweep:
    """Return the sweep of one kind; arguments as of `Explanation.sweep`."""
    if kind not in SWEEPS:
        raise UsageError(f"there is no sweep of {kind!r}", f"there is {', '.join(SWEEPS)}")
    if (kind == "states") != (other is not None):
        raise UsageError("a sweep of states needs a second text, and no other sweep does")
    if kind != "contributions" and prediction is not None:
        raise UsageError("only contributions are of one prediction")
    return SWEEPS[kind](explanation, *(one for one in (other, prediction) if one is not None))


def _sweep_parts(explanation: Explanation) -> Sweep:
    off, others = Variants(), dict[str, list[str]]()
    for id, step in explanation.records.steps.items():
        block = id.rpartition(".")[0]
        if step.site == "weights":
            heads = {f"{block}.head{h}": f"{block}.context[head:{h}]=0" for h in range(step.shape[0])}
            off += [(head, [edit]) for head, edit in heads.items()]
            off.append((block, [f"{block}.context=0"]))
            others |= {head: [one for one in heads.values() if one != edit] for head, edit in heads.items()}
        elif step.block == "ff" and step.site == "out":
            off.append((block, [f"{id}=0"]))
    alone = [(head, edits) for head, edits in others.items() if edits]
    found = swept(explanation, [*off, *alone], measure_of_answer(explanation))
    of_others = {row.name: row for row in found.rows[len(off) :]}
    rows = [replace(row, alone=of_others.get(row.name)) for row in found.rows[: len(off)]]
    return replace(found, rows=rows, untrained=_untrained(explanation, [edits for _, edits in off]))


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


def _sweep_keys(explanation: Explanation) -> Sweep:
    steps = [step for step in explanation.records.steps.values() if step.site == "weights"]
    variants = [one for step in steps for one in blocked_keys(step, range(step.shape[-1]))]
    return swept(explanation, variants, measure_of_answer(explanation))


def blocked_keys(weights: Step, keys: Iterable[int]) -> Variants:
    """Return the edits that keep each head of an attention from attending to each of these keys."""
    block, heads = weights.id.rpartition(".")[0], range(weights.shape[0])
    return [(block, [f"{block}.scores[head:{h};key:{k}]=blocked"]) for h in heads for k in keys]


def _sweep_layers(explanation: Explanation) -> Sweep:
    variants = [
        (state, [f"{later}=skip" for later in states[n + 1 :]])
        for _, states in states_of(explanation)
        for n, state in enumerate(states)
    ]
    return swept(explanation, variants, measure_of_answer(explanation), each=True)


def _sweep_checkpoints(explanation: Explanation) -> Sweep:
    if explanation.base is None:
        raise UsageError("a sweep of checkpoints needs edits", "as in: explain(run, TraceRequest(text, edits=…))")
    base, other, request = explanation.base, explanation.other, explanation.request
    measure, rows = measure_of_answer(base), list[SweepRow]()
    for info in list_checkpoints(explanation.run):
        check_cancelled()
        view = base.subject.at(info["name"])
        at = _at(base, view)
        result = what_if(at, request.edits, None if other is None else _at(other, view), again=False)
        before, after = (measure.total(one.records) for one in (at, result))
        was, now = (_answer(base, rows_of(one.records["logits"].value)) for one in (at, result))
        rows.append(SweepRow(info["name"], [*request.edits], before, after, was, now, int(was != now), None))
    return Sweep(rows, measure.unit, measure.target, "", measure.positions[0], measure.total(base.records))


def _at(explanation: Explanation, subject: View) -> Explanation:
    """Return the explanation of the same tokens by other weights."""
    with tuned(subject.device):
        records = RecordStore(subject.model, explanation.model_inputs, explanation.streams)
    moved = replace(explanation, subject=subject, records=records)
    return replace(moved, predictions=predictions_of(moved, records["logits"].value))


def _answer(explanation: Explanation, logits: Tensor) -> str:
    """Return what logits (P, C) predict, token by token, or the number of an output."""
    subject, masked, t = explanation.subject, explanation.generation.masked, explanation.subject.task.tokenizer
    if explanation.is_number or explanation.is_classifier:
        return measure_of_answer(explanation).read(logits, subject.task)[0]
    if masked:
        return filled_answer(subject, explanation.request.text, logits[masked])["headline"]
    best = logits[explanation.answered].argmax(dim=-1).tolist()
    return t.decode(best[:-1] if best[-1:] == [t.eos_id] else best)


SWEEPS: dict[str, Callable[..., Any]] = {
    "parts": _sweep_parts,
    "keys": _sweep_keys,
    "layers": _sweep_layers,
    "contributions": contributions,
    "states": sweep_states,
    "checkpoints": _sweep_checkpoints,
}
"""The sweeps by kind."""
