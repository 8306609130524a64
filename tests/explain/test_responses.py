from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.for_each import for_each

from glassformer.errors import UsageError
from glassformer.explain.page.manifest import MAX_F16, MAX_TENSOR_BYTES, pack
from glassformer.explain.page.server import tensor_response


@for_each(
    ("array", "requested", "sent", "layout"),
    [
        (np.linspace(-3, 3, 12).reshape(3, 4), "f32", "f32", "<f4"),
        (np.linspace(-3, 3, 12).reshape(3, 4), "f16", "f16", "<f2"),
        (np.array([1.0, -MAX_F16 * 1.01]), "f16", "f32", "<f4"),
        (np.array([1.0, -np.inf, np.nan]), "f16", "f16", "<f2"),
        (np.array([[True, False]]), "f16", "u8", "u1"),
        (np.array([3, 70_000], dtype=np.int64), "f16", "i32", "<i4"),
        (np.array(2.5, np.float32), "f32", "f32", "<f4"),
        (np.zeros((0, 4), np.float32), "f16", "f16", "<f2"),
        (np.arange(6, dtype=">f4").reshape(2, 3).T, "f32", "f32", "<f4"),
    ],
)
def test_bytes_are_little_endian_rows(array: np.ndarray, requested: str, sent: str, layout: str) -> None:
    response = tensor_response(array, requested)
    assert response.headers["X-Dtype"] == sent
    shape = tuple(int(n) for n in response.headers["X-Shape"].split(",") if n)
    assert shape == array.shape
    back = np.frombuffer(response.body, layout).reshape(shape)
    np.testing.assert_allclose(back, array, rtol=1e-3 if sent == "f16" else 1e-7)


def test_what_is_too_large_or_no_type_is_refused() -> None:
    with pytest.raises(UsageError, match="f32 or f16"):
        pack(np.zeros(3), "f64")
    huge = np.broadcast_to(np.float32(0), (MAX_TENSOR_BYTES // 4 + 1,))
    with pytest.raises(UsageError, match="too large to send"):
        pack(huge, "f32")
