"""LayerNorm and RMSNorm: of one token, over its features."""

from __future__ import annotations

import torch
from tests.helpers.copying import randomise
from tests.helpers.for_each import for_each
from torch import nn

from glassformer.nn.layers import LayerNorm, RMSNorm


def test_layer_norm_parity_with_torch_and_the_formula() -> None:
    theirs = randomise(nn.LayerNorm(6))
    ours = LayerNorm(6)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 3, 6) * 5 + 2
    torch.testing.assert_close(ours(x), theirs(x))
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
    by_hand = (x - mean) / (variance + 1e-5).sqrt() * ours.weight + ours.bias
    torch.testing.assert_close(ours(x), by_hand)


def test_rms_norm_parity_with_torch() -> None:
    theirs = randomise(nn.RMSNorm(6, eps=1e-6))
    ours = RMSNorm(6)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 3, 6) * 5 + 2
    torch.testing.assert_close(ours(x), theirs(x))


@for_each("kind", [LayerNorm, RMSNorm])
def test_a_token_does_not_see_the_others(kind: type[LayerNorm | RMSNorm]) -> None:
    norm = kind(6)
    x = torch.randn(2, 3, 6)
    changed = x.clone()
    changed[0, 1] += 100
    same = norm(x) == norm(changed)
    assert not same[0, 1].all()
    same[0, 1] = True
    assert same.all()


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
