"""The fused top-k of sums against `torch.topk`."""

from __future__ import annotations

import torch
from tests.helpers.for_each import for_each

from glassformer.decode.search import BLOCK, add_topk


@for_each("size", [2 * BLOCK, 3 * BLOCK + 1, 10 * BLOCK + 7])
@for_each(("width", "k"), [(1, 2), (4, 8), (5, 10)])
def test_add_topk_equals_topk_of_the_sums(size, width, k):
    generator = torch.Generator().manual_seed(size)
    x, offset = torch.randn(6, width, size, generator=generator), torch.randn(6, width, generator=generator)
    x[0, 0, -1] = 9.0
    values, index = add_topk(x, offset, k)
    expected = (x + offset[:, :, None]).view(6, -1).topk(k, dim=1)
    assert torch.equal(values, expected.values)
    assert torch.equal(index, expected.indices)
