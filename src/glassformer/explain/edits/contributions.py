"""The parts whose sum is a logit difference: embedding, heads, feed-forward blocks, biases.

Of a regressor the sum is its number minus the mean of the training numbers, which is in proportion to its output.

The residual stream is a sum, and a norm with its statistics held is affine, so a logit is a sum over what each part
wrote (Elhage et al. 2021, "A mathematical framework for transformer circuits"). Norms are not folded into weights: each
part goes through every norm after it, divided by the deviation that the norm had in this forward pass; with post-norm
these are several. The sum is checked against the logits.

A contribution is the direct effect of a part: what later parts make of it is not in it. The total effect, measured by
switching the part off, is given with it; where both have opposite signs, later parts make up for it.

Of an edited pass the parts are those that it computed, and what an edit added to the stream is a part of its own,
"edit of encoder.0.self.out", so that the sum stays whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.explain.capture.tape import Step
from glassformer.explain.edits.measure import Measure, Result, Unit, base_logits, effects, measure_of_difference
from glassformer.explain.explanation import Explanation
from glassformer.explain.record_store import get_parameter

Part = tuple[str, str, Float[Tensor, "L D"]]
"""The name of a part, the edit that switches it off ("" if there is none), and what it adds to the residual stream."""


@dataclass(frozen=True)
class Contribution:
    """What one part adds to a logit difference."""

    name: str
    """Id of the step that wrote it, or a head of one: "decoder.0.self.head2"."""
    direct: float
    """Its term of the sum, with all norms held."""
    edit: str
    """The edit that switches it off; empty for a part that has none, such as a bias."""
    total: float | None
    """What the logit difference loses when the part is off; null for parts that have no such edit."""


@dataclass(frozen=True, repr=False)
class Contributions(Result):
    """The parts of one logit difference."""

    position: int | None
    """Position of the prediction; null for a classifier or a number."""
    target: str
    """The class or token that is followed; or "number"."""
    contrast: str
    """What it is compared with; for a number "mean of the training numbers"."""
    difference: float
    """Logit of the target minus that of the contrast; or the number minus that mean."""
    error: float
    """The sum of the direct contributions minus this difference, which only rounding should leave."""
    parts: list[Contribution]
    """In order of computation."""
    unit: Unit
    """Of the difference: "nats", as of log-probabilities, or "number", the unit of the training numbers."""


def contributions(explanation: Explanation, prediction: int | None = None) -> Contributions:
    """Return the parts whose sum is the logit of a prediction minus that of its contrast.

    By default it is the first generated token; the contrast is the most probable other class or token.
    """
    explanation.check_has_answer()
    if prediction is None:
        prediction = next(iter(explanation.answered), 0)
    n = max(len(explanation.predictions), explanation.is_number)
    if not 0 <= prediction < n:
        raise UsageError(f"there is no prediction {prediction}", f"there are {n}, from 0")
    measure = measure_of_difference(explanation, prediction)
    difference = float(measure.of(base_logits(explanation)))
    parts = [
        (name, edit, value)
        for name, edit, values in _logit_parts(explanation, measure)
        for value in [float(values if values.dim() == 0 else values[prediction])]
    ]
    if (steps := _edited_steps(explanation)) and (ends := [id for id in _ends(explanation) if id in steps]):
        rest = difference - sum(value for _, _, value in parts)
        parts.append((f"edit of {ends[-1]}", "", rest))
    after = effects(explanation, [[edit] for _, edit, _ in parts if edit], measure)[:, 0]
    totals = iter((difference - after).tolist())
    return Contributions(
        position=measure.position,
        target=measure.target,
        contrast=measure.contrast,
        difference=difference,
        error=sum(value for _, _, value in parts) - difference,
        parts=[Contribution(name, value, edit, next(totals) if edit else None) for name, edit, value in parts],
        unit=measure.unit,
    )


def _logit_parts(explanation: Explanation, measure: Measure) -> Iterator[tuple[str, str, Tensor]]:
    """Yield the name, the edit and the share of the difference of each part: (P,), or of the whole text ()."""
    records, model = explanation.records, explanation.subject.model
    logits = records["logits"]
    step = records[logits.inputs[0]] if logits.op == "pin_zero" else logits
    of_row = replace(measure, rows=(0,))

    def of_head(name: str) -> Tensor:
        """Return the measure of a parameter of the last matrix, (C, D) or (C,)."""
        rows = get_parameter(model, name).detach().double()
        if logits.op == "pin_zero":  # of two classes with one logit
            rows = torch.cat([torch.zeros_like(rows), rows])
        return of_row.of(rows.movedim(0, -1)[..., None, :])[..., 0]

    direction = of_head(step.params["weight"])
    if bias := step.params.get("bias"):
        yield bias, "", of_head(bias)
    if why := why_no_sum(records.steps):
        raise UsageError(why)
    end = records[step.inputs[0]]
    pool = end if end.op == "pool" else None
    for name, edit, value in _parts(explanation, end.inputs[0] if pool is not None else end.id):
        yield name, edit, (value if pool is None else _pooled(explanation, pool, value)) @ direction


def why_no_sum(steps: Mapping[str, Step]) -> str | None:
    """Return why the output of this model is no sum of parts, as a sentence; None where it is."""
    if (logits := steps.get("logits")) is None:
        return "a bare encoder gives a vector, and has no logit"
    end = steps[(steps[logits.inputs[0]] if logits.op == "pin_zero" else logits).inputs[0]]
    if end.inputs and steps[end.inputs[0]].op == "gelu":
        return "the head of a masked language model is not linear, so the output is no sum of parts"
    if end.op in ("tanh", "relu"):
        return "the pooler before the head is not linear, so the output is no sum of parts"
    return None


def _parts(explanation: Explanation, id: str) -> Iterator[Part]:
    """Yield the parts whose sum is a step of the residual stream, (L, D) in double precision."""
    parts = list(_computed_parts(explanation, id))
    yield from parts
    edited = {id, f"{id.removesuffix('.out')}.concat"} & _edited_steps(explanation)
    if edited and len(parts) > 1:  # a single part is the step itself, as it was edited
        total = torch.stack([value for _, _, value in parts]).sum(dim=0)
        yield f"edit of {edited.pop()}", "", explanation.records[id].value.double() - total


def _ends(explanation: Explanation) -> list[str]:
    """Return the ids of the steps after the residual stream: of pooling, and of the products up to the logits."""
    found, id = [], "logits"
    while (record := explanation.records[id]).op in ("linear", "pin_zero", "pool"):
        found.insert(0, id)
        id = record.inputs[0]
    return found


def _edited_steps(explanation: Explanation) -> set[str]:
    """Return the ids of the steps of which an edit of this explanation changed a number."""
    result = explanation.edited
    if result is None:
        return set()
    return {one.step for one in result.applied if result.edits[one.edit] not in result.unchanged}


def _computed_parts(explanation: Explanation, id: str) -> Iterator[Part]:
    """Yield the parts that a step computes from its inputs."""
    records, model = explanation.records, explanation.subject.model
    record = records[id]
    match record.op:
        case "add":
            for part in record.inputs:
                yield from _parts(explanation, part)
        case "layer_norm" | "rms_norm":
            for name, edit, value in _parts(explanation, record.inputs[0]):
                yield name, edit, _normed(explanation, record, value)
            if bias := record.params.get("bias"):
                yield bias, "", get_parameter(model, bias).detach().double().expand(record.value.shape)
        case "linear" if record.site == "out" and record.block != "ff":
            yield from _heads(explanation, record)
        case "linear":
            yield id.removesuffix(".out"), f"{id}=0", record.value.double()
        case _:
            yield id, "", record.value.double()


def _heads(explanation: Explanation, record: Step) -> Iterator[Part]:
    """Yield what each head of an attention adds, and its bias."""
    model, block = explanation.subject.model, record.id.removesuffix(".out")
    context = explanation.records[f"{block}.context"].value.double()
    weight = get_parameter(model, record.params["weight"]).detach().double()
    for h, columns in enumerate(weight.split(context.shape[-1], dim=1)):
        yield f"{block}.head{h}", f"{block}.context[head:{h}]=0", context[h] @ columns.T
    if bias := record.params.get("bias"):
        yield bias, "", get_parameter(model, bias).detach().double().expand(record.value.shape)


def _normed(explanation: Explanation, norm: Step, part: Tensor) -> Tensor:
    """Return a part after a norm whose statistics are those of the whole stream."""
    x = explanation.records[norm.inputs[0]].value.double()
    if norm.op == "layer_norm":
        part, x = part - part.mean(dim=-1, keepdim=True), x - x.mean(dim=-1, keepdim=True)
    scale = (x.square().mean(dim=-1, keepdim=True) + float(norm.attrs["eps"])).rsqrt()
    weight = norm.params.get("weight")
    gain = 1.0 if not weight else get_parameter(explanation.subject.model, weight).detach().double()
    return part * scale * gain


def _pooled(explanation: Explanation, pool: Step, part: Tensor) -> Tensor:
    """Return a part after pooling; a maximum is taken where the whole stream has it."""
    x = explanation.records[pool.inputs[0]].value.double()
    real = ~torch.tensor(explanation.streams[0].padding, device=x.device)
    if (token := pool.attrs.get("token")) is not None:  # of one word
        real = torch.arange(len(x), device=x.device) == token
    mean = part[real].mean(dim=0)
    where = x.masked_fill(~real[:, None], -torch.inf).argmax(dim=0)
    largest = part.gather(0, where[None])[0]
    match pool.attrs["how"]:
        case "mean":
            return mean
        case "max":
            return largest
        case "mean+max":
            return torch.cat([mean, largest])
        case "first":
            return part[0]
    raise UsageError(f"{pool.attrs['how']} pooling is not linear, so the output is no sum of parts")
