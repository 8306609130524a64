"""Every step of a trace computed once more in float64 by the table of operations, from its inputs and parameters."""

from __future__ import annotations

from collections.abc import Container

import torch
from torch import Tensor, nn

from glassformer.explain.capture.sites import Step
from glassformer.explain.explanation import Explanation
from glassformer.explain.trace import Trace
from glassformer.nn.operations import OPERATIONS, named, row_name, run


def recompute(t: Trace, model: nn.Module, record: Step) -> Tensor | None:
    """Return the value of a record by the row of its operation; None for ids, masks and inputs."""
    op = row_name(record.op, record.attrs)
    if op == "input" or not OPERATIONS[op].gives:
        return None
    known = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    inputs, params = [t[name].value for name in record.inputs], {r: known[n].detach() for r, n in record.params.items()}
    values = {name: x.double() if x.is_floating_point() else x for name, x in named(op, inputs, params).items()}
    return run(op, values, record.attrs, record.shape).double()


def check_every_record(of: Explanation | Trace, model: nn.Module, edited: Container[str] = ()) -> None:
    """Assert that every record has inputs that came before, the value that its operation makes, and a source line.

    The layers of a model of one's own, of which there is a trace alone, need none.
    """
    t = of if isinstance(of, Trace) else of.trace
    seen = set[str]()
    for record in t.values():
        assert (of is t or record.source is not None) and seen.issuperset(record.inputs), record
        seen.add(record.id)
        assert record.op != "input", record
        assert len(record.axes) == record.value.dim(), record
        assert not record.value.requires_grad
        made = None if record.id in edited else recompute(t, model, record)
        if made is not None:
            value, made = record.value.double(), made.expand_as(record.value)
            torch.testing.assert_close(value, made, atol=1e-5, rtol=1e-5, msg=lambda text, r=record: f"{r}: {text}")
