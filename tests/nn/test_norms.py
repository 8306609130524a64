"""LayerNorm and RMSNorm: of one token, over its features."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.copying import randomise
from tests.helpers.for_each import for_each
from torch import nn

from glassformer.nn.layers import LayerNorm, RMSNorm


@pytest.mark.row("3.3", "3d")
@for_each(("kind", "other"), [(LayerNorm, nn.LayerNorm(6)), (RMSNorm, nn.RMSNorm(6, eps=1e-6))])
def test_a_norm_is_that_of_torch(kind: type[LayerNorm | RMSNorm], other: nn.Module) -> None:
    """Of each token, over its features."""
    theirs, ours = randomise(other), kind(6)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 3, 6) * 5 + 2
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours(x[1:, 1:2]), ours(x)[1:, 1:2])


@for_each("kind", [LayerNorm, RMSNorm])
def test_a_token_of_zeros_is_finite_forward_and_backward(kind: type[LayerNorm | RMSNorm]) -> None:
    x = torch.zeros(1, 1, 6, requires_grad=True)
    kind(6)(x).sum().backward()
    assert x.grad.isfinite().all()


def test_rms_norm_of_bf16_is_summed_in_fp32() -> None:
    x = torch.full((1, 1, 4096), 3.0, dtype=torch.bfloat16)
    out = RMSNorm(4096)(x)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), torch.ones(1, 1, 4096), atol=1e-2, rtol=0)
