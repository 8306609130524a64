"""Serve the page: routes, time limits and the port.

The server listens on this machine only and takes no path from a request (see `security.py`).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

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
from glassformer.explain.page.security import SecurityMiddleware, new_token, read_json
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


WORK_SECONDS = 120.0
"""Time an answer may take, waiting included."""
__all__ = ["PORT", "PageServer", "build_app", "listen", "serve"]

Result = TypeVar("Result")
Endpoint = Callable[[Request], Awaitable[Response]]


def build_app(
    service: Service, workers: tuple[Worker, Worker], port: int, token: str, seconds: float = WORK_SECONDS
) -> SecurityMiddleware:
    """Build the web application: the page's files, and questions. What needs no model goes to the first worker."""
    reader, worker = workers

    def question(answer: Callable[[dict[str, Any]], Mapping[str, Any]], to: Worker = worker) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            return json_response(await _within(request, to, partial(answer, await read_json(request)), seconds))

        return endpoint

    def view(answer: Callable[..., Mapping[str, Any]], *fields: str, to: Worker = worker) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            queries = (request.query_params.get(field, "") for field in fields)
            return json_response(await _within(request, to, partial(answer, *queries), seconds))

        return endpoint

    async def tensor(request: Request) -> Response:
        wanted = *request.path_params.values(), request.query_params.get("slice", "")
        values = await _within(request, reader, partial(service.held, *wanted), seconds)
        if values is None:
            values = await _within(request, worker, partial(service.tensor, *wanted), seconds)
        return tensor_response(values, request.query_params.get("dtype", "f32"))

    async def file(request: Request) -> Response:
        name = request.url.path[1:] or "index.html"
        return Response(asset(name), media_type=CONTENT_TYPES[name])

    posts = (
        service.trace,
        service.attribute,
        service.erase,
        service.sweep,
        service.decode,
        service.save,
        service.probe,
    )
    endpoints: dict[str, Endpoint] = {
        "/": file,
        **{f"/{name}": file for name in CONTENT_TYPES if name != "index.html"},
        "/api/run": view(service.run),
        "/api/probes": view(service.probes),
        "/api/training": view(service.training, "after", to=reader),
        "/api/trace/{trace_id}/t/{name:path}": tensor,
    }
    questions = {job.__name__: question(job) for job in posts} | {"control": question(service.control, reader)}
    routes = [Route(path, _answered(endpoint)) for path, endpoint in endpoints.items()]
    routes += [Route(f"/api/{name}", _answered(each), methods=["POST"]) for name, each in questions.items()]
    application = Starlette(routes=routes, exception_handlers={HTTPException: _no_such_page})
    application.router.redirect_slashes = False
    return SecurityMiddleware(application, port, token)


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
    """Return 404 or 405 in the form of every error."""
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

    Attributes:
        address: what opens the page, with the token in its fragment.
    """

    def __init__(
        self,
        subject: Subject | Followed,
        *,
        port: int | None = None,
        start: Sequence[Explanation | Mapping[str, Any]] = (),
    ) -> None:
        import uvicorn

        asset("index.html")  # nobody should be sent to a page that is not there
        learns = bool(start) and isinstance(start[0], Explanation) and start[0].learning is not None
        screen = "training" if isinstance(subject, Followed) else "learn" if learns else "flow"
        self._listener = listen(port)
        self._workers, self.token = (Worker(), Worker()), new_token()
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
        self._thread: threading.Thread | None = None

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
    open_browser: bool = True,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve the page until Ctrl-C."""
    server = PageServer(subject, port=port, start=start)
    if on_ready is not None:
        on_ready(server.address)
    if open_browser:
        import webbrowser

        webbrowser.open(server.address)
    server.run()
