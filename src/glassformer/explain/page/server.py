"""Serve the page: routes, time limits and the port.

The server listens on this machine only and takes no path from a request (see `security.py`).
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from glassformer.errors import UsageError
from glassformer.explain.explanation import Explanation
from glassformer.explain.page.security import (
    CONTENT_TYPES,
    STATIC,
    RequestError,
    SecurityMiddleware,
    asset,
    json_response,
    new_token,
    read_json,
    tensor_response,
)
from glassformer.explain.page.service import Service, Worker
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


WORK_SECONDS = 120.0
"""Time an answer may take, waiting included."""
Result = TypeVar("Result")
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
        values = await _within(request, reader, partial(service.tensor, *wanted), seconds)
        return tensor_response(values, request.query_params.get("dtype", "f32"))

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
        if self._thread is not None:
            self._thread.join(10)
