"""What the server answers with: JSON, the bytes of a tensor, and every error as one JSON object.

An error names its kind, says one sentence and gives a hint; a traceback never leaves the process.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, TypedDict

import numpy as np
from starlette.responses import Response

from glassformer.errors import CheckpointError, DataError, GlassformerError, ResourceError, UsageError

MAX_F16 = 6e4
"""Values beyond this do not fit 16 bits (65504 is the last that does); the tensor is then sent in 32."""
MAX_TENSOR_BYTES = 64 << 20
"""A larger answer is refused: a slice of it can be asked for."""
STATUS = {UsageError: 400, DataError: 400, CheckpointError: 409, ResourceError: 507}


class RequestError(GlassformerError):
    """A request that is turned down for a reason of HTTP's.

    Args:
        status: the HTTP status it is answered with.
        retry_after: seconds after which it may be tried again.
    """

    def __init__(self, status: int, message: str, hint: str = "", retry_after: int | None = None) -> None:
        super().__init__(message, hint)
        self.status, self.retry_after = status, retry_after


class ErrorDetail(TypedDict):
    """What went wrong, in a sentence, and what to do."""

    kind: str
    message: str
    hint: str


class ApiError(TypedDict):
    """Every error of the server, which has its HTTP status."""

    error: ErrorDetail


def error_response(error: BaseException) -> Response:
    """Any exception as `ApiError` with its HTTP status; one that nobody foresaw is 500."""
    known = _as_known(error)
    foreseen = next((status for kind, status in STATUS.items() if isinstance(known, kind)), 500)
    status = known.status if isinstance(known, RequestError) else foreseen
    problem: ErrorDetail = {"kind": type(known).__name__, "message": known.message, "hint": known.hint}
    headers = {}
    if isinstance(known, RequestError) and known.retry_after is not None:
        headers["Retry-After"] = str(known.retry_after)
    return json_response(ApiError(error=problem), status, headers)


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON in UTF-8; a number that is none becomes null, as JSON has no NaN."""
    return Response(to_json(value).encode("utf-8", "replace"), status, headers, "application/json")


def to_json(value: Any) -> str:
    """Compact JSON, with null for NaN and the infinities."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:  # rare, so that the common case is not walked through in Python
        return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def tensor_response(array: np.ndarray, dtype: str) -> Response:
    """The values as little-endian bytes, row by row; their shape and type stand in the headers.

    Args:
        dtype: "f32" or "f16", for floating-point tensors; the others are always "i32" or "u8".
    """
    data, sent = pack(array, dtype)
    headers = {"X-Shape": ",".join(map(str, array.shape)), "X-Dtype": sent}
    return Response(data, 200, headers, "application/octet-stream")


Packing: TypeAlias = Literal["f16", "f32", "i32", "u8"]
"""The element types in which tensors are packed."""


def pack(array: np.ndarray, dtype: str) -> tuple[bytes, Packing]:
    """Little-endian bytes of an array, and their type: the one asked for, or f32 where f16 would overflow.

    Raises:
        RequestError: a type that is neither "f32" nor "f16", or more bytes than are sent at once.
    """
    if dtype not in ("f32", "f16"):
        raise RequestError(400, f"dtype is f32 or f16, and {dtype[:40]!r} came")
    sent: Packing
    if array.dtype == np.bool_ or array.dtype == np.uint8:
        sent, layout = "u8", "u1"
    elif np.issubdtype(array.dtype, np.integer):
        sent, layout = "i32", "<i4"
    elif dtype == "f16" and fits_f16(array):
        sent, layout = "f16", "<f2"
    else:
        sent, layout = "f32", "<f4"
    if array.size * np.dtype(layout).itemsize > MAX_TENSOR_BYTES:
        raise RequestError(413, f"a tensor of shape {array.shape} is too large to send", "ask for a slice of it")
    return np.ascontiguousarray(array, dtype=layout).tobytes(), sent


def fits_f16(array: np.ndarray) -> bool:
    """Whether no finite value of the array is too large for 16 bits."""
    finite = array[np.isfinite(array)]
    return finite.size == 0 or float(np.abs(finite).max()) <= MAX_F16


def _as_known(error: BaseException) -> GlassformerError:
    """Any exception as one of ours."""
    if isinstance(error, GlassformerError):
        return error
    text = " ".join(str(error).split())[:300]
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return ResourceError("memory ran out", "try a shorter text")
    return GlassformerError(f"{type(error).__name__}: {text}", "this is a bug: please report it")


def _finite(value: Any) -> Any:
    """The value with None for every number that is none."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
