"""Plans of a running text: an order drawn as a table, and batches that are computed when they are taken."""

from __future__ import annotations

import tracemalloc

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.config import TrainConfig
from glassformer.data.batches import shuffled_windows
from glassformer.distributed.process_group import ProcessGroup


def permuted_table(n: int, max_len: int, train: TrainConfig, epoch: int) -> list[np.ndarray]:
    """All windows of an epoch at once, shuffled as a table: the order that runs have had since the first."""
    rng = np.random.default_rng([train.seed, epoch])
    cuts = np.arange(rng.integers(max_len), n - 1, max_len)
    edges = np.unique(np.concatenate([[0], cuts, [n - 1]]))
    table = rng.permutation(np.stack([edges[:-1], edges[1:], edges[:-1] + 1], axis=1))
    rows = train.batch_size or max(1, train.max_tokens // max_len)
    return [table[i : i + rows] for i in range(0, len(table), rows)]


@settings(max_examples=150, deadline=None)
@given(st.integers(2, 900), st.integers(1, 80), st.integers(1, 400), st.integers(0, 3), st.integers(0, 3))
def test_the_order_of_a_text_is_what_it_always_was(n, max_len, max_tokens, seed, epoch) -> None:
    train = TrainConfig(max_tokens=max_tokens, seed=seed)
    plan, table = shuffled_windows(n, max_len, train, epoch), permuted_table(n, max_len, train, epoch)
    assert len(plan) == len(table)
    assert all(np.array_equal(a, b) for a, b in zip(plan, table, strict=True))


def test_a_plan_takes_24_bytes_a_window_and_begins_anywhere() -> None:
    train, n = TrainConfig(max_tokens=65_536), 10**9
    tracemalloc.start()
    plan = shuffled_windows(n, 1024, train, 3)
    size, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    middle = plan[len(plan) // 2]
    assert np.array_equal(shuffled_windows(n, 1024, train, 3)[len(plan) // 2], middle) and middle.shape == (64, 3)
    assert (np.diff(np.sort(middle[:, 0])) >= 1024).all()
    assert size < 27 * n / 1024 and peak < 80 * n / 1024


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(40, 2000))
def test_any_number_of_processes_has_the_windows_of_one(size, accumulate, n) -> None:
    plan = shuffled_windows(n, 8, TrainConfig(max_tokens=64), 0)
    for at in range(0, len(plan), accumulate):
        entries = plan[at : at + accumulate]
        pieces = [p for rank in range(size) for p, counts in ProcessGroup(rank, size).split_batches(entries) if counts]
        of_all, of_one = np.concatenate(pieces), np.concatenate(list(entries))
        assert sorted(map(tuple, of_all.tolist())) == sorted(map(tuple, of_one.tolist()))
