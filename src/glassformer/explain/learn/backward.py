"""The backward pass over the recorded steps of a forward pass: reverse-mode differentiation, step by step.

A forward pass is a list of steps, each computed from earlier ones. From the last to the first, the gradient of a step's
value is the sum of what the steps that use it pass back (the chain rule):

    x.grad = Σ over the uses y = f(x, …) of  (∂y/∂x)ᵀ y.grad

The table of operations (`nn/operations.py`) says what an operation passes back to each of its arguments. The result is
recorded as steps again, "encoder.0.self.weights.grad", so that whatever shows a step of the forward pass shows these.

Autograd computes the same gradients and is what training uses; `learning.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Part:
    """What one use of a step or parameter passes back to it, and how it was computed; the attributes are a step's."""

    id: str
    op: str
    inputs: tuple[str, ...]
    params: Mapping[str, str]
    attrs: Mapping[str, Any]
    value: Tensor


class BackwardPass:
    """The gradients of all steps and parameters of a forward pass, by id: "encoder.0.self.weights.grad".

    Args:
        steps: the steps of the forward pass in order, the last of which is the loss.
        parameter: returns a parameter by name.
        axes: the axes of each parameter by name.
    """

    def __init__(
        self, steps: Mapping[str, Step], parameter: Callable[[str], Tensor], axes: Mapping[str, tuple[str, ...]]
    ) -> None:
        self.forward, self.parameter, self.axes = steps, parameter, axes
        self.steps: dict[str, Step] = {}
        self._passed: dict[str, list[Part]] = {}
        """What the uses of a step or parameter have passed back so far."""
        loss, *rest = [*steps.values()][::-1]
        self._passed[loss.id] = [Part("", "one", (), {}, {}, torch.ones_like(loss.value))]
        for step in (loss, *rest):
            if step.id in self._passed:
                self._add_up(step.id)
                self._pass_back(step)
        for name in axes:
            if name in self._passed:
                self._add_up(name)

    def _pass_back(self, step: Step) -> None:
        """Compute what a step passes back to each of its inputs and parameters."""
        name = row_name(step.op, step.attrs)
        if name not in OPERATIONS:  # an input from outside
            return
        of = named(name, step.inputs, step.params) | {"y": step.id, "g": f"{step.id}{GRADIENT}"}
        for argument, expression in OPERATIONS[name].gradients.items():
            to = of.get(argument)
            if to is None or not self._of(to).is_floating_point():
                continue
            op = f"{name}.{argument}"
            row = row_of(op)
            reads = {one: of[one] for one in row.arguments if one in of}
            used = names_in([None, row.gives, *row.where.values()])
            attrs = {key: value for key, value in step.attrs.items() if key in used}
            values = {one: self._of(id) for one, id in reads.items()}
            target = self._of(to)
            self._passed.setdefault(to, []).append(
                Part(
                    id=f"{to}{GRADIENT}.{step.id.removeprefix(to.rpartition('.')[0] + '.')}",
                    op="sum" if expression == "g" else op,
                    inputs=tuple(id for one, id in reads.items() if one not in step.params),
                    params={one: id for one, id in reads.items() if one in step.params},
                    attrs=attrs,
                    value=run(op, values, attrs, tuple(target.shape)),
                )
            )

    def _add_up(self, id: str) -> None:
        """Record the gradient of a step or parameter: what its only use passes back, or the sum over all uses."""
        parts = self._passed.pop(id)
        total = parts[0]
        if len(parts) > 1:
            # What an addition passes back is its own gradient, which needs no step of its own.
            self.steps |= {part.id: self._step(part.id, id, part) for part in parts if part.op != "sum"}
            names = tuple(part.inputs[0] if part.op == "sum" else part.id for part in parts)
            total = Part("", "sum", names, {}, {}, torch.stack([part.value for part in parts]).sum(dim=0))
        self.steps[f"{id}{GRADIENT}"] = self._step(f"{id}{GRADIENT}", id, total)

    def _step(self, id: str, of: str, part: Part) -> Step:
        known = self.forward.get(of)
        axes = tuple(map(Axis, self.axes[of])) if known is None else known.axes
        stack, layer, block = step_location(of) if known is None else (known.stack, known.layer, known.block)
        return Step(
            id=id,
            site=part.op,
            op=part.op,
            inputs=part.inputs,
            params=dict(part.params),
            attrs=dict(part.attrs),
            axes=axes,
            value=part.value,
            source=source_of_gradient(part.op),
            stack=stack,
            layer=layer,
            block=block,
        )

    def of_parameters(self) -> dict[str, Tensor]:
        """Return the gradient of each parameter that has one, by name."""
        named = {name: self.steps.get(f"{name}{GRADIENT}") for name in self.axes}
        return {name: step.value for name, step in named.items() if step is not None}

    def _of(self, id: str) -> Tensor:
        """Return the value of a step or gradient, or a parameter."""
        step = self.forward.get(id) or self.steps.get(id)
        return self.parameter(id) if step is None else step.value


def source_of_gradient(op: str) -> SourceLine | None:
    """Return the line of the table of operations that says what is passed back."""
    name, _, argument = op.partition(".")
    return expression_line(name, OPERATIONS[name].gradients[argument]) if argument else None
