"""Where text is cut, its parts have the ids of the whole."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.config import TextConfig
from glassformer.text.backends import split_text
from glassformer.text.tokenizer import Tokenizer

WORDS = [
    "the",
    "Cat",
    " ",
    "  ",
    "\n",
    "\n\n",
    " \n",
    "\t",
    ". ",
    "don't",
    "é",
    "好吃",
    "\u00a0",
    "\u3000",
    "42",
    "😀",
    "\r\n",
]


@pytest.fixture(scope="module")
def tokenizers() -> list[Tokenizer]:
    text = ["".join(WORDS) * 3 + "the Cat sat"]
    return [Tokenizer.train(text, TextConfig(tokenizer=kind, vocab_size=290)) for kind in ("byte-bpe", "word", "char")]


@settings(max_examples=100, deadline=None)
@given(text=st.lists(st.sampled_from(WORDS), min_size=1, max_size=400).map("".join), size=st.integers(1, 90))
def test_text_that_is_cut_up_has_the_ids_of_the_whole(tokenizers, text, size):
    parts = split_text(text, size)
    assert "".join(parts) == text
    for tokenizer in tokenizers:
        assert [i for part in parts for i in tokenizer.encode(part)] == tokenizer.encode(text)
