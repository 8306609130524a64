"""The backward pass over the recorded steps of a forward pass: reverse-mode differentiation, step by step.

A forward pass is a list of steps, each computed from earlier ones. From the last to the first, the gradient of a step's
value is the sum of what the steps that use it pass back (the chain rule):

    x.grad = Σ over the uses y = f(x, …) of  (∂y/∂x)ᵀ y.grad

The table of operations (`nn/operations.py`) says what an operation passes back to each of its arguments. The result is
recorded as steps again, "encoder.0.self.weights.grad", so that whatever shows a step of the forward pass shows these.

Autograd computes the same gradients and is what training uses; `learning.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from glassformer.explain.capture.sites import SourceLine, expression_line
from glassformer.explain.capture.tape import Axis, Step, step_location
from glassformer.nn.operations import OPERATIONS, named, names_in, row_name, row_of, run

GRADIENT = ".grad"


def is_gradient(id: str) -> bool:
    """Return whether an id is that of a gradient, or of a part of one: "x.grad", "x.grad.q_proj"."""
    return id.endswith(GRADIENT) or f"{GRADIENT}." in id


def backward_pass(
    steps: Mapping[str, Step], parameter: Callable[[str], Tensor], axes: Mapping[str, tuple[str, ...]]
) -> dict[str, Step]:
    """Return the gradients of all steps and parameters of a forward pass, by id: "encoder.0.self.weights.grad".

    Args:
        steps: the steps of the forward pass in order, the last of which is the loss.
        parameter: returns a parameter by name.
        axes: the axes of each parameter by name.
    """
    found: dict[str, Step] = {}
    backwards = [*steps][::-1]
    one = _gradient(steps, axes, backwards[0], op="one", value=torch.ones_like(steps[backwards[0]].value))
    passed: dict[str, list[Step]] = {backwards[0]: [one]}
    """What the uses of a step or parameter have passed back so far."""

    def value_of(id: str) -> Tensor:
        step = steps.get(id) or found.get(id)
        return parameter(id) if step is None else step.value

    for id in (*backwards, *axes):
        if id not in passed:
            continue
        total, *others = parts = passed.pop(id)
        if others:
            # What an addition passes back is its own gradient, which needs no step of its own.
            found |= {part.id: part for part in parts if part.op != "sum"}
            names = tuple(part.inputs[0] if part.op == "sum" else part.id for part in parts)
            value = torch.stack([part.value for part in parts]).sum(dim=0)
            total = _gradient(steps, axes, id, op="sum", inputs=names, value=value)
        found[f"{id}{GRADIENT}"] = replace(total, id=f"{id}{GRADIENT}")
        if id in steps:
            for to, part in _passed_back(steps[id], steps, axes, value_of):
                passed.setdefault(to, []).append(part)
    return found


def _passed_back(
    step: Step, steps: Mapping[str, Step], axes: Mapping[str, tuple[str, ...]], value_of: Callable[[str], Tensor]
) -> Iterator[tuple[str, Step]]:
    """Yield what a step passes back to each of its inputs and parameters, with the id of that."""
    name = row_name(step.op, step.attrs)
    if name not in OPERATIONS:  # an input from outside
        return
    of = named(name, step.inputs, step.params) | {"y": step.id, "g": f"{step.id}{GRADIENT}"}
    for argument, expression in OPERATIONS[name].gradients.items():
        to = of.get(argument)
        if to is None or not value_of(to).is_floating_point():
            continue
        op = f"{name}.{argument}"
        row = row_of(op)
        reads = {one: of[one] for one in row.arguments if one in of}
        used = names_in([None, row.gives, *row.where.values()])
        attrs = {key: value for key, value in step.attrs.items() if key in used}
        values = {one: value_of(id) for one, id in reads.items()}
        yield (
            to,
            _gradient(
                steps,
                axes,
                to,
                id=f"{to}{GRADIENT}.{step.id.removeprefix(to.rpartition('.')[0] + '.')}",
                op="sum" if expression == "g" else op,
                inputs=tuple(id for one, id in reads.items() if one not in step.params),
                params={one: id for one, id in reads.items() if one in step.params},
                attrs=attrs,
                value=run(op, values, attrs, tuple(value_of(to).shape)),
            ),
        )


def _gradient(
    steps: Mapping[str, Step], axes: Mapping[str, tuple[str, ...]], of: str, *, op: str, value: Tensor, **fields: Any
) -> Step:
    """Return a gradient, or a part of one, as a step at the place of what it is the gradient of."""
    step = steps.get(of)
    stack, layer, block = (step.stack, step.layer, step.block) if step else step_location(of)
    return Step(
        **{"id": "", "inputs": (), "params": {}, "attrs": {}, **fields},
        site=op,
        op=op,
        axes=step.axes if step else tuple(map(Axis, axes[of])),
        value=value,
        source=source_of_gradient(op),
        stack=stack,
        layer=layer,
        block=block,
    )


def source_of_gradient(op: str) -> SourceLine | None:
    """Return the line of the table of operations that says what is passed back."""
    name, _, argument = op.partition(".")
    return expression_line(name, OPERATIONS[name].gradients[argument]) if argument else None
