"""From a split to batches: nothing lost but what is counted, groups never parted, every example once in a plan."""

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.helpers.for_each import for_each

from glassformer.config import Config, TextConfig, TrainConfig
from glassformer.data import corpus as corpus_module
from glassformer.data.batches import overlapping_windows, shuffled_windows
from glassformer.data.corpus import EncodedCorpus, RaggedArray, corpora_kept
from glassformer.data.splits import Split, TextData, group_split, limited
from glassformer.errors import DataError
from glassformer.nn.cross_entropy import IGNORE_INDEX
from glassformer.tasks import TASKS, Task
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


# Plans visit every example once within the budget; batches are padded, shifted and counted right


TOKENIZER = Tokenizer.train(["a"], TextConfig(tokenizer="char"))  # for its special tokens
LENGTHS = st.lists(st.integers(0, 30), min_size=1, max_size=80)


def task_of(task: str, train: TrainConfig = TrainConfig(), text: TextConfig = TextConfig()) -> Task:  # noqa: B008
    return TASKS[task](Config(task=task, train=train, text=text), TOKENIZER, ["a", "b"])


def width(batch):
    """Tokens of its longest text, of source or target."""
    return max([batch.ids.shape[1]] + ([] if batch.tgt_in is None else [batch.tgt_in.shape[1]]))


def ragged(lengths: list[int], rng: np.random.Generator) -> RaggedArray:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return RaggedArray(rng.integers(5, 500, offsets[-1]).astype(np.uint16), offsets)


def classify_corpus(lengths: list[int]) -> EncodedCorpus:
    rng = np.random.default_rng(0)
    return EncodedCorpus(ragged(lengths, rng), labels=np.arange(len(lengths), dtype=np.int32))


def translate_corpus(lengths: list[int]) -> EncodedCorpus:
    rng = np.random.default_rng(0)
    targets = rng.permutation([*lengths[1:], 0]).tolist()
    return EncodedCorpus(ragged([n + 1 for n in lengths], rng), target=ragged(targets, rng))


def lm_corpus(n: int) -> EncodedCorpus:
    return EncodedCorpus(RaggedArray((np.arange(n) + 5).astype(np.uint16), np.array([0, n], np.int64)))


@settings(deadline=None)
@given(LENGTHS, st.sampled_from(["classify", "translate"]), st.integers(1, 200), st.integers(0, 5))
def test_every_example_is_in_exactly_one_batch_of_an_epoch_and_within_the_budget(lengths, task, max_tokens, epoch):
    corpus = classify_corpus(lengths) if task == "classify" else translate_corpus(lengths)
    plan = task_of(task, TrainConfig(max_tokens=max_tokens), TextConfig()).epoch_batches(corpus, epoch)
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(lengths)))
    for index in plan:
        batch = task_of(task).make_batch(corpus, index)
        assert len(index) == 1 or len(index) * width(batch) <= max_tokens


@settings(deadline=None)
@example([1, 0], "classify", 1)  # a text of nothing is as wide as one of a token
@given(LENGTHS, st.sampled_from(["classify", "translate"]), st.integers(1, 200))
def test_evaluation_visits_every_example_once_longest_first(lengths, task, max_tokens):
    corpus = classify_corpus(lengths) if task == "classify" else translate_corpus(lengths)
    plan = task_of(task, text=TextConfig()).eval_batches(corpus, max_tokens)
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(lengths)))
    longest = [width(task_of(task).make_batch(corpus, index)) for index in plan]
    assert longest == sorted(longest, reverse=True)


@for_each("task", ["classify", "translate", "lm"])
def test_the_order_is_a_pure_function_of_seed_and_epoch(task):
    lengths = np.random.default_rng(3).integers(0, 40, 500).tolist()
    corpus = {"classify": classify_corpus(lengths), "translate": translate_corpus(lengths), "lm": lm_corpus(5000)}[task]

    def plan(seed: int, epoch: int) -> list[list]:
        train = TrainConfig(max_tokens=128, seed=seed)
        return [i.tolist() for i in task_of(task, train, TextConfig(max_len=16)).epoch_batches(corpus, epoch)]

    later = plan(1, 7)
    assert plan(1, 7) == later
    assert plan(1, 8) != later
    assert plan(2, 7) != later


def test_batches_pad_little_count_what_they_are_to_count_and_change_company():
    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.lognormal(5.2, 0.6, 25_000), 512).astype(int).tolist()
    corpus = classify_corpus(lengths)
    plan = task_of("classify", TrainConfig(max_tokens=8192), TextConfig()).epoch_batches(corpus, 0)
    slots = sum(int(corpus.lengths[i].max()) * len(i) for i in plan)
    assert 1 - sum(lengths) / slots < 0.03
    few = classify_corpus(rng.integers(1, 40, 50).tolist())
    plan = task_of("classify", TrainConfig(batch_size=16, max_tokens=1), TextConfig()).epoch_batches(few, 0)
    assert sorted(len(index) for index in plan) == [2, 16, 16, 16], "it counts examples instead of tokens"
    first, second = (
        task_of("classify", TrainConfig(max_tokens=64), TextConfig()).epoch_batches(classify_corpus([8] * 64), epoch)
        for epoch in (0, 1)
    )
    assert {frozenset(i.tolist()) for i in first} != {frozenset(i.tolist()) for i in second}


def test_classify_batch_pads_on_the_right_and_counts():
    corpus = classify_corpus([3, 0, 5])
    batch = task_of("classify").make_batch(corpus, np.array([0, 1, 2]))
    assert batch.ids.shape == (3, 5) and batch.ids.dtype == torch.int64
    assert batch.padding_mask is not None
    assert batch.padding_mask.sum(dim=1).tolist() == [3, 0, 5]
    assert batch.ids[0].tolist() == [*corpus.ids[0].tolist(), 0, 0]
    assert batch.labels.tolist() == [0, 1, 2]
    assert (len(batch.ids), batch.n_tokens, batch.n_slots, batch.n_labels) == (3, 8, 15, 3)
    assert task_of("classify").make_batch(classify_corpus([4, 4]), np.array([0, 1])).padding_mask is None
    empty = task_of("classify").make_batch(corpus, np.array([1]))
    assert empty.ids.tolist() == [[0]] and empty.padding_mask is not None and not empty.padding_mask.any()


@settings(deadline=None)
@given(LENGTHS)
def test_translate_labels_are_the_decoder_input_one_further_on(lengths):
    corpus = translate_corpus(lengths)
    assert corpus.target is not None
    index = np.arange(len(lengths))
    batch = task_of("translate").make_batch(corpus, index)
    assert batch.tgt_in is not None
    for i in index:
        target = corpus.target[i].tolist()
        n = len(target) + 1
        assert batch.tgt_in[i, :n].tolist() == [2, *target]
        assert batch.labels[i, :n].tolist() == [*target, 3]
        assert (batch.tgt_in[i, n:] == 0).all() and (batch.labels[i, n:] == IGNORE_INDEX).all()
    assert batch.n_labels == int((batch.labels != IGNORE_INDEX).sum()) == sum(corpus.targets.lengths) + len(index)
    assert batch.n_tokens == sum(corpus.lengths) + batch.n_labels
    assert batch.n_slots == batch.ids.numel() + batch.tgt_in.numel()


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 300), st.integers(1, 40), st.integers(1, 200), st.integers(0, 3), st.booleans())
def test_lm_windows_predict_every_token_but_the_first_exactly_once(n, max_len, max_tokens, epoch, training):
    corpus, text = lm_corpus(n), TextConfig(max_len=max_len)
    if training:
        plan = task_of("lm", TrainConfig(max_tokens=max_tokens), text).epoch_batches(corpus, epoch)
    else:
        plan = overlapping_windows(n, max_len, max_tokens)
    predicted = []
    for index in plan:
        batch = task_of("lm").make_batch(corpus, index)
        assert batch.ids.shape == batch.labels.shape and batch.ids.shape[1] <= max_len
        assert len(index) == 1 or batch.ids.numel() <= max_tokens
        scored = batch.labels != IGNORE_INDEX
        assert (batch.labels[scored] == batch.ids[scored] + 1).all()  # the ids count upwards
        assert batch.n_labels == int(scored.sum())
        predicted += batch.labels[scored].tolist()
    assert sorted(predicted) == (np.arange(1, n) + 5).tolist()


def test_lm_evaluation_gives_context_and_training_windows_move():
    corpus, text = lm_corpus(1000), TextConfig(max_len=32)
    for start, _, first in np.concatenate(task_of("lm", text=text).eval_batches(corpus, 320))[1:]:
        assert first - start >= 16
    plans = (task_of("lm", text=text).epoch_batches(corpus, epoch) for epoch in range(6))
    assert len({np.sort(np.concatenate(plan)[:, 0])[1] for plan in plans}) > 1


def test_to_moves_every_tensor():
    batch = task_of("translate").make_batch(translate_corpus([3, 5]), np.array([0, 1])).to("meta")
    assert batch.padding_mask is not None and batch.tgt_in is not None
    assert {t.device.type for t in (batch.ids, batch.labels, batch.padding_mask, batch.tgt_in)} == {"meta"}


def test_a_plan_takes_24_bytes_a_window():
    train, n = TrainConfig(max_tokens=65_536), 10**8
    tracemalloc.start()
    plan = shuffled_windows(n, 1024, train, 3)
    size, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert plan[0].shape == (64, 3) and size < 27 * n / 1024 and peak < 80 * n / 1024


# Splits are pure functions of their arguments, complete, and never part a group


@for_each(("n", "fraction", "n_valid"), [(10, 0.1, 1), (1000, 0.1, 100), (3, 0.001, 1)])
def test_a_split_is_complete_disjoint_and_of_the_right_size(n, fraction, n_valid):
    train, valid = group_split(range(n), None, fraction, seed=3)
    assert len(valid) == n_valid
    assert sorted([*train, *valid]) == list(range(n))
    assert np.all(np.diff(train) > 0)


def test_validation_is_never_empty_with_few_large_groups():
    _, valid = group_split(["a"] * 10 + ["b"] * 5, None, 0.01, seed=0)
    assert list(valid) == list(range(10, 15))


def test_limit_draws_training_examples_by_seed_and_says_so():
    """It has one meaning for every data set: the first ones would be of one label where files are sorted."""
    texts = [str(i) for i in range(100)]
    data = TextData(train=Split(texts, texts), valid=Split(["v"], ["v"]))
    assert limited(data, None, 0) is data
    assert limited(data, 100, 0) is data
    cut = limited(data, 20, 0)
    assert len(cut.train) == 20 and cut.train.text == cut.train.answer == sorted(cut.train.text, key=int)
    assert int(cut.train.text[-1]) > 60
    assert limited(data, 20, 0) == cut != limited(data, 20, 1)
    assert "20 of 100 training examples are used, drawn by seed" in cut.findings[0].matter


def test_a_stratified_split_keeps_every_label_in_training_and_gives_each_its_share():
    labels = [*(["a"] * 600), *(["b"] * 300), *(["c"] * 95), *(["d"] * 4), "e"]
    texts = [f"text {i}" if i % 10 else f"{label} {i // 100}" for i, label in enumerate(labels)]
    train, valid = group_split(texts, labels, 0.1, seed=1)
    assert sorted([*train, *valid]) == list(range(1000))
    assert not {texts[i] for i in train} & {texts[i] for i in valid}, "equal texts stay together"
    assert {labels[i] for i in train} == set("abcde")
    counts = {label: sum(labels[i] == label for i in valid) for label in "abcde"}
    assert counts == {"a": 60, "b": 30, "c": 10, "d": 0, "e": 0}
    again = group_split(texts, labels, 0.1, seed=1)
    assert np.array_equal(valid, again[1])
    assert not np.array_equal(valid, group_split(texts, labels, 0.1, seed=2)[1])


def test_small_labels_are_validated_in_turn_of_what_they_are_owed():
    """Ten labels of six: six validation examples for ten labels, none with two."""
    labels = [f"{i % 10}" for i in range(60)]
    _, valid = group_split(range(60), labels, 0.1, seed=0)
    assert len(valid) == 6 and len({labels[i] for i in valid}) == 6


def test_a_text_that_has_every_label_is_set_aside_where_others_have_them_too():
    train, valid = group_split("aabbcc", "XYYZZX", 0.3, seed=0)
    assert len(valid) == 2 and {"XYYZZX"[i] for i in train} == {*"XYZ"}


def test_the_last_example_of_a_label_is_given_back_to_training():
    """Equal texts labelled in two ways: the rarer label has no other example."""
    texts, labels = ["same", "same", *map(str, range(8))], ["a", "rare", *"aaaaaaaa"]
    for seed in range(20):
        train, _ = group_split(texts, labels, 0.4, seed=seed)
        assert "rare" in {labels[i] for i in train}


@for_each(("texts", "labels"), [("aabbb", "XYXXX"), ("aabbbcc", "XYXXXXZ"), ("bbbaa", "XXXXY"), ("aabbc", "XYXYX")])
@for_each("seed", range(3))
def test_conflicting_labels_of_equal_texts_leave_something_to_validate_on(texts, labels, seed):
    train, valid = group_split(texts, labels, 0.5, seed)
    assert len(valid) and {labels[i] for i in train} == set(labels)
    assert not {texts[i] for i in train} & {texts[i] for i in valid}


@for_each(("texts", "labels"), [("aabb", "XYXZ"), ("xyz", "abc")])
def test_texts_that_each_hold_the_last_example_of_a_label_cannot_be_set_aside(texts, labels):
    with pytest.raises(DataError, match="each text holds the last example of a label"):
        group_split(texts, labels, 0.5, 0)


def test_a_limit_leaves_an_example_of_each_label_where_there_is_room():
    """Of two classes of 200 texts and six of ten, a plain sample of 60 has not all."""
    answers = [*["a", "b"] * 200, *[f"rare{i % 6}\nb" for i in range(60)]]
    data = TextData(Split([f"text {i}" for i in range(460)], answers), Split(["x"], ["a"]))
    for seed in range(5):
        few = limited(data, 60, seed).train
        found = {part for answer in few.answers for part in answer.split("\n")}
        assert found == {"a", "b", *(f"rare{i}" for i in range(6))}
        assert len(few) == 60 and len(limited(data, 4, seed).train) == 4


def test_columns_stay_together_and_are_equally_long():
    taken = Split(["a", "b", "c"], ["A", "B", "C"], source="x").take([2, 0])
    assert (taken.text, taken.answer, taken.source) == (["c", "a"], ["C", "A"], "x")
    with pytest.raises(DataError, match=r"pairs\.tsv: 2 texts, but 1 answers"):
        Split(["a", "b"], ["c"], source="pairs.tsv")
