"""Every step of a trace computed once more in float64 by the table of operations, from its inputs and parameters."""

from __future__ import annotations

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


def check_every_record(e: Explanation, model: nn.Module) -> None:
    """Assert that every record of an explanation has a source line and equals its recomputation, and all checks."""
    assert e.trace is not None and all(check.ok for check in e.checks)
    for record in e.records.values():
        again = recompute(e.trace, model, record)
        assert record.source is not None, record.id
        if again is not None:
            torch.testing.assert_close(record.value.double(), again, atol=1e-5, rtol=1e-5)
