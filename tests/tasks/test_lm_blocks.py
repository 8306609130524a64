"""Nats by block of characters: they add up to the score, and are the same blocks for any tokenizer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.small import config_of, small

from glassformer.config import DecodeConfig, TextConfig
from glassformer.data.splits import Split
from glassformer.tasks import TASKS
from glassformer.tasks.lm import LEAST_CHARS, MOST_BLOCKS, by_block, nats_by_token, token_starts
from glassformer.text.tokenizer import Tokenizer

TEXT = "To be, or not to be: that is the question.\nWhether ’tis nobler — 诗 — in the mind to suffer.\n" * 40


def test_the_nats_of_tokens_are_those_of_the_loss() -> None:
    run = small("lm")
    torch.manual_seed(0)
    model = run.task.build_model()
    nats = nats_by_token(run.task, model, run.context.train)
    mean = run.task.mean_loss(model, run.context.train)
    assert nats.sum() == pytest.approx(mean * (len(nats) - 1), rel=1e-5) and len(nats) == len(
        run.context.train.ids.flat
    )
    assert nats[0] == 0 and (nats[1:] > 0).all()


@for_each("kind", ["char", "word", "byte-bpe", "bpe"])
def test_every_token_starts_where_its_text_does(kind: str) -> None:
    tokenizer = Tokenizer.train([TEXT], TextConfig(tokenizer=kind, vocab_size=400))  # pyright: ignore[reportArgumentType]
    documents = [TEXT, "to be", TEXT[:300]]
    starts = token_starts(tokenizer, documents)
    ids = [tokenizer.encode(document) for document in documents]
    assert len(starts) == sum(map(len, ids)) + 2
    assert (np.diff(starts) >= 0).all() and starts[-1] < sum(map(len, documents))
    tokenizer.eos_id = -1  # as where an imported tokenizer has no end token
    assert len(token_starts(tokenizer, documents)) == sum(map(len, ids))
    if kind == "char":
        assert starts[: len(TEXT)].tolist() == list(range(len(TEXT)))


def test_blocks_hold_all_nats_and_all_characters() -> None:
    rng = np.random.default_rng(0)
    for n_chars in (3, LEAST_CHARS, LEAST_CHARS + 1, 12_345, 400_000):
        nats = rng.uniform(0, 3, n_chars)
        rows = by_block(nats, np.arange(n_chars), n_chars)
        assert sum(row["chars"] for row in rows) == n_chars and len(rows) <= MOST_BLOCKS
        assert sum(row["nats"] for row in rows) == pytest.approx(nats.sum(), abs=1e-4 * len(rows))
        assert [row["block"] for row in rows] == list(range(len(rows)))


def test_two_tokenizers_have_the_same_blocks() -> None:
    found = []
    for kind in ("char", "byte-bpe"):
        config = config_of("lm")
        tokenizer = Tokenizer.train([TEXT], TextConfig(tokenizer=kind, vocab_size=300, max_len=24))  # pyright: ignore[reportArgumentType]
        task = TASKS["lm"](config, tokenizer)
        torch.manual_seed(0)
        scores = task.evaluate(task.build_model(), Split([TEXT, TEXT[:500]]), DecodeConfig(max_new_tokens=4))
        assert sum(row["nats"] for row in scores["predictions"]) == pytest.approx(scores["nats"], rel=1e-5)
        found.append([(row["block"], row["chars"]) for row in scores["predictions"]])
    assert found[0] == found[1]
