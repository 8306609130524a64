"""Pairs of words: which are listed, that the tokenizer's file keeps them, and which row a token gets."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glassformer.config import ModelConfig, TextConfig
from glassformer.errors import UsageError
from glassformer.models import TextClassifier
from glassformer.nn.ngram_embeddings import BigramEmbedding
from glassformer.text.ngrams import FEWEST, common_bigrams
from glassformer.text.tokenizer import Tokenizer

CONFIG = TextConfig(tokenizer="word", vocab_size=200, lowercase=True, ngrams=50, bigrams=100)
TEXTS = ["not good", "Not good at all", "it is not good", "not bad , not bad", "not bad", "so not bad", "refund funds"]


@given(texts=st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=20), most=st.integers(1, 20))
def test_pairs_are_those_in_the_most_texts(texts: list[list[int]], most: int) -> None:
    """And never with a special token (here those below 3)."""
    found = common_bigrams(texts, vocab_size=10, special=3, max_bigrams=most)
    counts = Counter(pair for text in texts for pair in {p for p in pairwise(text) if min(p) >= 3})  # texts, not times
    listed = sorted(((-n, pair) for pair, n in counts.items() if n >= FEWEST))
    assert found == [pair for _, pair in listed[:most]]


def test_a_tokenizer_keeps_its_pairs_and_cuts_text_as_before(tmp_path: Path) -> None:
    trained = Tokenizer.train(TEXTS, CONFIG)
    assert [tuple(trained.tokens(pair)) for pair in trained.bigrams] == [("not", "bad"), ("not", "good")]
    trained.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    plain = Tokenizer.train(TEXTS, TextConfig(tokenizer="word", vocab_size=200, lowercase=True))
    assert loaded.bigrams == trained.bigrams
    assert loaded.sha256 == trained.sha256 != plain.sha256
    assert loaded.ngrams and trained.ngrams and loaded.ngrams.ngrams == trained.ngrams.ngrams
    assert loaded.vocab_size == plain.vocab_size
    assert loaded.encode_batch(TEXTS) == plain.encode_batch(TEXTS)


def test_pairs_are_of_words() -> None:
    with pytest.raises(UsageError, match=r"text.bigrams are of words"):
        Tokenizer.train(TEXTS, TextConfig(tokenizer="char", vocab_size=100, bigrams=10))


def test_a_token_gets_the_row_of_the_pair_that_it_ends() -> None:
    table = BigramEmbedding([(7, 5), (5, 7), (6, 5)], vocab_size=10, d_model=3, std=1.0)
    ids = torch.tensor([[5, 7, 5, 6, 5], [7, 7, 7, 5, 0], [5, 0, 0, 0, 0]])
    assert table.lookup_ids(ids).tolist() == [[0, 1, 3, 0, 2], [0, 0, 0, 3, 0], [0, 0, 0, 0, 0]]
    vectors = table(ids)
    torch.testing.assert_close(vectors[0, 2], table.weight[3])
    assert not vectors[0, 0].any() and not vectors[2].any()
    vectors.sum().backward()
    assert table.weight.grad is not None and not table.weight.grad[0].any()  # what is not listed stays zero


def test_a_hidden_word_takes_its_pairs_with_it() -> None:
    model = TextClassifier(ModelConfig(n_layers=1, d_model=8, n_heads=2, dropout=0.0), 10, 3, 16, 0, [(5, 6), (6, 7)])
    seen: list[torch.Tensor] = []
    assert model.bigrams is not None
    model.bigrams.register_forward_hook(lambda module, args, output: seen.append(output))
    model(torch.tensor([[5, 6, 7]]))
    model(torch.tensor([[5, 4, 7]]))
    assert seen[0][0, 1:].any(dim=-1).all() and not seen[1].any()
    assert not any("keys" in name for name in model.state_dict())
