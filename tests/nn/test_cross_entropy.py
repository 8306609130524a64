"""The loss as a sum in nats and a count, with smoothing as in the paper."""

from __future__ import annotations

import math

import pytest
import torch

from glassformer.nn.cross_entropy import IGNORE_INDEX, cross_entropy_sum


def test_a_uniform_guess_costs_log_v_a_position() -> None:
    loss = cross_entropy_sum(torch.zeros(2, 3, 7), torch.zeros(2, 3, dtype=torch.long))
    assert loss.item() == pytest.approx(6 * math.log(7), rel=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_by_hand(smoothing: float) -> None:
    logits, labels = torch.randn(2, 3, 5), torch.randint(5, (2, 3))
    labels[0, 1] = labels[1, 2] = IGNORE_INDEX
    log_p = logits.log_softmax(-1)
    expected = 0.0
    for b, t in ((0, 0), (0, 2), (1, 0), (1, 1)):
        q = torch.full((5,), smoothing / 5)
        q[labels[b, t]] += 1 - smoothing
        expected -= (q * log_p[b, t]).sum().item()
    assert cross_entropy_sum(logits, labels, smoothing).item() == pytest.approx(expected, rel=1e-5)
    assert int((labels != IGNORE_INDEX).sum()) == 4


def test_parts_add_up_to_the_whole() -> None:
    """Why it is a sum: a batch cut in two, of unequal lengths, has the same loss as the whole."""
    logits, labels = torch.randn(5, 4, 6), torch.randint(6, (5, 4))
    labels[0, 1:] = IGNORE_INDEX
    parts = cross_entropy_sum(logits[:2], labels[:2]) + cross_entropy_sum(logits[2:], labels[2:])
    torch.testing.assert_close(parts, cross_entropy_sum(logits, labels))


def test_no_labels_cost_nothing_and_are_no_nan() -> None:
    logits = torch.randn(1, 2, 3, requires_grad=True)
    labels = torch.full((1, 2), IGNORE_INDEX)
    loss = cross_entropy_sum(logits, labels, 0.1)
    loss.backward()
    assert loss.item() == 0
    assert (logits.grad == 0).all()


def test_bf16_logits_are_summed_in_fp32() -> None:
    assert (
        cross_entropy_sum(torch.zeros(1, 4, dtype=torch.bfloat16), torch.tensor([1])).dtype == torch.float32
    )
