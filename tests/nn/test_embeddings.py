"""Token embeddings: scaled by √d_model, the position added."""

from __future__ import annotations

import pytest
import torch

from glassformer.nn.embeddings import LearnedPositions, SinusoidalPositions, TokenEmbedding, sinusoidal

IDS, POSITIONS = torch.tensor([[3, 1, 3]]), torch.arange(3)[None]


@pytest.mark.row("2.2", "3.1")
def test_scaled_and_added() -> None:
    embedding = TokenEmbedding(10, 8, SinusoidalPositions(5, 8), 0.0)
    expected = embedding.weight[IDS] * 8**0.5 + sinusoidal(5, 8)[:3]
    torch.testing.assert_close(embedding(IDS, POSITIONS), expected)


def test_without_positions_equal_tokens_are_equal() -> None:
    for positions in (None, LearnedPositions(5, 8)):
        out = TokenEmbedding(10, 8, positions, 0.0)(IDS, POSITIONS)
        assert torch.equal(out[0, 0], out[0, 2]) == (positions is None)


def test_a_scaled_embedding_is_as_large_as_the_sinusoids_beside_it() -> None:
    embedding = TokenEmbedding(1000, 256, None, 0.0)
    assert (embedding.weight * 16).std().item() == pytest.approx(1.0, abs=0.01)
    assert sinusoidal(1000, 256).std().item() == pytest.approx(0.7, abs=0.1)


def test_dropout_on_the_sum_while_training() -> None:
    embedding = TokenEmbedding(10, 64, SinusoidalPositions(5, 64), 0.5)
    assert (embedding(IDS, POSITIONS) == 0).float().mean().item() == pytest.approx(0.5, abs=0.2)
    assert torch.equal(embedding.eval()(IDS, POSITIONS), embedding(IDS, POSITIONS))
