"""Long lines: encoded in parts and cut before they are encoded whole, with the ids of cutting afterwards."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.config import TextConfig
from glassformer.text import long_text, tokenizer
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
def test_long_texts_are_encoded_in_windows(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of none of these does a window hold more than a small part."""
    monkeypatch.setattr(tokenizer, "LONG", 2000)
    monkeypatch.setattr(long_text, "MOST_CHARACTERS", 300)
    t = trained(kind, "")
    encoder = LongTextEncoder(t, t._backend, 1000)
    for piece in ("the cat's 12 ", "ACGTTGCA", "a", "好吃的", "--", "x\n", "..!", "aab"):
        text = piece * (20_000 // len(piece))
        if t.kind == "word" and piece.isascii() and not piece.isalpha() and piece[-1] not in " \n":
            continue  # marks alone: no border is known
        windows = list(encoder.parts(text))
        assert max(len(part.ids) for part in windows) <= 4000, piece
        if t.kind != "word" or piece in ("the cat's 12 ", "好吃的", "x\n"):  # one word of letters is one id
            assert len(windows) > 4, (kind, piece)


@pytest.mark.parametrize("kind", ["word", "word lower n-grams"])
@pytest.mark.parametrize("rest", ["", " a cat", ", a", "'s", "好", "\u0301a"])
def test_a_word_longer_than_any_is_read_as_far_as_matters(
    kind: str, rest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = trained(kind, "")
    text = f"the cat {'abcd' * 5000}{rest} and dogs"
    encoder = LongTextEncoder(t, t._backend, 64)
    [(ids, words)] = t.encode_with_surfaces([text])
    parts = list(encoder.parts(text, surfaces=True))
    assert [i for part in parts for i in part.ids] == ids
    found = [w for part in parts for w in part.surfaces]
    if t.ngrams:
        assert [t.ngrams.lookup(w) for w in found] == [t.ngrams.lookup(w) for w in words]


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
