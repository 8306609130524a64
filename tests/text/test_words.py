"""Running text cut into words, and the place of each word's first token."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers.for_each import for_each

from glassformer.config import TextConfig
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.words import first_tokens, read_running, word_spans


@for_each(
    ("text", "words"),
    [
        ("Two men, don't!", ["Two", "men", ",", "don't", "!"]),
        ("state-of-the-art -x x-", ["state-of-the-art", "-", "x", "x", "-"]),
        ("3,000.50 at 12:30, a/b 1/2", ["3,000.50", "at", "12:30", ",", "a", "/", "b", "1/2"]),
        ("(U.S.) wait...", ["(", "U.S", ".", ")", "wait", "..."]),
        ("e\u0301te\u0301 हिन्दी", ["e\u0301te\u0301", "हिन्दी"]),
        (" \n", []),
    ],
)
def test_words_are_cut_by_space_and_punctuation(text: str, words: list[str]) -> None:
    assert read_running(text).words == words


@given(st.text(st.sampled_from("ab1 .,-'’\n\u0301é!")))
def test_words_hold_all_that_is_no_space_in_order(text: str) -> None:
    spans = word_spans(text)
    assert "".join(text[a:b] for a, b in spans) == "".join(text.split())
    assert all(a < b for a, b in spans) and all(b <= c for (_, b), (c, _) in itertools.pairwise(spans))
    read = read_running(text)
    assert [
        read.text[start : start + len(word)] for start, word in zip(read.starts, read.words, strict=True)
    ] == read.words
    of_words = [(start, start + len(word)) for start, word in zip(read.starts, read.words, strict=True)]
    assert read.given(of_words) == spans


@pytest.mark.parametrize("kind", ["word", "char", "byte-bpe"])
def test_the_first_token_of_a_word_covers_its_beginning(kind: str) -> None:
    texts = ["Two men don't walk , they run .", "a é 日本 x.y ..."]
    tokenizer = Tokenizer.train(texts, TextConfig(tokenizer=kind, vocab_size=300))  # pyright: ignore
    for text in texts:
        read = read_running(text)
        [(ids, offsets)] = tokenizer.encode_with_offsets([read.text])
        assert ids == tokenizer.encode(read.text)
        first = first_tokens(read.starts, read.words, offsets)
        assert sorted(first) == first and len({*first}) == len(first) and first[0] == 0
        for start, token in zip(read.starts, first, strict=True):
            assert offsets[token][0] in (start, start - 1) and offsets[token][1] > start


def test_a_word_without_a_token_has_no_place() -> None:
    assert first_tokens([0, 2, 4], ["a", "b", "c"], [(0, 1), (3, 5)]) == [0, -1, 1]
    assert first_tokens([], [], []) == []
