"""The loss as a sum in nats and a count, with smoothing as in the paper."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.for_each import for_each
from torch.nn import functional as F

from glassformer.nn import cross_entropy as kernel
from glassformer.nn.cross_entropy import IGNORE_INDEX, cross_entropy_sum


@for_each("smoothing", [0.0, 0.1, 0.5])
@for_each("dtype", [torch.bfloat16, torch.float32])
@for_each("fused", [True, False])
def test_sum_and_gradient_are_those_of_torch(smoothing: float, dtype: torch.dtype, fused: bool) -> None:
    """Over several pieces of rows; rows without a label have neither, and bf16 is summed in fp32."""
    torch.manual_seed(0)
    logits = (4 * torch.randn(37, 600)).to(dtype).requires_grad_()
    labels = torch.randint(600, (37,))
    labels[:5] = labels[30] = IGNORE_INDEX
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "CHUNK_LOGITS", 600 * 8)
        patch.setattr(kernel, "is_faster", lambda *_: fused)
        loss = cross_entropy_sum(logits, labels, smoothing)
        (loss / 3).backward()
    found, logits.grad = logits.grad, None
    options = {"ignore_index": IGNORE_INDEX, "reduction": "sum", "label_smoothing": smoothing}
    expected = F.cross_entropy(logits.float(), labels, **options)
    (expected / 3).backward()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-4)
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-5  # two roundings to bf16 for one
    torch.testing.assert_close(found, logits.grad, rtol=tolerance, atol=1e-7)
    assert not found[30].any() and found[29].any()


def test_no_labels_cost_nothing_and_are_no_nan() -> None:
    logits = torch.randn(1, 2, 3, requires_grad=True)
    labels = torch.full((1, 2), IGNORE_INDEX)
    loss = cross_entropy_sum(logits, labels, 0.1)
    loss.backward()
    assert loss.item() == 0
    assert (logits.grad == 0).all()


def test_cross_entropy_sum_fused_is_exact_at_probability_zero() -> None:
    """Where the label's probability is 0 in fp32 the loss is still the distance of the logits."""
    logits = torch.zeros(1, 600, dtype=torch.bfloat16).index_fill_(1, torch.tensor([3]), 256.0).requires_grad_()
    loss = kernel.CrossEntropySum.apply(logits, torch.tensor([7]), 0.0, IGNORE_INDEX)
    loss.backward()
    assert loss.item() == pytest.approx(256.0, rel=1e-6)
    assert logits.grad[0, 7] == -1 and logits.grad[0, 3] == 1


def test_cross_entropy_sum_is_fused_where_that_is_faster() -> None:
    wide = torch.zeros(2, 600, dtype=torch.bfloat16, requires_grad=True)
    assert kernel.is_faster(wide)
    assert not kernel.is_faster(wide.detach()) and not kernel.is_faster(wide.float())
    assert "CrossEntropySum" in type(cross_entropy_sum(wide, torch.tensor([0, 1])).grad_fn).__name__
