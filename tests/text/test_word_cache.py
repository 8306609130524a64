"""A word cache gives the ids of its tokenizer, and forgets."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.config import TextConfig
from glassformer.data.shard_documents import WordCache
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
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=400).map("".join)
KINDS = {
    kind: Tokenizer.train(["".join(WORDS) * 3 + "the Cat sat"], TextConfig(tokenizer=kind, vocab_size=290))
    for kind in ("byte-bpe", "word", "char")
}


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXTS | st.text(st.characters(codec="utf-8"), max_size=60), min_size=1, max_size=5))
def test_looking_words_up_changes_no_id(texts):
    for tokenizer in KINDS.values():
        words = WordCache(tokenizer, "<u4")
        for some in (texts, texts[::-1]):
            found = [np.frombuffer(ids, "<u4").tolist() for ids in words.encode(some)]
            assert found == tokenizer.encode_batch(some)


def test_words_are_forgotten_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr("glassformer.data.shard_documents.MOST_WORDS", 50)
    words, tokenizer = WordCache(KINDS["byte-bpe"], "<u2"), KINDS["byte-bpe"]
    for start in range(0, 500, 20):
        text = " ".join(f"w{i}" for i in range(start, start + 20))
        assert np.frombuffer(words.encode([text])[0], "<u2").tolist() == tokenizer.encode(text)
        assert len(words.known) <= 70
