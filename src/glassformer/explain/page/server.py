"""Serve the page: routes, time limits and the port. Every request is checked before anything is computed.

The server listens on 127.0.0.1 only, but any page open in the same browser can send it requests, and a hostile name
server can resolve a name of its own to that address (DNS rebinding). So the Host must be ours, a request from a page
must come from our page, and API requests need the token of the printed address in a header. There it is the fragment,
which no browser sends and no log holds; the files of the page, which are the same for everybody, need none. No path is
taken from a request.

Responses are JSON or the bytes of a tensor, and every error is one JSON object with a kind, a message and a hint;
tracebacks never leave the process.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glassformer.errors import CheckpointError, DataError, GlassformerError, ResourceError, UsageError
from glassformer.explain.explanation import Explanation
from glassformer.explain.page.manifest import pack
from glassformer.explain.page.saved_page import STATIC, asset
from glassformer.explain.page.service import RequestError, Result, Service, Worker
from glassformer.explain.subject import Subject
from glassformer.explain.watch import Training
from glassformer.utils.process_settings import cancellable

HOST = "127.0.0.1"
PORT = 8317
"""Where it is served when no port is named, or at the next free one of `N_PORTS`."""
N_PORTS = 50


def listen(port: int | None) -> socket.socket:
    """Return a listening socket of 127.0.0.1 at the port, or at the first free one from 8317 on."""
    why = "ports run from 0 to 65535"
    for candidate in range(PORT, PORT + N_PORTS) if port is None else [port] if 0 <= port < 1 << 16 else []:
        try:
            listener = socket.create_server((HOST, candidate))
        except OSError as error:
            why = error.strerror
        else:  # its connections send without waiting; else each small tensor would take 40 ms
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return listener
    wanted = f"port {port}" if port is not None else f"every port from {PORT} to {PORT + N_PORTS - 1}"
    raise UsageError(f"{wanted} cannot be used: {why}", "choose another with --port, or leave --port out")


STATUS = {UsageError: 400, DataError: 400, CheckpointError: 409, ResourceError: 507}
CONTENT_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
"""Of the page's files, by their suffix: app.js loads shared.js at once, and later.js when it is needed."""


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


def tensor_response(array: np.ndarray) -> Response:
    """Return the values as little-endian bytes in row-major order, with shape and type in the headers."""
    data, sent = pack(array)
    headers = {"X-Shape": ",".join(map(str, array.shape)), "X-Dtype": sent}
    return Response(data, 200, headers, "application/octet-stream")


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


WORK_SECONDS = 120.0
"""Time an answer may take, waiting included."""
Endpoint = Callable[[Request], Awaitable[Response]]


def build_app(
    service: Service, workers: tuple[Worker, Worker], port: int, token: str, seconds: float = WORK_SECONDS
) -> SecurityMiddleware:
    """Build the web application: the page's files, and questions. What needs no model goes to the first worker."""
    reader, worker = workers

    def question(answer: Callable[..., Mapping[str, Any]], *fields: str, to: Worker = worker) -> Endpoint:
        """Return the endpoint of a question: by GET with these fields of the address, else with a JSON object."""

        async def endpoint(request: Request) -> Response:
            given: list[Any] = [request.query_params.get(field, "") for field in fields]
            given += [await read_json(request)] if request.method == "POST" else []
            return json_response(await _within(request, to, partial(answer, *given), seconds))

        return endpoint

    async def tensor(request: Request) -> Response:
        wanted = *request.path_params.values(), request.query_params.get("slice", "")
        return tensor_response(await _within(request, reader, partial(service.tensor, *wanted), seconds))

    async def file(request: Request) -> Response:
        name = request.url.path[1:] or "index.html"
        return Response(asset(name), media_type=CONTENT_TYPES[name.rpartition(".")[2]])

    looked_up: dict[str, Endpoint] = {
        "/": file,
        **{f"/{path.name}": file for path in STATIC.iterdir() if path.name != "index.html"},
        "/api/run": question(service.run),
        "/api/probes": question(service.probes),
        "/api/training": question(service.training, "after", to=reader),
        "/api/trace/{trace_id}/t/{name:path}": tensor,
    }
    posted = {
        job.__name__: question(job)
        for job in (service.trace, service.attribute, service.erase, service.sweep, service.decode, service.save)
    }
    posted |= {"probe": question(service.probe), "control": question(service.control, to=reader)}
    routes = [Route(path, endpoint) for path, endpoint in looked_up.items()]
    routes += [Route(f"/api/{name}", endpoint, methods=["POST"]) for name, endpoint in posted.items()]
    return SecurityMiddleware(Router(routes, redirect_slashes=False), port, token)


async def _within(request: Request, worker: Worker, job: Callable[[], Result], seconds: float) -> Result:
    """Return the result of a job, which is cancelled if it takes too long or the client disconnects."""
    given_up = threading.Event()

    def work_on() -> Result:
        with cancellable(given_up):  # it ends early once it is given up, if it has parts
            return job()

    submitted = worker.submit(work_on)
    work = asyncio.wrap_future(submitted)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        done, _ = await asyncio.wait({work, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if work in done:
            return work.result()
        if gone in done:
            raise RequestError(400, "the connection was closed before the answer was ready")
        raise RequestError(504, f"this took longer than {seconds:g} seconds", "try a shorter text", retry_after=5)
    finally:
        given_up.set()
        submitted.cancel()
        work.cancel()  # what it may still raise interests nobody
        gone.cancel()


async def _disconnected(request: Request) -> None:
    """Return when the client is gone; the body has been read, so this is all that can still come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class PageServer:
    """The page of one run, served: by `run` in this thread, or in one of its own within a `with` block.

    Args:
        subject: the run to look into, or to follow; that opens on the screen Training.
        port: the port, 0 for any free one, None for the first that is free from 8317 on.
        start: what the page begins with: explanations, or `TraceRequest`s as JSON, traced when the page asks. It opens
            on the screen Learn where the first has an answer to learn.

    Attributes:
        address: what opens the page, with the token in its fragment.
    """

    def __init__(
        self,
        subject: Subject | Training,
        *,
        port: int | None = None,
        start: Sequence[Explanation | Mapping[str, Any]] = (),
    ) -> None:
        import uvicorn

        asset("index.html")  # nobody should be sent to a page that is not there
        learns = bool(start) and isinstance(start[0], Explanation) and start[0].learning is not None
        screen = "training" if isinstance(subject, Training) else "learn" if learns else "flow"
        self._listener = listen(port)
        self._workers, self.token = (Worker(), Worker()), secrets.token_urlsafe(16)  # of 128 bits
        self.port: int = self._listener.getsockname()[1]
        app = build_app(Service(subject, start), self._workers, self.port, self.token)
        self.address = f"http://{HOST}:{self.port}/#/{screen}?access={self.token}"
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=256,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)

    def run(self, browser: bool = False) -> None:
        """Open the page in the browser, if wanted, and serve it until Ctrl-C, or until `stop`."""
        if browser:
            import webbrowser

            webbrowser.open(self.address)
        try:
            self._server.run(sockets=[self._listener])
        except KeyboardInterrupt:
            pass  # raised again by uvicorn after it has closed everything
        finally:
            for worker in self._workers:
                worker.close()
            self._listener.close()

    def stop(self) -> None:
        """End `run`, from another thread."""
        self._server.should_exit = True

    def __enter__(self) -> PageServer:
        self._thread = threading.Thread(target=self.run, name="glassformer-page", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self._thread.join(10)
