"""Token embeddings: scaled by √d_model, the position added."""

from __future__ import annotations

import pytest
import torch

from glassformer.nn.embeddings import SinusoidalPositions, TokenEmbedding, sinusoidal

IDS, POSITIONS = torch.tensor([[3, 1, 3]]), torch.arange(3)[None]


@pytest.mark.row("2.2", "3.1")
def test_scaled_and_added() -> None:
    embedding = TokenEmbedding(10, 8, SinusoidalPositions(5, 8), 0.0)
    expected = embedding.weight[IDS] * 8**0.5 + sinusoidal(5, 8)[:3]
    torch.testing.assert_close(embedding(IDS, POSITIONS), expected)


def test_a_scaled_embedding_is_as_large_as_the_sinusoids_beside_it() -> None:
    embedding = TokenEmbedding(1000, 256, None, 0.0)
    assert (embedding.weight * 16).std().item() == pytest.approx(1.0, abs=0.01)
    assert sinusoidal(1000, 256).std().item() == pytest.approx(0.7, abs=0.1)
