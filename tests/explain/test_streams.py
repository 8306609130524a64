"""Tests of streams: tokens, words and their characters, in scripts with and without spaces."""

from __future__ import annotations

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.for_each import for_each

from glassformer.config import TextConfig
from glassformer.explain.streams import Stream, decoded_spans, group_words, make_stream
from glassformer.text.tokenizer import Tokenizer

TEXTS = [
    "Don't stop, über-cool 3rd day!",
    "Der Hund läuft.\n\nEr bellt: wau wau",
    "日本語のテキスト 2019年3月",
    "नमस्ते दुनिया 👩🏽‍🚀🇩🇪 ok",
]
KINDS = ["word", "char", "byte-bpe", "bpe"]


@cache
def tokenizer_of(kind: str, vocab_size: int = 400) -> Tokenizer:
    config = TextConfig(tokenizer=kind, vocab_size=vocab_size, lowercase=False)
    return Tokenizer.train(TEXTS * 3, config, ("[de_DE]",))


def stream_of(tokenizer: Tokenizer, text: str) -> Stream:
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
def test_characters_are_grouped_into_words(text: str, words: list[str]) -> None:
    characters = [(i, i + 1) for i in range(len(text))]
    word_of, words_found = group_words(text, characters, [False] * len(text))
    assert words_found == words
    assert all(text[i].isspace() or text[i] in words_found[word_of[i]] for i in range(len(text)))


def each(text: str) -> list[tuple[int, int] | None]:
    return [(i, i + 1) for i in range(len(text))]


@for_each(
    ("text", "spans", "unknown", "expected"),
    [
        ("ab cd ", each("ab cd "), (), ([0, 0, 1, 1, 1, 1], ["ab", "cd"])),  # spaces belong to the next word
        ("  ", each("  "), (), ([0, 0], ["▁"])),
        ("[de_DE] 3.", [(0, 7), (7, 9), (9, 10)], (), ([0, 1, 2], ["[de_DE]", "3", "."])),  # words of one token
        ("a b", [None, (0, 1), (1, 1), (2, 3), None], (2,), ([-1, 0, 1, 2, -1], ["a", "[UNK]", "b"])),
    ],
)
def test_each_token_has_its_word(text: str, spans: list, unknown: tuple[int, ...], expected: tuple) -> None:
    assert group_words(text, spans, [i in unknown for i in range(len(spans))]) == expected


@for_each("kind", KINDS)
@for_each("text", TEXTS)
def test_a_stream_covers_its_text(kind: str, text: str) -> None:
    tokenizer = tokenizer_of(kind)
    s = stream_of(tokenizer, text)
    assert len(s.ids) == len(s.pieces) == len(s.words) == len(s.spans) == len(s.special) == s.n_given
    assert s.words == sorted(s.words) and set(s.words) == set(range(len(s.word_texts)))
    for word, span in zip(s.words, s.spans, strict=True):
        assert span is not None
        covered = text[span[0] : span[1]].strip().replace("\n", "\\n")
        assert covered in s.word_texts[word] or s.word_texts[word] in covered
    written, spans = decoded_spans(tokenizer, [s.ids[0], 1, *s.ids[1:]])  # an unknown token decodes to nothing
    assert written == tokenizer.decode(s.ids)
    unknown = spans.pop(1)
    assert unknown is not None and unknown[0] == unknown[1]
    if kind != "byte-bpe":  # whose tokens that are parts of a character share it
        joined = "".join(written[a:b] for a, b in filter(None, spans))
        assert joined == (written.replace(" ", "") if kind == "word" else written)


@settings(max_examples=60, deadline=None)
@given(text=st.text(min_size=1, max_size=40))
def test_any_text_has_words(text: str) -> None:
    tokenizer = tokenizer_of("byte-bpe", 300)
    s = stream_of(tokenizer, text)
    assert all(0 <= word < len(s.word_texts) for word in s.words)
    assert all(s.word_texts)
    again, spans = decoded_spans(tokenizer, s.ids)
    assert again == text
    ends = [span[1] for span in spans if span]
    assert ends == sorted(ends) and (not ends or ends[-1] == len(text))


@for_each("kind", KINDS)
def test_padding_and_special_tokens_are_marked(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    ids, spans = tokenizer.encode("ok day"), tokenizer.offsets("ok day")
    s = make_stream(tokenizer, "target", [2, *ids, 3], [None, *spans, None], "ok day", n_given=1)
    n = len(ids)
    assert s.special == [True, *[False] * n, True] and s.padding == [False] * (n + 2)
    assert s.words[0] == s.words[-1] == -1
    assert s.spans[0] is None and s.spans[1] == spans[0]
    empty = stream_of(tokenizer, "")
    assert (empty.ids, empty.padding, empty.words) == ([tokenizer.pad_id], [True], [-1])
