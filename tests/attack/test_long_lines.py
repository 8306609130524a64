"""Long lines: encoded in parts and cut, with the ids of the whole cut afterwards."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.config import TextConfig
from glassformer.text import tokenizer
from glassformer.text.long_text import LongTextEncoder, cut_long, truncate
from glassformer.text.tokenizer import Tokenizer

TRAINED_ON = [
    "The cat's hat isn't the dog's; we'll see, they've 1234 cats  and 56 dogs.\n",
    "aaaa aaaaaa abab ababab bcbcbc xyzxyz naïve İstanbul ÜBER straße",
    "好吃的东西 ภาษาไทย हिन्दी भाषा русский язык 👩‍👩‍👧 e\u0301a\u0300",
    "ACGTACGTTGCAACGGT" * 20,
    "<br /> <br> ''' --- ... ▁▁ [de_DE] 28. April",
] * 3
KINDS = {
    "char": TextConfig(tokenizer="char"),
    "byte-bpe": TextConfig(tokenizer="byte-bpe", vocab_size=420),
    "byte-bpe lower": TextConfig(tokenizer="byte-bpe", vocab_size=420, lowercase=True),
    "bpe": TextConfig(tokenizer="bpe", vocab_size=420),
    "bpe lower": TextConfig(tokenizer="bpe", vocab_size=420, lowercase=True),
    "word": TextConfig(tokenizer="word", vocab_size=60),
    "word lower n-grams": TextConfig(tokenizer="word", vocab_size=60, lowercase=True, ngrams=200, bigrams=20),
}
EXTRA = ["", "[de_DE]"]
FEW = st.text(st.sampled_from("aab bc'’\n \t▁xAC好ำİé\u03011.,-<>br/[]deDE_s"), max_size=400)
WORDS = st.lists(
    st.sampled_from(
        ["[de_DE]", "<br />", "don't", "'s", "  ", "aaaaaaaaaa", "ACGT" * 8, "好吃", "cat", "--", "\n", "7"]
    )
).map("".join)


@cache
def trained(kind: str, extra: str) -> Tokenizer:
    return Tokenizer.train(TRAINED_ON, KINDS[kind], [extra] if extra else [])


@pytest.mark.parametrize("extra", EXTRA, ids=["", "extra"])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(text=FEW | WORDS | st.text(max_size=200), window=st.integers(8, 40))
def test_parts_are_the_whole(kind: str, extra: str, text: str, window: int) -> None:
    t = trained(kind, extra)
    encoder = LongTextEncoder(t, t._backend, window)
    [(ids, words)] = t.encode_with_surfaces([text]) if t.ngrams else [(t.encode(text), [])]
    parts = list(encoder.parts(text, surfaces=bool(t.ngrams)))
    assert [i for part in parts for i in part.ids] == ids
    assert [w for part in parts for w in part.surfaces] == words
    for keep in ("head", "tail", "head+tail"):
        for max_len in (1, 5, 64):
            cut = cut_long(encoder.parts(text, surfaces=bool(t.ngrams)), max_len, keep)
            assert cut[:3] == (truncate(ids, max_len, keep), truncate(words, max_len, keep), len(ids) > max_len)


@pytest.mark.parametrize("kind", KINDS)
def test_long_texts_are_encoded_in_windows(kind: str) -> None:
    """Of none of these does a window hold more than a small part; a text without a border is one window."""
    t = trained(kind, "")
    encoder = LongTextEncoder(t, t._backend, 1000)
    for piece in ("the cat's 12 ", "x\n"):
        assert len(list(encoder.parts(piece * (20_000 // len(piece))))) > 15, piece
    unbroken = len(list(encoder.parts("好吃的" * 7000))), len(list(encoder.parts("ACGTTGCA" * 2500)))
    assert [n > 15 for n in unbroken] == [t.kind in ("word", "char"), t.kind == "char"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_with_long_texts_keeps_its_order(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    t = trained(kind, "")
    texts = ["a cat", "the cat's hat " * 400, "", "ACGT" * 1000, "dogs"]
    before, cut = t.encode_batch(texts), t.encode_cut(texts, 7, "head+tail")
    monkeypatch.setattr(tokenizer, "LONG", 1000)
    fresh = Tokenizer(t._backend)
    assert fresh.encode_batch(texts) == before
    assert [ids for ids, _ in fresh.encode_with_surfaces(texts)] == before
    again = fresh.encode_cut(texts, 7, "head+tail")
    assert [c.ids for c in again] == [c.ids for c in cut] == [truncate(ids, 7, "head+tail") for ids in before]
    assert [c.was_cut for c in again] == [len(ids) > 7 for ids in before]
