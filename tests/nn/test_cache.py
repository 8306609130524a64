"""The cache of keys and values: what goes in comes out, in the rows that were asked for."""

from __future__ import annotations

import torch
from tests.helpers.for_each import for_each

from glassformer.nn.attention import FIRST_CAPACITY, KVCache


@for_each("chunks", [[1] * 1000, [FIRST_CAPACITY, 1, 1], [200, 1, 300], [3, 40, 2]])
def test_what_is_appended_is_read_back_whole(chunks: list[int]) -> None:
    """In buffers that grow by doubling, and not at every step."""
    cache, k, v, sizes = KVCache(), torch.randn(2, 3, sum(chunks), 4), torch.randn(2, 3, sum(chunks), 4), set[int]()
    for keys, values in zip(k.split(chunks, dim=2), v.split(chunks, dim=2), strict=True):
        found = cache.append(keys, values)
        assert torch.equal(found[0], k[:, :, : cache.length]) and torch.equal(found[1], v[:, :, : cache.length])
        sizes.add(found[0].untyped_storage().nbytes() // (2 * 3 * 4 * 4))
    assert torch.equal(cache.keys, k) and torch.equal(cache.values, v)
    assert len(sizes) <= 7 and max(sizes) < 2100


def test_rows_are_kept_dropped_and_doubled() -> None:
    cache, k = KVCache(), torch.randn(3, 1, 5, 2)
    cache.append(k, -k)
    rows = torch.tensor([2, 0, 0, 1])
    cache.select(rows)
    assert torch.equal(cache.keys, k[rows])
    assert torch.equal(cache.values, -k[rows])
    # Rows that were one are two from here on.
    new = torch.randn(4, 1, 1, 2)
    assert torch.equal(cache.append(new, new)[0], torch.cat([k[rows], new], dim=2))
