"""BPE-dropout: the same text in other pieces, as often as the paper says, and the same again for the same epoch."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from tests.small import config_of, data_of, small_run

from glassformer.config import TextConfig
from glassformer.data.bpe_dropout import N_DRAWN, VariedColumn, segment, with_bpe_dropout
from glassformer.data.corpus import EncodedCorpus
from glassformer.data.ragged import Ragged
from glassformer.errors import UsageError
from glassformer.text.tokenizer import Tokenizer

TEXTS = [
    "Two young, White males are outside near many bushes.",
    "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
    "",
    "two  spaces, 34 and 345 numbers!! 日本 日本 😀",
    "Männer und männliche Mannschaften (junge, jüngere) nähern sich.",
] * 4
TOKENIZER = Tokenizer.train(TEXTS, TextConfig(tokenizer="bpe", vocab_size=500))


def column(texts: list[str], end: bool = False) -> Ragged:
    return Ragged.of([*ids, TOKENIZER.eos_id] if end else ids for ids in TOKENIZER.encode_batch(texts))


def rows(ragged: Ragged) -> list[list[int]]:
    return [ragged[i].tolist() for i in range(len(ragged))]


def test_without_dropout_the_rules_give_the_usual_pieces() -> None:
    """So letters, rules and words are found rightly, the end token and empty texts included."""
    usual = column(TEXTS, end=True)
    drawn = VariedColumn(usual, TOKENIZER, 0.0, seed=1).drawn(np.random.default_rng(0), 999)
    assert rows(drawn) == rows(usual)


def test_every_variant_is_the_same_text() -> None:
    usual = column(TEXTS)
    varied = VariedColumn(usual, TOKENIZER, 0.3, seed=1)
    drawn = varied.drawn(np.random.default_rng(0), 999)
    assert rows(drawn) != rows(usual)
    assert [TOKENIZER.decode(ids) for ids in rows(drawn)] == [TOKENIZER.decode(ids) for ids in rows(usual)]
    assert len(drawn.flat) > len(usual.flat)


def test_an_example_that_would_become_too_long_stays_as_it_is() -> None:
    usual = column(TEXTS)
    varied = VariedColumn(usual, TOKENIZER, 0.2, seed=1)
    most = int(np.median(varied.drawn(np.random.default_rng(0), 999).lengths))
    drawn = varied.drawn(np.random.default_rng(0), most)
    assert drawn.lengths.max() <= most
    kept = [a == b for a, b in zip(rows(drawn), rows(usual), strict=True)]
    assert 4 < sum(kept) < len(kept)


def test_segmentations_are_as_frequent_as_the_paper_says() -> None:
    """Letters a b c d, rules ab, then cd, then abcd: by hand, each way that can happen."""
    rules, p = {(1, 2): (0, 5), (3, 4): (1, 6), (5, 6): (2, 7)}, 0.3
    q = 1 - p
    both = q * q + p * q * q  # ab first (q) and then cd (q), or ab passed over, cd joined, then ab
    expected = {
        (7,): both * q, (5, 6): both * p, (5, 3, 4): q * p, (1, 2, 6): p * q * p, (1, 2, 3, 4): p * p,
    }  # fmt: skip
    assert sum(expected.values()) == pytest.approx(1.0)
    rng = np.random.default_rng(0)
    found = Counter(tuple(segment([1, 2, 3, 4], rules, p, rng.random)) for _ in range(20_000))
    assert found.keys() == expected.keys()
    for ids, share in expected.items():
        assert found[ids] / 20_000 == pytest.approx(share, abs=0.015)


def test_an_epoch_is_a_function_of_seed_and_number() -> None:
    corpus = EncodedCorpus(column(TEXTS), column(TEXTS[::-1]))
    config = config_of("translate", bpe_dropout=0.2)
    config = replace(config, text=replace(config.text, max_len=99))
    first, again = (with_bpe_dropout(corpus, TOKENIZER, config) for _ in range(2))
    epochs = {epoch: first(epoch) for epoch in (3, 1, 0)}
    for epoch, side in product((0, 1, 3), ("ids", "target")):
        assert rows(getattr(again(epoch), side)) == rows(getattr(epochs[epoch], side))
    assert rows(epochs[0].ids) != rows(epochs[1].ids)
    assert len({tuple(map(tuple, rows(first(e).ids))) for e in range(N_DRAWN)}) == N_DRAWN


def test_a_tokenizer_without_rules_is_refused() -> None:
    config = config_of("translate", bpe_dropout=0.1)  # its tokenizer is char
    run = small_run(config, data_of("translate"))
    with pytest.raises(UsageError, match="a char tokenizer joins no letters"):
        run.run(run.new_state(), most=1)
