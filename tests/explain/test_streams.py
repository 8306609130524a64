"""Tests of streams: tokens, words and their characters, in scripts with and without spaces."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.for_each import for_each

from glassformer.config import TextConfig
from glassformer.explain.streams import decoded_spans, group_words, make_stream
from glassformer.text.tokenizer import Tokenizer

TEXTS = [
    "Don't stop, über-cool 3rd day!",
    "Der Hund läuft.\n\nEr bellt: wau wau",
    "日本語のテキスト 2019年3月",
    "नमस्ते दुनिया 👩🏽‍🚀🇩🇪 ok",
]


@pytest.fixture(scope="module", params=["word", "char", "byte-bpe", "bpe"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.train(
        TEXTS * 3, TextConfig(tokenizer=request.param, vocab_size=400, lowercase=False), ("[de_DE]",)
    )


def stream_of(tokenizer: Tokenizer, text: str):
    return make_stream(tokenizer, "text", tokenizer.encode(text), tokenizer.offsets(text), text)


@for_each(
    ("text", "words"),
    [
        ("Don't stop, ok", ["Don't", "stop", ",", "ok"]),
        ("a  b", ["a", "b"]),
        ("3rd 'day'", ["3rd", "'", "day", "'"]),
        ("日本 3月", ["日", "本", "3", "月"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("👩🏽‍🚀!", ["👩🏽‍🚀", "!"]),
        ("a\n\nb", ["a", "\\n\\n", "b"]),
        ("", []),
    ],
)
def test_group_words_splits_text_into_words(text: str, words: list[str]) -> None:
    characters = [(i, i + 1) for i in range(len(text))]
    word_of, words_found = group_words(text, characters, [False] * len(text))
    assert words_found == words
    assert all(text[i].isspace() or text[i] in words_found[word_of[i]] for i in range(len(text)))


def test_group_words_gives_spaces_to_the_next_word() -> None:
    word_of, _ = group_words("ab cd ", [(i, i + 1) for i in range(6)], [False] * 6)
    assert word_of == [0, 0, 1, 1, 1, 1]
    assert group_words("  ", [(0, 1), (1, 2)], [False, False]) == ([0, 0], ["▁"])


def test_group_words_merges_words_of_one_token() -> None:
    word_of, words_found = group_words("[de_DE] 3.", [(0, 7), (7, 9), (9, 10)], [False] * 3)
    assert (word_of, words_found) == ([0, 1, 2], ["[de_DE]", "3", "."])


def test_group_words_handles_special_and_unknown_tokens() -> None:
    spans = [None, (0, 1), (1, 1), (2, 3), None]
    word_of, words_found = group_words("a b", spans, [False, False, True, False, False])
    assert (word_of, words_found) == ([-1, 0, 1, 2, -1], ["a", "[UNK]", "b"])


@pytest.mark.parametrize("text", TEXTS)
def test_make_stream_gives_every_token_its_word(tokenizer: Tokenizer, text: str) -> None:
    s = stream_of(tokenizer, text)
    assert len(s.ids) == len(s.pieces) == len(s.words) == len(s.spans) == len(s.special) == s.n_given
    assert s.words == sorted(s.words) and set(s.words) == set(range(len(s.word_texts)))
    for word, span in zip(s.words, s.spans, strict=True):
        assert span is not None
        covered = text[span[0] : span[1]].strip().replace("\n", "\\n")
        assert covered in s.word_texts[word] or s.word_texts[word] in covered


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=40))
def test_group_words_accepts_any_text(text: str) -> None:
    tokenizer = _bytes()
    s = stream_of(tokenizer, text)
    assert all(0 <= word < len(s.word_texts) for word in s.words)
    assert all(s.word_texts)
    again, spans = decoded_spans(tokenizer, s.ids)
    assert again == text
    ends = [span[1] for span in spans if span]
    assert ends == sorted(ends) and (not ends or ends[-1] == len(text))


def _bytes(known: list[Tokenizer] = []) -> Tokenizer:  # noqa: B006  (trained once for all examples)
    if not known:
        known.append(Tokenizer.train(TEXTS, TextConfig(tokenizer="byte-bpe", vocab_size=300)))
    return known[0]


@pytest.mark.parametrize("text", TEXTS)
def test_decoded_spans_cover_the_text(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    written, spans = decoded_spans(tokenizer, [ids[0], 1, *ids[1:]])  # an unknown token decodes to nothing
    assert written == tokenizer.decode(ids)
    assert spans[1] is not None and spans[1][0] == spans[1][1]
    del spans[1]
    if tokenizer.kind == "byte-bpe":
        return  # tokens that are parts of a character share it
    joined = "".join(written[a:b] for a, b in filter(None, spans))
    assert joined == (written.replace(" ", "") if tokenizer.kind == "word" else written)


def test_make_stream_marks_padding_and_special_tokens(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("ok day")
    spans = tokenizer.offsets("ok day")
    s = make_stream(tokenizer, "target", [2, *ids, 3], [None, *spans, None], "ok day", n_given=1, n_pad=2)
    n = len(ids)
    assert s.special == [True, *[False] * n, True, True, True]
    assert s.padding == [False] * (n + 2) + [True] * 2
    assert s.words[0] == -1 and s.words[-3:] == [-1] * 3
    assert s.spans[0] is None and s.spans[1] == spans[0]
