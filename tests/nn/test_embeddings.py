"""Token embeddings, scaled by √d_model, and positions: the paper's formula, what sinusoids must satisfy, rotations.

Hashed n-grams: equal ones share a row, wherever they stand; different ones seldom do; the rest has none.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from tests.helpers.for_each import for_each

from glassformer.nn.embeddings import LearnedPositions, Rotation, SinusoidalPositions, TokenEmbedding, sinusoidal
from glassformer.nn.ngram_embeddings import HashedNgramEmbedding


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


ROWS = 1000


def table(longest: int = 4, special: int = 0) -> HashedNgramEmbedding:
    return HashedNgramEmbedding(longest, 6, n_special=special, n_rows=ROWS)


def test_equal_n_grams_have_equal_rows_and_each_length_rows_of_its_own() -> None:
    numbers = table().lookup_ids(torch.tensor([[9, 7, 8, 9, 1, 6, 7, 8, 9]]), 9)
    assert numbers.shape == (1, 9, 3)
    assert numbers[0, 3, :2].tolist() == numbers[0, 8, :2].tolist()  # 8 9 and 7 8 9
    assert numbers[0, 3, 2] != numbers[0, 8, 2]  # 9 7 8 9 and 6 7 8 9
    assert ((numbers - 1).div(ROWS, rounding_mode="floor") == torch.arange(3))[numbers > 0].all()


def test_an_n_gram_that_begins_before_the_text_or_holds_a_special_token_has_no_row() -> None:
    none, two, three = [False] * 3, [True, False, False], [True, True, False]
    there = table().lookup_ids(torch.tensor([[0, 3, 0, 3, 0]]), 5) > 0
    assert there[0].tolist() == [none, two, three, [True] * 3, [True] * 3]
    there = table(special=5).lookup_ids(torch.tensor([[6, 7, 4, 8, 9, 5]]), 6) > 0
    assert there[0].tolist() == [none, two, none, none, two, three]


def test_rows_are_shared_no_more_often_than_by_chance() -> None:
    """All pairs and 3-grams of 12 ids, near each other and far apart, against rows drawn at random."""
    for few in (range(12), range(5, 50_000, 4_500)):
        ids = torch.tensor(list(itertools.product(few, repeat=3)))
        for column, n in ((0, 2), (1, 3)):
            different = len(ids.unique(dim=0)) if n == 3 else len(few) ** 2
            taken = len(table(3).lookup_ids(ids, 3)[:, -1, column].unique())
            expected = ROWS * (1 - (1 - 1 / ROWS) ** different)
            assert taken > 0.95 * expected, (few, n)


def test_rows_begin_at_zero() -> None:
    """What a token gets of its rows is in `tests/explain/test_streams.py`, step by step."""
    ngrams = table()
    assert not ngrams(ngrams.batch_of(torch.tensor([[6, 7, 8, 9], [9, 2, 3, 1]]), 4)).any()


def test_some_are_left_out_in_training_and_the_sum_stays_in_the_mean() -> None:
    torch.manual_seed(0)
    ids, ngrams = torch.randint(50, (40, 100)), HashedNgramEmbedding(3, 6, dropout=0.75, n_rows=ROWS)
    torch.nn.init.ones_(ngrams.weight)
    left = ngrams.batch_of(ids, 100).ngrams > 0
    assert 0.23 < left[(ngrams.eval().batch_of(ids, 100).ngrams > 0)].float().mean() < 0.27
    whole = ngrams(ngrams.batch_of(ids, 100))
    assert whole[:, 2:].eq(2.0).all()
    ngrams.train()
    assert ngrams(ngrams.batch_of(ids, 100))[:, 2:].mean().item() == pytest.approx(2.0, abs=0.1)
