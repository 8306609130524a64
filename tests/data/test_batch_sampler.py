"""Plans visit every example once within the budget; batches are padded, shifted and counted right."""

from __future__ import annotations

import tracemalloc

import numpy as np
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.helpers.for_each import for_each

from glassformer.config import Config, TextConfig, TrainConfig
from glassformer.data.batches import overlapping_windows, shuffled_windows
from glassformer.data.corpus import EncodedCorpus, RaggedArray
from glassformer.nn.cross_entropy import IGNORE_INDEX
from glassformer.tasks import TASKS, Task
from glassformer.text.tokenizer import Tokenizer

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
    starts = [
        np.sort(np.concatenate(task_of("lm", TrainConfig(), text).epoch_batches(corpus, epoch))[:, 0])[1]
        for epoch in range(6)
    ]
    assert len(set(starts)) > 1


def test_to_moves_every_tensor():
    batch = task_of("translate").make_batch(translate_corpus([3, 5]), np.array([0, 1])).to("meta")
    assert batch.padding_mask is not None and batch.tgt_in is not None
    assert {t.device.type for t in (batch.ids, batch.labels, batch.padding_mask, batch.tgt_in)} == {"meta"}


def test_a_plan_takes_24_bytes_a_window() -> None:
    train, n = TrainConfig(max_tokens=65_536), 10**8
    tracemalloc.start()
    plan = shuffled_windows(n, 1024, train, 3)
    size, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert plan[0].shape == (64, 3) and size < 27 * n / 1024 and peak < 80 * n / 1024
