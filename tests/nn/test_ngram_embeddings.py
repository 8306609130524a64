"""Hashed n-grams: equal ones share a row, wherever they stand; different ones seldom do; the rest has none."""

from __future__ import annotations

import itertools

import pytest
import torch

from glassformer.nn.ngram_embeddings import HashedNgramEmbedding

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
