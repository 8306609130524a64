"""Limits of length: where a text is cut, where the window of a long one begins, and when a translation is a loop."""

from __future__ import annotations

from typing import Any

LENGTH_RATIO, LENGTH_MARGIN = 2, 20
"""A translation has at most LENGTH_RATIO · source + LENGTH_MARGIN tokens: a longer one is a loop."""


def length_limit(n_source: int, max_len: int, max_new_tokens: int) -> int:
    """Return the maximum tokens, EOS included, of a translation of `n_source` tokens."""
    return max(1, min(max_len, max_new_tokens, LENGTH_RATIO * n_source + LENGTH_MARGIN))


def window_start(n_tokens: int, max_len: int) -> int:
    """Return the index of the first of `n_tokens` tokens that the model still sees when it predicts the next one.

    Up to max_len that is 0. Beyond, the window jumps ahead by half of max_len and is read again: the model sees between
    half of max_len and max_len tokens, and most tokens cost one cached step. (Moving it by one would shift every
    position, and invalidate the cache, at each token.) It depends only on the number of tokens, never on the batch.
    """
    jump = max_len - max_len // 2
    return jump * -(-max(0, n_tokens - max_len) // jump)


def truncate(ids: list[Any], max_len: int, keep: str) -> list[Any]:
    """Return the first `max_len` ids, the last, or half of each (the odd one from the head)."""
    if len(ids) <= max_len:
        return ids
    n_tail = {"head": 0, "tail": max_len, "head+tail": max_len // 2}[keep]
    return ids[: max_len - n_tail] + ids[len(ids) - n_tail :]
