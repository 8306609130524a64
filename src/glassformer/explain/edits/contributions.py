"""The parts whose sum is a logit difference: embedding, heads, feed-forward blocks, biases.

Of a regressor the sum is its number minus the mean of the training numbers, which is in proportion to its output.

The residual stream is a sum, and a norm with its statistics held is affine, so a logit is a sum over what each part
wrote (Elhage et al. 2021, "A mathematical framework for transformer circuits"). Norms are not folded into weights: each
part goes through every norm after it, divided by the deviation that the norm had in this forward pass; with post-norm
these are several. The walk goes back from the logits, with what a unit of each step adds to them. The sum is checked
against the logits.

A contribution is the direct effect of a part: what later parts make of it is not in it. The total effect, measured by
switching the part off, is given with it; where both have opposite signs, later parts make up for it.

Of an edited pass the parts are those that it computed, and what an edit added to the stream is a part of its own,
"edit of encoder.0.self.out", so that the sum stays whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.explain.capture.tape import Step
from glassformer.explain.edits.measure import Sweep, base_logits, measure_of_difference, prediction_index, swept
from glassformer.explain.explanation import Explanation
from glassformer.explain.predictions import rows_of
from glassformer.explain.record_store import get_parameter
from glassformer.nn.operations import named, row_name, run

Part = tuple[str, str, float]
"""The name of a part, the edit that switches it off ("" if there is none), and what it adds to what is followed."""


def contributions(explanation: Explanation, prediction: int | None = None) -> Sweep:
    """Return the parts whose sum is the logit of a prediction minus that of its contrast.

    By default it is the first generated token; the contrast is the most probable other class or token.
    """
    index = prediction_index(explanation, prediction)
    measure, slopes = measure_of_difference(explanation, index), torch.zeros_like(base_logits(explanation))
    if why := why_no_sum(explanation.records.steps):
        raise UsageError(why)
    if measure.foil is None:
        slopes[index] = measure.of(torch.ones_like(slopes))
    else:
        slopes[index, [*measure.ids, measure.foil]] = slopes.new_tensor([1.0, -1.0])
    parts = list(_parts(explanation, "logits", slopes))
    found = swept(explanation, [(name, [edit] if edit else []) for name, edit, _ in parts], measure)
    rows = [replace(row, direct=direct) for row, (*_, direct) in zip(found.rows, parts, strict=True)]
    return replace(found, rows=rows, error=sum(direct for *_, direct in parts) - found.value)


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


def _parts(explanation: Explanation, id: str, slopes: Float[Tensor, "L D"]) -> Iterator[Part]:
    """Yield the parts of a step, given what a unit of each of its numbers adds to what is followed."""
    parts = list(_computed_parts(explanation, id, slopes))
    yield from parts
    edited, result = {id, f"{id.removesuffix('.out')}.concat"}, explanation.edited
    changed = [one.step for one in result.applied if result.edits[one.edit] not in result.unchanged] if result else []
    if (names := edited.intersection(changed)) and len(parts) > 1:  # a single part is the step itself, as it was edited
        total = float((explanation.records[id].value.double() * slopes).sum())
        yield f"edit of {names.pop()}", "", total - sum(direct for *_, direct in parts)


def _computed_parts(explanation: Explanation, id: str, slopes: Float[Tensor, "L D"]) -> Iterator[Part]:
    """Yield the parts that a step computes from its inputs."""
    step = explanation.records[id]

    def parameter(role: str) -> Tensor:
        return get_parameter(explanation.subject.model, step.params[role]).detach()

    def before(slopes: Float[Tensor, "L D"]) -> Iterator[Part]:
        yield from _parts(explanation, step.inputs[0], slopes)

    match step.op:
        case "add":
            for part in step.inputs:
                yield from _parts(explanation, part, slopes)
        case "pool" | "pin_zero":
            op = row_name(step.op, step.attrs)
            read = {name: explanation.records[one].value for name, one in named(op, step.inputs, {}).items()}
            read |= {"x": read["x"].double(), "y": step.value.double(), "g": slopes}
            yield from before(rows_of(run(f"{op}.x", read, step.attrs, tuple(read["x"].shape))))
        case "linear" if step.stack == "head":
            used = slopes.any(dim=0)  # of a large vocabulary two tokens
            yield from before(slopes[:, used] @ parameter("weight")[used].double())
        case "layer_norm" | "rms_norm":  # with its statistics held
            x, inner = explanation.records[step.inputs[0]].value.double(), slopes
            inner = inner * parameter("weight").double() if "weight" in step.params else inner
            if step.op == "layer_norm":
                inner, x = inner - inner.mean(dim=-1, keepdim=True), x - x.mean(dim=-1, keepdim=True)
            yield from before(inner * (x.square().mean(dim=-1, keepdim=True) + float(step.attrs["eps"])).rsqrt())
        case "linear" if step.block != "ff" and step.site == "out":
            block = id.removesuffix(".out")
            context = explanation.records[f"{block}.context"].value.double()
            for h, columns in enumerate(parameter("weight").double().split(context.shape[-1], dim=1)):
                direct = float((context[h] * (slopes @ columns)).sum())
                yield f"{block}.head{h}", f"{block}.context[head:{h}]=0", direct
        case op:
            direct = float((step.value.double() * slopes).sum())
            yield (id.removesuffix(".out"), f"{id}=0", direct) if op == "linear" else (id, "", direct)
            return
    if "bias" in step.params:
        yield step.params["bias"], "", float((parameter("bias").double() * slopes).sum())
