"""Connections that hold on without asking anything do not keep the owner out of the page."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.helpers.serving import Client, tiny_run

from glassformer.explain.page.security import ConnectionLimits
from glassformer.explain.page.server import PageServer

QUICK = ConnectionLimits(head_seconds=0.2)
FEW = ConnectionLimits(unauthenticated=4)
HELD = {
    "nothing": "",
    "an unfinished request line": "GET / HT",
    "an unfinished header": "GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCoo",
    "headers without an end": "GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n",
    "a refused question whose body does not come": (
        "POST {place}api/trace HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        'Content-Length: 100\r\n\r\n{{"te'
    ),
    "nothing after an answer": "GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
    "half a request behind a whole one": "GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\nGET / HT",
}
"""What a connection has sent before it only stays open."""


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[[ConnectionLimits], PageServer]]:
    """`serve(limits)`: a server with these limits, one for each."""
    run, known = tiny_run("lm"), dict[ConnectionLimits, PageServer]()
    with ExitStack() as stack:

        def make(limits: ConnectionLimits) -> PageServer:
            if limits not in known:
                known[limits] = stack.enter_context(PageServer(run, port=0, limits=limits))
            return known[limits]

        yield make


@pytest.fixture
def hold() -> Iterator[Callable[[PageServer, str], socket.socket]]:
    """`hold(server, sent)`: a connection that has sent this."""
    with ExitStack() as stack:

        def make(server: PageServer, sent: str) -> socket.socket:
            raw = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            raw.settimeout(20)
            raw.sendall(sent.format(port=server.port, place=server.door.place).encode())
            return raw

        yield make


Hold = Callable[[PageServer, str], socket.socket]
Serve = Callable[[ConnectionLimits], PageServer]


def is_closed(raw: socket.socket) -> bool:
    """Read to the end of the connection; a timeout fails the test."""
    try:
        while raw.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("sent", HELD.values(), ids=HELD)
def test_what_never_asks_is_closed_after_a_time(serve: Serve, hold: Hold, sent: str) -> None:
    assert is_closed(hold(serve(QUICK), sent))


@pytest.mark.parametrize("sent", HELD.values(), ids=HELD)
def test_the_owner_is_served_however_many_hold_on(serve: Serve, hold: Hold, sent: str) -> None:
    server = serve(FEW)
    held = [hold(server, sent) for _ in range(12)]
    owner = Client(server.port, server.door.once())
    assert owner.cookie, "who has the address comes in"
    assert owner.request("GET", "/api/run").status == 200
    assert all(is_closed(raw) for raw in held[:8]), "the oldest are closed"


def test_a_connection_of_the_owner_is_not_closed_for_others(serve: Serve, hold: Hold) -> None:
    server = serve(FEW)
    owner = Client(server.port, server.door.once())
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    for _ in range(3):
        connection.request("GET", owner.path("/api/run"), headers={"Cookie": owner.cookie})
        answer = connection.getresponse()
        assert answer.status == 200 and answer.read()
        held = [hold(server, HELD["nothing"]) for _ in range(6)]
        assert is_closed(held[0])
    connection.close()


def test_three_hundred_idle_connections_lock_nobody_out(serve: Serve, hold: Hold) -> None:
    server = serve(ConnectionLimits())
    owner = Client(server.port, server.door.once())
    held = [hold(server, HELD["an unfinished header"]) for _ in range(300)]
    assert owner.request("GET", "/api/run").status == 200
    assert Client(server.port, server.door.once()).cookie
    assert is_closed(held[0])


def test_a_second_text_has_the_size_of_a_first(serve: Serve) -> None:
    server = serve(QUICK)
    owner = Client(server.port, server.door.once())
    for field in ("text", "target", "other_text"):
        answer = owner.post("/api/trace", {"text": "abc", field: "a" * 200_001})
        assert answer.status == 413, field
    assert owner.post("/api/trace", {"text": "abc", "edits": ["a=" + "1" * 600_000]}).status == 413
