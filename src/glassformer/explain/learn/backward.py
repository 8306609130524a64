"""The steps after the logits: the loss of an answer, and the backward pass over the recorded steps of a forward pass.

The loss is that of training: cross-entropy with the run's label smoothing, the sum over all labels divided by their
number. Its steps are probabilities p, targets q, the cross-entropy of each position, and their mean. Of a number it is
the squared error of the output, in standard deviations of the training numbers; its steps are the error and its square.

A forward pass is a list of steps, each computed from earlier ones. From the last to the first, the gradient of a step's
value is the sum of what the steps that use it pass back (the chain rule):

    x.grad = Σ over the uses y = f(x, …) of  (∂y/∂x)ᵀ y.grad

The table of operations (`nn/operations.py`) says what an operation passes back to each of its arguments. The result is
recorded as steps again, "encoder.0.self.weights.grad", so that whatever shows a step of the forward pass shows these.

Autograd computes the same gradients and is what training uses; `learning.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from glassformer.explain.capture.sites import Axis, Step, expression_line, source_line, step_location
from glassformer.nn.operations import OPERATIONS, named, names_in, row_name, row_of, run

LOSS = "loss"
"""Id of the last step."""
GRADIENT = ".grad"


def is_gradient(id: str) -> bool:
    """Return whether an id is that of a gradient, or of a part of one: "x.grad", "x.grad.q_proj"."""
    return id.endswith(GRADIENT) or f"{GRADIENT}." in id


def backward_pass(
    steps: Mapping[str, Step], parameter: Callable[[str], Tensor], axes: Mapping[str, tuple[Axis, ...]]
) -> dict[str, Step]:
    """Return the gradients of all steps and parameters of a forward pass, by id: "encoder.0.self.weights.grad".

    Args:
        steps: the steps of the forward pass in order, the last of which is the loss.
        parameter: returns a parameter by name.
        axes: the axes of each parameter by name.
    """
    found: dict[str, Step] = {}
    backwards = [*steps][::-1]

    def value_of(id: str) -> Tensor:
        step = steps.get(id) or found.get(id)
        return parameter(id) if step is None else step.value

    def gradient(of: str, op: str, value: Tensor, id: str = "", **fields: Any) -> Step:
        """Return a gradient, or a part of one, as a step at the place of what it is the gradient of."""
        names = steps[of].axes if of in steps else axes[of]
        return _step(id or f"{of}{GRADIENT}", op, names, value, of=steps.get(of) or of, **fields)

    passed = {backwards[0]: [gradient(backwards[0], "one", torch.ones_like(steps[backwards[0]].value))]}
    """What the uses of a step or parameter have passed back so far."""
    for id in (*backwards, *axes):
        if id not in passed:
            continue
        total, *others = parts = passed.pop(id)
        if others:
            # What an addition passes back is its own gradient, which needs no step of its own.
            found |= {part.id: part for part in parts if part.op != "sum"}
            names = tuple(part.inputs[0] if part.op == "sum" else part.id for part in parts)
            total = gradient(id, "sum", torch.stack([part.value for part in parts]).sum(dim=0), inputs=names)
        found[f"{id}{GRADIENT}"] = replace(total, id=f"{id}{GRADIENT}")
        step = steps.get(id)
        if step is None or (name := row_name(step.op, step.attrs)) not in OPERATIONS:  # a parameter, or from outside
            continue
        of = named(name, step.inputs, step.params) | {"y": id, "g": f"{id}{GRADIENT}"}
        for argument, expression in OPERATIONS[name].gradients.items():
            to, op = of.get(argument), f"{name}.{argument}"
            if to is None or not value_of(to).is_floating_point():
                continue
            row = row_of(op)
            reads = {one: of[one] for one in row.arguments if one in of}
            used = names_in([None, row.gives, *row.where.values()])
            attrs = {key: value for key, value in step.attrs.items() if key in used}
            part = gradient(
                to,
                "sum" if expression == "g" else op,
                run(op, {one: value_of(read) for one, read in reads.items()}, attrs, tuple(value_of(to).shape)),
                f"{to}{GRADIENT}.{id.removeprefix(to.rpartition('.')[0] + '.')}",
                inputs=tuple(read for one, read in reads.items() if one not in step.params),
                params={one: read for one, read in reads.items() if one in step.params},
                attrs=attrs,
            )
            passed.setdefault(to, []).append(part)
    return found


def _step(id: str, op: str, axes: tuple[Axis, ...], value: Tensor, of: Step | str = "", **fields: Any) -> Step:
    """Return a step with the line of the table that it follows, at the place `of` a step or a parameter."""
    name, _, argument = op.partition(".")
    expression = OPERATIONS[name].gradients[argument] if argument else OPERATIONS[name].gives
    stack, layer, block = (of.stack, of.layer, of.block) if isinstance(of, Step) else step_location(of)
    made: dict[str, Any] = {"inputs": (), "params": {}, "attrs": {}, "stack": stack, "layer": layer, "block": block}
    made["source"] = expression_line(name, expression) if expression else None
    return Step(**(made | fields), id=id, site=op, op=op, axes=axes, value=value)


def targets(logits: Tensor, labels: Sequence[int | None], smoothing: float) -> Tensor:
    """Return q: 1 - ε for the label and ε/V for every class or token (paper, 5.4); zeros where there is no label."""
    q = torch.zeros_like(logits)
    for row, label in zip(q.view(-1, q.shape[-1]), labels, strict=True):
        if label is not None:
            row += smoothing / q.shape[-1]
            row[label] += 1 - smoothing
    return q


def loss_steps(
    logits: Step, labels: list[int | None], smoothing: float, number: float | None = None
) -> dict[str, Step]:
    """Return the steps from the logits, or the output of a regressor, to the loss, by id."""
    found = {logits.id: logits}

    def add(id: str, op: str, inputs: Sequence[str], axes: tuple[Axis, ...], shape: tuple[int, ...] = (1,)) -> None:
        """Add a step that an operation computes."""
        attrs = {name: value for name, value in constants.items() if name in names_in(row_of(op).gives)}
        value = run(op, named(op, [found[one].value for one in inputs], {}), attrs, shape)
        found[id] = _step(id, op, axes, value, inputs=tuple(inputs), attrs=attrs)

    constants, axes = {"labels": labels, "number": number}, (Axis("loss", 1),)
    if number is not None:
        add("loss.error", "error", [logits.id], axes)
        add(LOSS, "square", ["loss.error"], axes)
        found[LOSS] = replace(found[LOSS], site="mean_loss")
    else:
        add("loss.probabilities", "softmax", [logits.id], logits.axes, logits.shape)
        attrs, source = {"labels": labels, "smoothing": smoothing}, source_line(targets, "row[label] +=")
        q = targets(logits.value, labels, smoothing)
        found["loss.targets"] = _step("loss.targets", "targets", logits.axes, q, attrs=attrs, source=source)
        each = logits.axes[:-1] or axes, logits.shape[:-1] or (1,)
        add("loss.each", "cross_entropy", [logits.id, "loss.targets"], *each)
        add(LOSS, "mean_loss", ["loss.each"], axes)
    del found[logits.id]
    return found
