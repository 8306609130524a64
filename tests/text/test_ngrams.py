"""N-grams: what is shared between words, what begins in scripts without spaces, and that nothing stays unknown."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.helpers.for_each import for_each

from glassformer.config import TextConfig
from glassformer.errors import UsageError
from glassformer.text.ngrams import FIRST, MOST, NgramVocabulary, ngrams_of, surface_forms
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


def test_a_tokenizer_with_ngrams_is_the_same_after_it_was_saved(tmp_path: Path) -> None:
    trained = Tokenizer.train(TEXTS, CONFIG)
    trained.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert trained.ngrams and loaded.ngrams
    assert loaded.ngrams.ngrams == trained.ngrams.ngrams
    plain = TextConfig(tokenizer="word", vocab_size=200, lowercase=True)
    assert loaded.sha256 == trained.sha256 != Tokenizer.train(TEXTS, plain).sha256
    text = ["A FUNDED 😀 我喜欢猫"]
    assert list(loaded.encode_with_surfaces(text)) == list(trained.encode_with_surfaces(text))
    [(ids, surfaces)] = loaded.encode_with_surfaces(text)
    assert surfaces == ["<a>", "<funded>", "<😀>", "我喜欢", "喜欢猫", "欢猫", "猫"]
    assert ids == loaded.encode(text[0])
    assert all(loaded.ngrams.lookup(word) for word in surfaces)


def test_other_readers_of_the_format_pass_over_the_ngrams(tmp_path: Path) -> None:
    import tokenizers

    trained = Tokenizer.train(TEXTS, CONFIG)
    trained.save(tmp_path / "tokenizer.json")
    other = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert other.encode("I like it").ids == trained.encode("I like it")


@for_each("kind", ["char", "bpe", "byte-bpe"])
def test_ngrams_are_of_words(kind: str) -> None:
    with pytest.raises(UsageError, match="ngrams are of words"):
        Tokenizer.train(TEXTS, TextConfig(tokenizer=kind, vocab_size=600, ngrams=10))  # pyright: ignore
