"""N-grams and pairs of words: which are listed, that the tokenizer's file keeps them, and which rows a token gets."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import tokenizers
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers.for_each import for_each

from glassformer.config import TextConfig
from glassformer.errors import UsageError
from glassformer.nn.ngram_embeddings import BigramEmbedding
from glassformer.text.ngrams import FEWEST, FIRST, MOST, NgramVocabulary, common_bigrams, ngrams_of, surface_forms
from glassformer.text.tokenizer import Tokenizer

CONFIG = TextConfig(tokenizer="word", vocab_size=200, lowercase=True, ngrams=1000)
TEXTS = ["Refund the refunding funds", "a fund is funded", "I like it", "我喜欢这个", "他喜欢那个"]


def test_ngrams_by_hand() -> None:
    assert list(ngrams_of("<it>")) == ["<it", "<it>", "it>"]
    assert list(ngrams_of("<a>")) == ["<a>"]
    assert list(ngrams_of("喜欢这")) == ["喜欢", "喜欢这"]
    assert list(ngrams_of("欢")) == []


def test_a_script_without_spaces_is_cut_into_characters_that_look_ahead() -> None:
    text = "ab 我喜欢, 你x"
    spans = [(0, 2), (3, 4), (4, 5), (5, 6), (6, 7), (8, 9), (9, 10)]
    assert surface_forms(text, spans) == ["<ab>", "我喜欢", "喜欢", "欢", "<,>", "你", "<x>"]


def test_only_what_words_share_is_listed() -> None:
    vocabulary = NgramVocabulary.train(["<refund>", "<fund>", "<fund>", "<once>", "喜欢这", "喜欢那"], 100)
    assert {"fun", "fund", "und>"} <= set(vocabulary.ngrams)
    assert "onc" not in vocabulary.ngrams and "<fu" not in vocabulary.ngrams  # in one word, however often
    assert "喜欢" in vocabulary.ngrams and "喜欢这" not in vocabulary.ngrams
    assert len(NgramVocabulary.train(["<refund>", "<fund>"], 3)) == FIRST + 3


def test_a_word_without_a_listed_ngram_is_spelled_by_its_bytes() -> None:
    vocabulary = NgramVocabulary(["<it"])
    assert vocabulary.lookup("<it>") == [FIRST]
    assert vocabulary.lookup("<é>") == [1 + 0xC3, 1 + 0xA9]
    assert vocabulary.lookup("喜欢这") == [1 + byte for byte in "喜".encode()]
    assert len(vocabulary.lookup("<" + "z" * 500 + ">")) == MOST


WITH_PAIRS = TextConfig(tokenizer="word", vocab_size=200, lowercase=True, ngrams=50, bigrams=100)
PAIRED = ["not good", "Not good at all", "it is not good", "not bad , not bad", "not bad", "so not bad", "refund funds"]


@given(texts=st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=20), most=st.integers(1, 20))
def test_pairs_are_those_in_the_most_texts(texts: list[list[int]], most: int) -> None:
    """And never with a special token (here those below 3)."""
    found = common_bigrams(texts, vocab_size=10, special=3, max_bigrams=most)
    counts = Counter(pair for text in texts for pair in {p for p in pairwise(text) if min(p) >= 3})  # texts, not times
    listed = sorted(((-n, pair) for pair, n in counts.items() if n >= FEWEST))
    assert found == [pair for _, pair in listed[:most]]


def test_a_token_gets_the_row_of_the_pair_that_it_ends() -> None:
    table = BigramEmbedding([(7, 5), (5, 7), (6, 5)], vocab_size=10, d_model=3, std=1.0)
    ids = torch.tensor([[5, 7, 5, 6, 5], [7, 7, 7, 5, 0], [5, 0, 0, 0, 0]])
    assert table.lookup_ids(ids).tolist() == [[0, 1, 3, 0, 2], [0, 0, 0, 3, 0], [0, 0, 0, 0, 0]]
    vectors = table(ids)
    torch.testing.assert_close(vectors[0, 2], table.weight[3])
    assert not vectors[0, 0].any() and not vectors[2].any()
    vectors.sum().backward()
    assert table.weight.grad is not None and not table.weight.grad[0].any()  # what is not listed stays zero
    assert [*table.state_dict()] == ["weight"], "the tokenizer's file has the pairs"


@for_each(("texts", "config"), [(TEXTS, CONFIG), (PAIRED, WITH_PAIRS)])
def test_the_file_of_a_tokenizer_keeps_both_and_other_readers_pass_over_them(texts, config, tmp_path: Path) -> None:
    trained, path = Tokenizer.train(texts, config), tmp_path / "tokenizer.json"
    trained.save(path)
    loaded, plain = Tokenizer.load(path), Tokenizer.train(texts, replace(config, ngrams=0, bigrams=0))
    assert trained.ngrams and loaded.ngrams and loaded.ngrams.ngrams == trained.ngrams.ngrams
    assert loaded.bigrams == trained.bigrams and loaded.vocab_size == plain.vocab_size
    assert loaded.sha256 == trained.sha256 != plain.sha256
    assert loaded.encode_batch(texts) == plain.encode_batch(texts)
    assert tokenizers.Tokenizer.from_file(str(path)).encode(texts[2]).ids == trained.encode(texts[2])
    if config is WITH_PAIRS:
        assert [tuple(trained.tokens(pair)) for pair in loaded.bigrams] == [("not", "bad"), ("not", "good")]
        return
    text = "A FUNDED 😀 我喜欢猫"
    [(ids, surfaces)] = loaded.read([text])
    assert [(ids, surfaces)] == [*trained.read([text])] and ids == loaded.encode(text)
    assert surfaces == ["<a>", "<funded>", "<😀>", "我喜欢", "喜欢猫", "欢猫", "猫"]
    assert all(loaded.ngrams.lookup(word) for word in surfaces)


@for_each("kind", ["char", "bpe", "byte-bpe"])
@for_each("name", ["ngrams", "bigrams"])
def test_both_are_of_words(kind: str, name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} are of words"):
        Tokenizer.train(TEXTS, TextConfig(tokenizer=kind, vocab_size=600, **{name: 10}))  # pyright: ignore
