"""Check every request before anything is computed.

The server listens on 127.0.0.1 only, but any page open in the same browser can send it requests, and a hostile name
server can resolve a name of its own to that address (DNS rebinding). So the Host must be ours, a request from a page
must come from our page, and API requests need the token of the printed address in a header. There it is the fragment,
which no browser sends and no log holds; the files of the page, which are the same for everybody, need none.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from typing import Any

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glassformer.errors import GlassformerError
from glassformer.explain.page.responses import RequestError, error_response

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
