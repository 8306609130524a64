"""The table of operations: each row is what torch computes, and each gradient what autograd computes.

`web/test/operations.test.ts` holds the walker of the page against the same cases.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.helpers.operation_cases import cases, with_gradients
from torch import Tensor

from glassformer.nn.operations import OPERATIONS, row_of, run

CASES = [*with_gradients()]


@pytest.mark.parametrize(("op", "arguments", "attrs", "expected"), CASES, ids=[op for op, *_ in CASES])
def test_a_row_is_what_torch_and_autograd_compute(
    op: str, arguments: dict[str, Tensor], attrs: dict[str, Any], expected: Tensor
) -> None:
    found = run(op, arguments, attrs, tuple(expected.shape))
    torch.testing.assert_close(found, expected.to(found.dtype), rtol=1e-6, atol=1e-6)


def test_every_row_has_a_case_with_and_without_its_optional_argument() -> None:
    for name, row in OPERATIONS.items():
        given = [case.arguments.keys() for case in cases() if case.op == name]
        assert bool(given) == bool(row.gives), name
        for optional in row_of(name).optional:
            assert {optional in keys for keys in given} == {True, False}, name
