"""Check every request before anything is computed.

The server listens on 127.0.0.1 only, but any page open in the same browser can send it requests, and a hostile name
server can resolve a name of its own to that address (DNS rebinding). So the Host must be ours, a request from a page
must come from our page, and API requests need the token of the printed address in a header. There it is the fragment,
which no browser sends and no log holds; the files of the page, which are the same for everybody, need none.

Responses are JSON or the bytes of a tensor, and every error is one JSON object with a kind, a message and a hint;
tracebacks never leave the process.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


def error_response(error: BaseException) -> Response:
    """Return an exception as {"error": {kind, message, hint}} with its HTTP status, 500 for an unexpected one."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        error = ResourceError("memory ran out", "try a shorter text")
    elif not isinstance(error, GlassformerError):
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        error = GlassformerError(text, "this is a bug: please report it")
    foreseen = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)
    problem = {"kind": type(error).__name__, "message": error.message, "hint": error.hint}
    retry_after = getattr(error, "retry_after", None)
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return json_response({"error": problem}, getattr(error, "status", foreseen), headers)


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


TOKEN = "X-Glassformer-Token"
"""The header of the token."""
MAX_BODY_BYTES = 512 << 10
"""Enough for two texts of the largest size (`manifest.py`) with a forced prefix and edits."""
BODY_SECONDS = 10.0
"""Time limit for receiving a body."""
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": PAGE_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


def new_token() -> str:
    """Return a URL-safe secret of 128 bits."""
    return secrets.token_urlsafe(16)


class SecurityMiddleware:
    """Middleware that rejects forbidden requests and adds the security headers to every response.

    Every exception becomes its response, so that the server keeps running.
    """

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self.app, self.token = app, token
        self.hosts = frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))
        self.origins = frozenset(f"http://{host}" for host in self.hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no web sockets here

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers["Cache-Control"] = "no-store" if scope["path"].startswith("/api/") else "no-cache"
            await send(message)

        scope["app"] = self.app  # with which a route raises for a wrong method, as for all else
        try:
            self._check(scope["method"], scope["path"], Headers(scope=scope))
            await self.app(scope, receive, send_guarded)
        except Exception as error:
            if isinstance(error, HTTPException):
                error = RequestError(error.status_code, f"there is no {scope['method']} {scope['path'][:80]}")
            if not isinstance(error, GlassformerError):
                message = " ".join(str(error).split())[:300]
                logging.getLogger(__name__).warning(f"{scope['path']}: {type(error).__name__}: {message}")
            await error_response(error)(scope, receive, send_guarded)

    def _check(self, method: str, path: str, headers: Headers) -> None:
        """Raise `RequestError` unless the request is allowed."""
        hosts = [host.lower() for host in headers.getlist("host")]
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            raise RequestError(403, "this server answers to this machine's own names only", "open the printed address")
        if any(origin.lower() not in self.origins for origin in headers.getlist("origin")):
            raise RequestError(403, "the request comes from another page", "open the printed address")
        given = headers.get(TOKEN, "").encode("utf-8", "replace")
        if path.startswith("/api/") and not hmac.compare_digest(given, self.token.encode()):
            raise RequestError(401, "this page has no token of the server", "open the address that the command printed")
        if method == "POST":
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                raise RequestError(415, "questions are sent as application/json")
            length = headers.get("content-length", "")  # without one a body could have any
            if not length.isdecimal() or len(length) > 12 or int(length) > MAX_BODY_BYTES:
                raise RequestError(413, f"a question has at most {MAX_BODY_BYTES} bytes", "try a shorter text")


async def read_json(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body of a request."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return msgspec.json.decode(await request.body(), type=dict[str, Any])
    except TimeoutError:
        raise RequestError(408, "the question did not arrive in time") from None
    except ClientDisconnect:
        raise RequestError(400, "the connection was closed before the question had arrived") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RequestError(400, "the question is no JSON object in UTF-8") from error
