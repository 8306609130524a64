"""Pieces with a byte fallback: no character of any script is unknown, and what was written comes back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.text.test_tokenizer import TRAINED, TRAINED_WITH_TAGS

from glassformer.config import TextConfig
from glassformer.text.tokenizer import Tokenizer

PIECES, TAGGED = TRAINED["bpe"], TRAINED_WITH_TAGS["bpe"]
SCRIPTS = (
    "Ünïcode straße, Ελληνικά, русский язык, 日本語と中文, ภาษาไทย, हिन्दी, العربية, שלום, "
    "한국어, e\u0301 👩‍👩‍👧🏽 <0x41>"
)


@given(text=st.text(max_size=60) | st.text(alphabet=SCRIPTS, max_size=60))
@settings(max_examples=400, deadline=None)
def test_pieces_restore_any_unicode_and_know_every_character(text):
    """Of the letters here most were never seen in training: they are spelled in bytes."""
    text = text.replace("▁", "")  # the one character that pieces cannot tell from a space
    for tokenizer in (PIECES, TAGGED):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert set(ids).isdisjoint(range(5))


def test_bytes_spell_what_was_seen_once_and_are_never_found_in_text():
    texts = ["ab ba ab ba", "a b ж ab ж 本"]
    tokenizer = Tokenizer.train(texts, TextConfig(tokenizer="bpe", vocab_size=300))
    assert tokenizer.tokens(tokenizer.encode("ж本")) == ["▁ж", "<0xE6>", "<0x9C>", "<0xAC>"]
    assert tokenizer.decode(tokenizer.encode("<0x41>")) == "<0x41>"
    assert "<0x41>" not in tokenizer.tokens(tokenizer.encode("<0x41> A"))[:-1]
    assert tokenizer.decode(tokenizer.encode("本")[:-1]) == "��"


def test_an_alphabet_larger_than_the_vocabulary_leaves_its_rarest_letters_to_the_bytes():
    texts = ["aaaa bbbb cccc dd ee ff"]
    tokenizer = Tokenizer.train(texts, TextConfig(tokenizer="bpe", vocab_size=5 + 256 + 5))
    assert tokenizer.vocab_size <= 266
    assert [len(tokenizer.encode(letter)) for letter in "abcde"] == [2, 2, 2, 2, 2]
    assert tokenizer.tokens(tokenizer.encode("f"))[1:] == ["<0x66>"]
