"""Token embeddings, scaled by √d_model, and positions: the paper's formula, what sinusoids must satisfy, rotations."""

from __future__ import annotations

import math

import pytest
import torch
from tests.helpers.for_each import for_each

from glassformer.nn.embeddings import LearnedPositions, Rotation, SinusoidalPositions, TokenEmbedding, sinusoidal


@pytest.mark.row("2.2", "3.1")
def test_scaled_and_added() -> None:
    embedding, ids = TokenEmbedding(10, 8, SinusoidalPositions(5, 8), 0.0), torch.tensor([[3, 1, 3]])
    expected = embedding.weight[ids] * 8**0.5 + sinusoidal(5, 8)[:3]
    torch.testing.assert_close(embedding(ids, torch.arange(3)[None]), expected)


def test_a_scaled_embedding_is_as_large_as_the_sinusoids_beside_it() -> None:
    embedding = TokenEmbedding(1000, 256, None, 0.0)
    assert (embedding.weight * 16).std().item() == pytest.approx(1.0, abs=0.01)
    assert sinusoidal(1000, 256).std().item() == pytest.approx(0.7, abs=0.1)


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


@pytest.mark.row("2c")
def test_modules_look_their_positions_up() -> None:
    fixed, learned = SinusoidalPositions(10, 4), LearnedPositions(10, 4)
    positions = torch.tensor([[3, 4, 9], [0, 1, 2]])
    assert torch.equal(fixed(positions), sinusoidal(10, 4)[positions])
    assert torch.equal(learned(positions), learned.weight[positions])
    assert list(fixed.parameters()) == [] and fixed.state_dict() == {}


@pytest.mark.row("5.3")
def test_positions_are_bounded_different_and_the_same_steps_at_any_place() -> None:
    table = sinusoidal(500, 32)
    assert table.abs().max() <= 1 and torch.unique(table, dim=0).shape[0] == 500
    steps = (table[1:] - table[:-1]).norm(dim=-1)
    torch.testing.assert_close(steps, steps[:1].expand(499), atol=1e-4, rtol=0)


def test_rotary_turns_pairs_by_the_sinusoids_angles() -> None:
    """As complex numbers: feature i with the one half a head after it, each row by its own positions."""
    x, positions = torch.randn(2, 3, 4, 8), torch.tensor([[0, 1, 2, 3], [0, 1, 0, 1]])
    angles = positions[..., None] / 10_000 ** (torch.arange(4) / 4)
    turned = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones(2, 4, 4), angles)[:, None]
    expected = torch.cat([turned.real, turned.imag], dim=-1)
    torch.testing.assert_close(Rotation.at(positions, 8).rotate(x), expected)


def test_rotary_needs_pairs() -> None:
    with pytest.raises(ValueError, match="even"):
        Rotation.at(torch.arange(3)[None], 5)
