"""Positions: the paper's formula, what sinusoids must satisfy, and rotations that see only distances."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.for_each import for_each

from glassformer.nn.embeddings import LearnedPositions, Rotation, SinusoidalPositions, sinusoidal


@for_each("d_model", [1, 2, 7, 16, 512])
def test_the_papers_formula(d_model: int) -> None:
    table = sinusoidal(50, d_model)
    for position in (0, 1, 2, 17, 49):
        for i in range(d_model):
            angle = position / 10000 ** ((i - i % 2) / d_model)
            expected = math.sin(angle) if i % 2 == 0 else math.cos(angle)
            assert table[position, i].item() == pytest.approx(expected, abs=1e-6)


def test_far_positions_keep_their_digits() -> None:
    """In single precision the angle of position 100,000 would be off in the third digit."""
    assert sinusoidal(100_001, 4)[100_000, 0].item() == pytest.approx(math.sin(100_000), abs=1e-6)


def test_modules_look_their_positions_up() -> None:
    fixed, learned = SinusoidalPositions(10, 4), LearnedPositions(10, 4)
    positions = torch.tensor([[3, 4, 9], [0, 1, 2]])
    assert torch.equal(fixed(positions), sinusoidal(10, 4)[positions])
    assert torch.equal(learned(positions), learned.weight[positions])
    assert list(fixed.parameters()) == []
    assert fixed.state_dict() == {}


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 100), st.sampled_from([2, 4, 16]))
def test_rotary_scores_depend_on_the_distance_alone(i: int, j: int, shift: int, d_head: int) -> None:
    q, k = torch.randn(2, 1, 1, 1, d_head)

    def score(at: int, other: int) -> torch.Tensor:
        rotations = [Rotation.at(torch.tensor([[position]]), d_head) for position in (at, other)]
        return (rotations[0].rotate(q) * rotations[1].rotate(k)).sum()

    torch.testing.assert_close(score(i, j), score(i + shift, j + shift), atol=2e-3, rtol=1e-3)


def test_rotary_keeps_lengths_and_leaves_position_zero() -> None:
    x = torch.randn(2, 3, 6, 8)
    turned = Rotation.at(torch.arange(6)[None], 8).rotate(x)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(turned[:, :, 0], x[:, :, 0])
    assert not torch.allclose(turned[:, :, 1], x[:, :, 1])


def test_rotary_turns_pairs_by_the_sinusoids_angles() -> None:
    rotation = Rotation.at(torch.tensor([[3]]), 4)
    x = torch.tensor([1.0, 0.0, 0.0, 0.0]).view(1, 1, 1, 4)
    expected = torch.tensor([math.cos(3), 0.0, math.sin(3), 0.0]).view(1, 1, 1, 4)
    torch.testing.assert_close(rotation.rotate(x), expected)


def test_rotary_needs_pairs() -> None:
    with pytest.raises(ValueError, match="even"):
        Rotation.at(torch.arange(3)[None], 5)


def test_each_row_is_turned_by_its_own_positions() -> None:
    x, positions = torch.randn(2, 3, 4, 8), torch.tensor([[0, 1, 2, 3], [0, 1, 0, 1]])
    turned = Rotation.at(positions, 8).rotate(x)
    for row in range(2):
        alone = Rotation.at(positions[row : row + 1], 8).rotate(x[row : row + 1])
        assert torch.equal(turned[row : row + 1], alone)
    assert torch.equal(turned[1, :, 2], x[1, :, 2])
