"""Encoded corpora: nothing lost but what is counted, encoded once, the same however a text is cut for encoding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.for_each import for_each

from glassformer.config import Config, TextConfig
from glassformer.data import corpus as corpus_module
from glassformer.data.corpus import EncodedCorpus, corpora_kept
from glassformer.data.splits import Split
from glassformer.errors import DataError
from glassformer.tasks import TASKS
from glassformer.text.long_text import truncate
from glassformer.text.tokenizer import Tokenizer

TEXTS = ["the cat sat on the mat", "a dog", "", "the dog and the cat\nran away, ran!", "über naïve cats"]
CHAR = TextConfig(tokenizer="char", max_len=12)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS, CHAR)


LABELS = ["0", "1", "2"]


def classify_split() -> Split:
    return Split(TEXTS, ["0", "1", "0", "1", "2"], source="reviews")


def encode_split(split, tokenizer, task, text, drop_long=False) -> EncodedCorpus:
    whole = TASKS[task](Config(task=task, text=text), tokenizer, LABELS if task == "classify" else None)
    return whole.encode(split, training=drop_long)


def same(a: EncodedCorpus, b: EncodedCorpus) -> bool:
    """Whether classified texts were encoded alike."""
    columns = ((a.ids.flat, b.ids.flat), (a.ids.offsets, b.ids.offsets), (a.labels, b.labels))
    return all(np.array_equal(x, y) for x, y in columns) and a.stats == b.stats  # pyright: ignore


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=40), min_size=1, max_size=12))
def test_what_is_encoded_decodes_to_the_text(texts):
    config = TextConfig(tokenizer="byte-bpe", vocab_size=300, max_len=10_000)
    tokenizer = Tokenizer.train([*texts, "x"], config)
    split = Split(texts, texts[::-1])
    corpus = encode_split(split, tokenizer, "translate", config)
    assert corpus.target is not None and len(corpus) == len(texts)
    for i, text in enumerate(texts):
        *ids, end = corpus.ids[i].tolist()
        assert end == tokenizer.eos_id
        assert tokenizer.decode(ids) == text
        assert tokenizer.decode(corpus.target[i].tolist()) == texts[-1 - i]


def test_classify_counts_what_it_cuts(tokenizer):
    corpus = encode_split(classify_split(), tokenizer, "classify", CHAR)
    assert corpus.labels is not None and corpus.labels.tolist() == [0, 1, 0, 1, 2]
    assert corpus.lengths.tolist() == [min(12, len(text)) for text in TEXTS]
    assert corpus.stats["n"] == 5
    assert corpus.stats["n_tokens"] == sum(corpus.lengths)
    assert corpus.stats["n_truncated"] == sum(len(text) > 12 for text in TEXTS)
    assert corpus.stats["n_tokens_cut"] == sum(max(0, len(text) - 12) for text in TEXTS)
    assert corpus.ids.flat.dtype == np.uint16
    unknown = encode_split(Split(["cat!", "QQ cat Q"], answer=["0", "0"]), tokenizer, "classify", CHAR)
    assert unknown.stats["n_unknown"] == 3


@pytest.mark.row("2b")
@for_each(
    ("n", "room", "keep", "kept"),
    [
        (10, 5, "head", [0, 1, 2, 3, 4]),
        (10, 5, "tail", [5, 6, 7, 8, 9]),
        (10, 5, "head+tail", [0, 1, 2, 8, 9]),
        (10, 1, "head+tail", [0]),
        (2, 5, "tail", [0, 1]),
    ],
)
def test_truncation_keeps_one_end_or_both(n, room, keep, kept):
    assert truncate(list(range(n)), room, keep) == kept


def test_pairs_too_long_or_empty_are_left_out_of_training_only(tokenizer):
    split = Split(["a cat", "", "a dog", "the cat sat on"], answer=["cat a", "a", "the dog and the cat", "sat"])
    train = encode_split(split, tokenizer, "translate", CHAR, drop_long=True)
    assert (len(train), train.stats["n"], train.stats["n_empty"], train.stats["n_dropped"]) == (1, 4, 1, 2)
    test = encode_split(split, tokenizer, "translate", CHAR)
    assert test.target is not None
    assert (len(test), len(test.target), test.stats["n_truncated"]) == (4, 4, 2)
    assert test.lengths.tolist() == [6, 1, 6, 13]  # with the end token
    assert test.targets.lengths.tolist() == [5, 1, 12, 3]


def test_documents_are_joined_with_an_end_token_between_two(tokenizer):
    corpus = encode_split(Split(["a cat", "a dog"]), tokenizer, "lm", CHAR)
    expected = [*tokenizer.encode("a cat"), tokenizer.eos_id, *tokenizer.encode("a dog")]
    assert corpus.ids.flat.tolist() == expected
    assert (len(corpus), corpus.lengths.tolist()) == (1, [len(expected)])


def test_a_text_with_nothing_to_predict_is_refused(tokenizer):
    with pytest.raises(DataError, match="book: a text of 1 tokens"):
        encode_split(Split(["a"], source="book"), tokenizer, "lm", CHAR)


@pytest.mark.parametrize("kind", ["char", "word", "byte-bpe", "bpe"])
def test_a_long_document_gives_the_same_ids_however_it_is_cut(kind, monkeypatch):
    rng = np.random.default_rng(5)
    words = "the |Cat| sat|\n|\n\n|\t| \n|. |don't|é|42|  |好吃|\u00a0|\u3000|\r\n|😀".split("|")
    document = "".join(rng.choice(np.array(words), 4000))
    config = TextConfig(tokenizer=kind, vocab_size=320)
    tokenizer = Tokenizer.train([document], config)
    monkeypatch.setattr(corpus_module, "CHUNK_CHARS", 100)
    assert kind == "bpe" or len(list(corpus_module.split_document(document, kind))) > 5
    corpus = encode_split(Split([document]), tokenizer, "lm", config)
    assert corpus.ids.flat.tolist() == tokenizer.encode(document)


def test_chunks_of_examples_change_nothing(tokenizer, monkeypatch):
    whole = encode_split(classify_split(), tokenizer, "classify", CHAR)
    monkeypatch.setattr(corpus_module, "CHUNK_TEXTS", 2)
    assert same(encode_split(classify_split(), tokenizer, "classify", CHAR), whole)


def test_what_is_kept_is_not_encoded_again(tokenizer, monkeypatch):
    with corpora_kept():
        first = encode_split(classify_split(), tokenizer, "classify", CHAR)
        with monkeypatch.context() as patch:
            patch.delattr(Tokenizer, "encode_batch")
            assert encode_split(classify_split(), tokenizer, "classify", CHAR) is first
        assert encode_split(classify_split(), tokenizer, "classify", CHAR, drop_long=True) is not first
    again = encode_split(classify_split(), tokenizer, "classify", CHAR)
    assert again is not first
    assert same(again, first)


def test_other_texts_labels_settings_or_tokenizers_are_encoded_apart(tokenizer):
    other_text = Split([*TEXTS[:4], "über naive cats"], answer=["0", "1", "0", "1", "2"])
    moved_border = Split(["the cat sat on the mata", " dog", *TEXTS[2:]], answer=["0", "1", "0", "1", "2"])
    other_label = Split(TEXTS, answer=["0", "1", "0", "1", "1"])
    with corpora_kept():
        found = {
            id(encode_split(split, t, "classify", text))
            for split, t, text in [
                (classify_split(), tokenizer, CHAR),
                (other_text, tokenizer, CHAR),
                (moved_border, tokenizer, CHAR),
                (other_label, tokenizer, CHAR),
                (classify_split(), tokenizer, TextConfig(tokenizer="char", max_len=11)),
                (classify_split(), Tokenizer.train([*TEXTS, "#"], CHAR), CHAR),
            ]
        }
    assert len(found) == 6
