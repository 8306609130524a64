"""The table of operations: each row is what torch computes, and each gradient what autograd computes."""

from __future__ import annotations

import torch
from tests.helpers.operation_cases import cases, with_gradients

from glassformer.nn.operations import OPERATIONS, run


def test_every_row_is_what_torch_and_autograd_compute() -> None:
    for op, arguments, attrs, expected in with_gradients():
        found = run(op, arguments, attrs, tuple(expected.shape))
        torch.testing.assert_close(
            found, expected.to(found.dtype), rtol=1e-6, atol=1e-6, msg=lambda m, op=op: f"{op}: {m}"
        )


def test_every_row_has_a_case() -> None:
    assert {case.op for case in cases()} == {name for name, row in OPERATIONS.items() if row.gives}
