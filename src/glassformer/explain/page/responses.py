"""Build the server's responses: JSON, the bytes of a tensor, and every error as one JSON object.

An error has a kind, a message and a hint; tracebacks never leave the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Literal, TypeAlias, TypedDict

import msgspec
import numpy as np
from starlette.responses import Response

from glassformer.errors import CheckpointError, DataError, GlassformerError, ResourceError, UsageError

STATIC = files("glassformer.explain.page") / "static"
CONTENT_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
"""Of the page's files, by their suffix: app.js loads shared.js at once, and later.js when it is needed."""
WHOLE = "whole.js"
"""All scripts in one, for a page without a server."""


def asset(name: str) -> str:
    """Return the text of one of the page's files."""
    try:
        return (STATIC / name).read_text(encoding="utf-8")
    except OSError as error:
        raise GlassformerError(
            f"the page's file {name} is missing from this installation", "in a source checkout: make web"
        ) from error


MAX_F16 = 6e4
"""Tensors with larger values are sent as 32-bit floats; the largest 16-bit float is 65504."""
MAX_TENSOR_BYTES = 64 << 20
"""Larger tensors are refused; request a slice instead."""
STATUS = {UsageError: 400, DataError: 400, CheckpointError: 409, ResourceError: 507}


class RequestError(GlassformerError):
    """A request that is rejected with an HTTP status."""

    def __init__(self, status: int, message: str, hint: str = "", retry_after: int | None = None) -> None:
        super().__init__(message, hint)
        self.status, self.retry_after = status, retry_after


class ErrorDetail(TypedDict):
    """An error message with a hint."""

    kind: str
    message: str
    hint: str


class ApiError(TypedDict):
    """The body of every error response."""

    error: ErrorDetail


def error_response(error: BaseException) -> Response:
    """Return an exception as `ApiError` with its HTTP status, 500 for an unexpected one."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        error = ResourceError("memory ran out", "try a shorter text")
    elif not isinstance(error, GlassformerError):
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        error = GlassformerError(text, "this is a bug: please report it")
    foreseen = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)
    problem: ErrorDetail = {"kind": type(error).__name__, "message": error.message, "hint": error.hint}
    retry_after = getattr(error, "retry_after", None)
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return json_response(ApiError(error=problem), getattr(error, "status", foreseen), headers)


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return records and data as compact JSON in UTF-8, with null for NaN and infinities."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")


def tensor_response(array: np.ndarray, dtype: str) -> Response:
    """Return the values as little-endian bytes in row-major order, with shape and type in the headers."""
    data, sent = pack(array, dtype)
    headers = {"X-Shape": ",".join(map(str, array.shape)), "X-Dtype": sent}
    return Response(data, 200, headers, "application/octet-stream")


Packing: TypeAlias = Literal["f16", "f32", "i32", "u8"]
"""The element types in which tensors are packed."""
LAYOUTS: dict[Packing, str] = {"f16": "<f2", "f32": "<f4", "i32": "<i4", "u8": "u1"}


def pack(array: np.ndarray, dtype: str) -> tuple[bytes, Packing]:
    """Return the little-endian bytes of an array and their type: the requested one, or f32 where f16 would overflow."""
    if dtype not in ("f32", "f16"):
        raise RequestError(400, f"dtype is f32 or f16, and {dtype[:40]!r} came")
    sent: Packing = "f32"
    if array.dtype.kind != "f":
        sent = "i32" if array.dtype.kind == "i" else "u8"
    elif dtype == "f16" and np.abs(array, where=np.isfinite(array), out=np.zeros_like(array)).max(initial=0) <= MAX_F16:
        sent = "f16"
    if array.size * np.dtype(LAYOUTS[sent]).itemsize > MAX_TENSOR_BYTES:
        raise RequestError(413, f"a tensor of shape {array.shape} is too large to send", "ask for a slice of it")
    return np.ascontiguousarray(array, dtype=LAYOUTS[sent]).tobytes(), sent
