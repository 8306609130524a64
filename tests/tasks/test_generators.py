"""What is recorded of running text and translations: nats by block, tokenizers that lose text, how it was decoded."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.small import config_of, small, small_run

from glassformer.config import TextConfig
from glassformer.data.splits import Split, TextData
from glassformer.runs.records import Evaluation
from glassformer.tasks.lm import LEAST_CHARS, MOST_BLOCKS, by_block, nats_by_token, token_starts
from glassformer.tasks.translate import REPORT
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


LOSSY = "The cat sat.\nA dog ran on and on.  The End " * 40
LOSES = {
    "word": (TextConfig(tokenizer="word", vocab_size=300, max_len=24), "unknown tokens (1 here)"),
    "lower case": (TextConfig(tokenizer="char", lowercase=True, max_len=24), "unknown tokens (0 here)"),
    "unknown": (TextConfig(tokenizer="char", max_len=24), "unknown tokens (2 here)"),
}


@for_each("name", [*LOSES, "nothing"])
def test_bits_per_character_are_headlined_only_where_they_compare(name: str) -> None:
    text, message = LOSES.get(name, (TextConfig(tokenizer="byte-bpe", vocab_size=300, max_len=24), ""))
    config = config_of("lm")
    parts = [Split([LOSSY]), Split([LOSSY[:200]]), Split([LOSSY[:200] + ("ßß" if name == "unknown" else "")])]
    run = small_run(type(config)(task="lm", text=text, model=config.model, train=config.train), TextData(*parts))
    torch.manual_seed(0)
    scores = run.task.evaluate(run.task.build_model().eval(), parts[2], config.decode)
    blocks = scores["predictions"]
    assert scores["bits_per_char"] > 0 and sum(row["chars"] for row in blocks) == len(parts[2].text[0])
    assert sum(row["nats"] for row in blocks) == pytest.approx(scores["nats"], rel=1e-5)
    if message:
        assert scores["headline"] == "nats_per_token"
        assert message in scores["notes"][0] and "do not compare" in scores["notes"][0]
    else:
        assert "headline" not in scores and "notes" not in scores


@for_each(("changes", "sentence"), [({"beam_size": 3}, "Decoding: beam 3."), ({"sample": True}, "Decoding: sampling.")])
def test_an_evaluation_records_its_decoding(changes: dict, sentence: str, caplog: pytest.LogCaptureFixture) -> None:
    run = small("translate", n=12)
    decode = replace(run.config.decode, max_new_tokens=4, **changes)
    caplog.set_level("INFO")
    scores = run.task.evaluate(run.new_state().eval_model, run.context.data.valid, decode)
    assert scores["decode"] == asdict(decode) and "n_truncated" in scores and "truncated" not in scores
    [details] = REPORT.details(Evaluation("translate", "test", scores))
    assert sentence in details and "validations are greedy" in caplog.text


def test_a_pair_of_which_both_sides_are_cut_is_one_that_is_cut() -> None:
    made = small("translate")
    long = " ".join("abcdefgh" * made.config.text.max_len)
    corpus = made.task.encode(Split([long, "a b", "a"], [long, "a b", long], "x"), training=False)
    assert corpus.stats["n_truncated"] == 2 and corpus.stats["n"] == 3
