"""Serve the page: routes, time limits and the port.

The server listens on this machine only and takes no path from a request (see `security.py`).

Every user of the machine can open connections. One that sends nothing, or an unfinished head, or a body after its
refusal, or nothing after an answer, is closed after a time; and of connections that have not shown the cookie only a
number is kept, the latest. So they never use up what the owner's browser needs.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route, Router
from uvicorn.protocols.http.h11_impl import H11Protocol

from glassformer.errors import GlassformerError, UsageError
from glassformer.explain.explanation import Explanation
from glassformer.explain.page.responses import (
    CONTENT_TYPES,
    RequestError,
    asset,
    error_response,
    json_response,
    tensor_response,
)
from glassformer.explain.page.security import AccessControl, ConnectionLimits, SecurityMiddleware, read_json
from glassformer.explain.page.service import Service, Worker
from glassformer.explain.subject import Subject
from glassformer.explain.watch.followed import Followed
from glassformer.utils.process_settings import cancellable

HOST = "127.0.0.1"
PORT = 8317
"""Where it is served when no port is named, or at the next free one."""
N_PORTS = 50


def listen(port: int | None) -> socket.socket:
    """Return a listening socket of 127.0.0.1 at the port, or at the first free one from 8317 on."""
    candidates = range(PORT, PORT + N_PORTS) if port is None else [port]
    problem: Exception | None = None
    for candidate in candidates:
        # With the protocol named, asyncio sends without waiting; else each small tensor would take 40 ms.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if sys.platform == "win32":  # there SO_REUSEADDR would let two servers share the port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, candidate))
            listener.listen()
            return listener
        except (OSError, OverflowError) as error:
            listener.close()
            problem = error
    wanted = f"port {port}" if port is not None else f"every port from {PORT} to {PORT + N_PORTS - 1}"
    reason = f": {problem.strerror}" if isinstance(problem, OSError) else ""
    raise UsageError(f"{wanted} cannot be used{reason}", "choose another with --port, or leave --port out")


class GuardedProtocol(H11Protocol):
    """Uvicorn's HTTP/1.1 protocol with `ConnectionLimits`."""

    def __init__(
        self,
        *arguments: Any,
        door: AccessControl,
        limits: ConnectionLimits,
        unauthenticated: dict[GuardedProtocol, None],
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self._door, self._limits, self._unauthenticated = door, limits, unauthenticated
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; close the oldest connection without the cookie if there are too many."""
        super().connection_made(transport)
        self._unauthenticated[self] = None
        if len(self._unauthenticated) > self._limits.unauthenticated:
            next(iter(self._unauthenticated)).close_at_once()
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection."""
        self._request_arrived()
        self._unauthenticated.pop(self, None)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Read what has arrived; a whole head ends the waiting, and the cookie in it is remembered."""
        earlier = self.cycle
        super().handle_events()
        if self.cycle is not earlier:
            self._request_arrived()
            if self in self._unauthenticated and self._door.knows(Headers(raw=self.headers)):
                del self._unauthenticated[self]

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it has been sent already."""
        answered = self.cycle
        super().on_response_complete()
        if self.cycle is answered:
            self._await_request()

    def close_at_once(self) -> None:
        """Close the connection, and send nothing that waits to be read."""
        self._unauthenticated.pop(self, None)
        self.transport.abort()

    def _await_request(self) -> None:
        self._request_arrived()
        self._deadline = self.loop.call_later(self._limits.head_seconds, self.close_at_once)

    def _request_arrived(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def guarded(door: AccessControl, limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """Return the protocol for one server, as uvicorn takes it."""
    unauthenticated: dict[GuardedProtocol, None] = {}
    return cast(Any, partial(GuardedProtocol, door=door, limits=limits, unauthenticated=unauthenticated))


WORK_SECONDS = 120.0
"""Time an answer may take, waiting included."""
__all__ = ["PORT", "PageServer", "build_app", "listen", "serve"]

LOCKED_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Glassformer</title></head>
<body><p>An address of this page opens it a single time, so that nobody else can use it afterwards. Where
<code>glassformer explain</code> runs, the last address printed is the one that opens; where a browser has come in
already, its tab can be reloaded as often as you like.</p>
</body></html>
"""

Result = TypeVar("Result")
Endpoint = Callable[[Request], Awaitable[Response]]


def build_app(
    service: Service, workers: tuple[Worker, Worker], port: int, door: AccessControl, seconds: float = WORK_SECONDS
) -> SecurityMiddleware:
    """Build the web application."""
    reader, worker = workers

    async def submit(request: Request, job: Callable[[], Result]) -> Result:
        return await _within(request, worker, job, seconds)

    def question(answer: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            return json_response(await submit(request, partial(answer, await read_json(request))))

        return endpoint

    def view(answer: Callable[..., Mapping[str, Any]], *fields: str) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            queries = (request.query_params.get(field, "") for field in fields)
            return json_response(await submit(request, partial(answer, *request.path_params.values(), *queries)))

        return endpoint

    async def tensor(request: Request) -> Response:
        wanted = *request.path_params.values(), request.query_params.get("slice", "")
        held = await _within(request, reader, partial(service.held, *wanted), seconds)
        values = await submit(request, partial(service.tensor, *wanted)) if held is None else held
        return tensor_response(values, request.query_params.get("dtype", "f32"))

    async def training(request: Request) -> Response:
        # In the other thread: it has no model to wait for.
        now = partial(service.training, request.query_params.get("after", ""))
        return json_response(await _within(request, reader, now, seconds))

    async def control(request: Request) -> Response:
        job = partial(service.control, await read_json(request))
        return json_response(await _within(request, reader, job, seconds))

    posts = (
        service.trace,
        service.attribute,
        service.erase,
        service.sweep,
        service.decode,
        service.save,
        service.probe,
    )
    questions = [
        Route("/api/run", _answered(view(service.run))),
        Route("/api/probes", _answered(view(service.probes))),
        Route("/api/training", _answered(training)),
        Route("/api/control", _answered(control), methods=["POST"]),
        Route("/api/trace/{trace_id}/alignment", _answered(view(service.alignment))),
        Route("/api/trace/{trace_id}/neighbours/{name:path}", _answered(view(service.neighbours, "row"))),
        Route("/api/trace/{trace_id}/t/{name:path}", _answered(tensor)),
        *(Route(f"/api/{job.__name__}", _answered(question(job)), methods=["POST"]) for job in posts),
    ]
    routes = _around(door, questions)
    application = Starlette(routes=routes, exception_handlers={HTTPException: _no_such_page})
    application.router.redirect_slashes = False
    return SecurityMiddleware(application, port, door)


def _around(door: AccessControl, questions: list[Route]) -> list[Route | Mount]:
    """Return the access-controlled routes: the page's files and the API."""

    async def enter(request: Request) -> Response:
        if request.method != "GET" or "prefetch" in request.headers.get("sec-purpose", ""):
            return Response(status_code=503)  # a look ahead uses nothing up: the browser asks again when it is opened
        if not door.opens(request.query_params.get("token")):
            return Response(LOCKED_PAGE, 403, media_type=CONTENT_TYPES["index.html"])
        return Response(status_code=303, headers={"Location": door.place, "Set-Cookie": door.set_cookie()})

    async def page(request: Request) -> Response:
        if not door.knows(request.headers):
            return Response(LOCKED_PAGE, 403, media_type=CONTENT_TYPES["index.html"])
        return Response(asset("index.html"), media_type=CONTENT_TYPES["index.html"])

    async def static(request: Request) -> Response:
        name = request.url.path.removeprefix(door.place)
        return Response(asset(name), media_type=CONTENT_TYPES[name])

    async def icon(request: Request) -> Response:
        return Response(status_code=204)

    files = [Route(f"/{name}", _answered(static)) for name in CONTENT_TYPES if name != "index.html"]
    inside = Router([Route("/", _answered(page)), *files, *questions], redirect_slashes=False)
    return [Route("/", _answered(enter)), Route("/favicon.ico", icon), Mount(door.place.rstrip("/"), inside)]


def _answered(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint with every exception turned into its response, so that the server keeps running."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Exception as error:
            if not isinstance(error, GlassformerError):
                message = " ".join(str(error).split())[:300]
                logging.getLogger(__name__).warning(f"{request.url.path}: {type(error).__name__}: {message}")
            return error_response(error)

    return answer


async def _no_such_page(request: Request, error: Exception) -> Response:
    """Return 404 or 405 in the form of every error; a page explains that the address may be of an earlier server."""
    if request.method == "GET" and request.url.path.endswith("/"):
        return Response(LOCKED_PAGE, 404, media_type=CONTENT_TYPES["index.html"])
    status = error.status_code if isinstance(error, HTTPException) else 500
    return error_response(RequestError(status, f"there is no {request.method} {request.url.path[:80]}"))


async def _within(request: Request, worker: Worker, job: Callable[[], Result], seconds: float) -> Result:
    """Return the result of a job, which is cancelled if it takes too long or the client disconnects."""
    given_up = threading.Event()
    submitted = worker.submit(partial(_cancellable, job, given_up))
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


def _cancellable(job: Callable[[], Result], given_up: threading.Event) -> Result:
    """Return the result of a job that ends early once it is given up, if it has parts (`utils/process_settings.py`)."""
    with cancellable(given_up):
        return job()


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
        calibrated: whether the probabilities of answers are calibrated.
        limits: of the connections.

    Attributes:
        door: who lets browsers in.
    """

    def __init__(
        self,
        subject: Subject | Followed,
        *,
        port: int | None = None,
        start: Sequence[Explanation | Mapping[str, Any]] = (),
        calibrated: bool = False,
        limits: ConnectionLimits | None = None,
    ) -> None:
        import uvicorn

        asset("index.html")  # nobody should be sent to a page that is not there
        learns = bool(start) and isinstance(start[0], Explanation) and start[0].learning is not None
        self._screen = "#/training" if isinstance(subject, Followed) else "#/learn" if learns else ""
        self._listener = listen(port)
        self._workers, self.door = (Worker(), Worker()), AccessControl()
        self.port: int = self._listener.getsockname()[1]
        app = build_app(Service(subject, start, calibrated), self._workers, self.port, self.door)
        config = uvicorn.Config(
            app,
            http=guarded(self.door, limits or ConnectionLimits()),
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
        self._thread: threading.Thread | None = None

    def address(self, then: Callable[[], None] = lambda: None) -> str:
        """Return a new address that opens the page once; `then` is called when it has."""
        return f"http://{HOST}:{self.port}/?token={self.door.once(then)}{self._screen}"

    def run(self) -> None:
        """Serve until Ctrl-C, or until `stop`."""
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
        if self._thread is not None:
            self._thread.join(10)


def serve(
    subject: Subject | Followed,
    *,
    port: int | None = None,
    start: Sequence[Explanation | Mapping[str, Any]] = (),
    calibrated: bool = False,
    open_browser: bool = True,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve the page until Ctrl-C."""
    server = PageServer(subject, port=port, start=start, calibrated=calibrated)

    def announce() -> None:
        if on_ready is not None:
            on_ready(server.address(announce))

    announce()
    if open_browser:
        import webbrowser

        webbrowser.open(server.address())
    server.run()
