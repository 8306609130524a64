"""Streams: tokens, words and their characters, in scripts with and without spaces.

And of models with character n-grams, word bigrams and hashed token n-grams: named, recorded and erased.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.browser.models import subject_of
from tests.helpers.for_each import for_each
from tests.helpers.ngram_runs import ngram_run
from tests.helpers.recompute import check_every_record

from glassformer.config import TextConfig
from glassformer.explain.explanation import Explanation
from glassformer.explain.streams import Stream, decoded_spans, group_words, make_stream
from glassformer.run import Run
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


PAIRS = "card cards card lost xyzzy card"


SPELLED: dict[str, tuple[Callable[..., Run], str, dict[str, Any]]] = {
    "ngrams": (ngram_run, "refunds xyzzy card", {}),
    "bigrams": (lambda **changes: ngram_run(bigrams=40, **changes), PAIRS, {}),
    "hashed": (lambda **changes: subject_of(("lm", {"max_ngram": 4} | changes)), "ab cd e", {"max_new_tokens": 1}),
}


@cache
def run_of(kind: str, **changes: object) -> Run:
    return SPELLED[kind][0](**changes)


def explained(kind: str, **changes: object) -> Explanation:
    _, text, decode = SPELLED[kind]
    return run_of(kind, **changes).explain(text, **decode)


@for_each("kind", ["ngrams", "bigrams"])
@for_each("text", ["refunds refunding card", "lost", "money xyzzy 😀 好吃", "", "Wonderful card " * 30, PAIRS])
def test_a_classifier_answers_as_predict(kind: str, text: str) -> None:
    e, expected = run_of(kind).explain(text), run_of(kind).predict(text)
    for candidate in e.predictions[0].top:
        assert math.exp(candidate.log_prob) == pytest.approx(expected["probabilities"][candidate.piece], abs=1e-6)
    assert all(check.ok for check in e.checks)


def test_the_ngrams_of_each_token_are_named() -> None:
    run = run_of("ngrams")
    stream = run.explain("refunding 😀").streams[0]
    assert stream.ngrams is not None
    word, emoji = stream.ngrams
    assert {"<re", "fund", "ing>"} <= set(word)
    assert emoji == ["0xF0", "0x9F", "0x98", "0x80"]
    assert stream.unknown == [True, True] and stream.word_texts == ["refunding", "😀"]
    assert run.explain("xyzzy card").warnings == [
        "1 of 2 tokens of the text is unknown to the model, but the model reads their n-grams"
    ]
    numbers, e = explained("ngrams")["embedding.ngram_ids"][0], explained("ngrams")
    rows = e.tensor("ngrams.weight", "ngram:" + ".".join(str(n) for n in sorted(numbers[numbers > 0])))
    np.testing.assert_allclose(rows.mean(axis=0), e["embedding.ngrams"][0], atol=1e-6)


def test_the_bigram_of_each_token_is_named() -> None:
    tokenizer, stream = run_of("bigrams").task.tokenizer, explained("bigrams").streams[0]
    listed = {tuple(tokenizer.tokens(pair)) for pair in tokenizer.bigrams}
    expected = ["", *(f"{a} {b}" if (a, b) in listed else "" for a, b in pairwise(PAIRS.split()))]
    assert stream.bigrams == expected and any(expected) and "" in expected[1:]
    assert stream.bigram_ids is not None
    assert [number > 0 for number in stream.bigram_ids] == [bool(name) for name in expected]


def test_the_hashed_ngrams_of_each_token_are_named() -> None:
    stream = run_of("hashed").explain("abc ba", max_new_tokens=1).streams[0]
    assert stream.ngrams is not None and stream.ngram_ids is not None
    pieces = stream.pieces
    assert stream.ngrams[:3] == [[], [pieces[0] + pieces[1]], [pieces[1] + pieces[2], "abc"]]
    assert stream.ngrams[5] == ["".join(pieces[6 - n : 6]) for n in (2, 3, 4)]
    named = [sum(number > 0 for number in row) for row in stream.ngram_ids]
    assert named == [len(names) for names in stream.ngrams]


@for_each("kind", SPELLED)
@for_each("positions, std", [("sinusoidal", 0.05), ("learned", None), ("rotary", 0.05), ("none", None)])
def test_records_equal_their_recomputation(kind: str, positions: str, std: float | None) -> None:
    e = explained(kind, positions=positions, embedding_init_std=std)
    check_every_record(e, e.run.model)
    scaled = ["embedding.scaled"] if std is None else []
    placed = ["embedding.positions", "embedding.sum"] if positions in ("sinusoidal", "learned") else []
    added = ["embedding.ngram_ids", "embedding.ngrams", "embedding.with_ngrams"]
    inputs = {"with_ngrams": ((scaled or ["embedding.rows"])[-1], "embedding.ngrams")}
    if kind == "bigrams":
        added += ["embedding.bigram_ids", "embedding.bigrams", "embedding.with_bigrams"]
        inputs["bigrams"] = ("embedding.bigram_ids",)
        inputs["with_bigrams"] = ("embedding.with_ngrams", "embedding.bigrams")
    steps = ["embedding.ids", "embedding.rows", *scaled, *added, *placed]
    assert list(e.records)[: len(steps)] == steps
    assert {name: e.records[f"embedding.{name}"].inputs for name in inputs} == inputs
    assert {e.records[id].stack for id in steps} == {"text"}
    stack, name = "decoder" if kind == "hashed" else "encoder", "bigram" if kind == "bigrams" else "ngram"
    assert e.records[f"{stack}.0.self.norm"].inputs == ((placed or added)[-1],)
    assert e.records[f"embedding.{name}s"].value.abs().max() > 0.1
    assert [a["name"] for a in e.manifest()["params"][f"{name}s.weight"]["axes"]] == [name, "feature"]


def test_bigrams_are_added_without_ngrams() -> None:
    run = ngram_run(bigrams=40)
    run.model.ngrams = None
    records = run.explain(PAIRS).records
    assert records["embedding.with_bigrams"].inputs == ("embedding.rows", "embedding.bigrams")
    assert "embedding.with_ngrams" not in records
