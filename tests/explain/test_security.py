"""Who may ask the server what: names, origins, tokens, types, sizes and speeds, against a real socket.

And the thread that does one after the other.
"""

from __future__ import annotations

import gc
import json
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import uvicorn
from tests.helpers.forking import until
from tests.helpers.serving import Client

from glassformer.errors import CheckpointError, ResourceError, UsageError
from glassformer.explain.page import server as security
from glassformer.explain.page.server import build_app, listen
from glassformer.explain.page.service import Service, Worker

ERRORS = {
    "usage": (UsageError("no", "yes"), 400, "UsageError"),
    "checkpoint": (CheckpointError("gone"), 409, "CheckpointError"),
    "resource": (ResourceError("full"), 507, "ResourceError"),
    "memory": (MemoryError(), 507, "ResourceError"),
    "bug": (ZeroDivisionError("oh"), 500, "GlassformerError"),
}
"""What a service raises, and the status and the kind of error that are answered."""


class Echo(Service):
    """Answers with the question, and does as it says: waits, fails, or answers what cannot be sent."""

    def __init__(self) -> None:
        self.running, self.most_running, self.n_done = 0, 0, 0
        self.gate = threading.Event()
        self.work: list[Future[Any]] = []

    def run(self) -> dict[str, Any]:
        return {"ok": True}

    def trace(self, question: dict[str, Any]) -> dict[str, Any]:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if question.get("wait"):
                self.gate.wait(30)
            if question.get("raise"):
                raise ERRORS[question["raise"]][0]
            self.n_done += 1
            return question | {"nan": float("nan")}
        finally:
            self.running -= 1

    attribute = erase = decode = trace


class Watched(Worker):
    """Keeps the futures of what it was given to do."""

    def __init__(self, n_waiting: int, work: list[Future[Any]]) -> None:
        super().__init__(n_waiting)
        self.work = work

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        self.work.append(super().submit(job))
        return self.work[-1]


Start = Callable[..., tuple[Client, Echo]]


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """`start(seconds=1, n_waiting=2)` → a client of a new server."""
    running: list[tuple[uvicorn.Server, threading.Thread, Worker]] = []

    def make(seconds: float = 30, n_waiting: int = 32) -> tuple[Client, Echo]:
        listener, service = listen(0), Echo()
        port, worker = listener.getsockname()[1], Watched(n_waiting, service.work)
        token = security.new_token()
        app = build_app(service, (worker, worker), port, token, seconds)
        server = uvicorn.Server(uvicorn.Config(app, http="h11", ws="none", lifespan="off", log_level="critical"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        running.append((server, thread, worker))
        return Client(port, token), service

    yield make
    for server, thread, worker in running:
        server.should_exit = True
        thread.join()
        worker.close()


@pytest.fixture(scope="module")
def client(start: Start) -> Client:
    return start()[0]


def head_of(client: Client, *lines: str, question: str = "POST /api/trace") -> bytes:
    """How a question begins that is written by hand."""
    host = f"Host: 127.0.0.1:{client.port}"
    return "\r\n".join([f"{question} HTTP/1.1", host, f"{security.TOKEN}: {client.token}", *lines, "", ""]).encode()


def status_of(client: Client, *pieces: bytes) -> int:
    """Return the status that is answered to what is sent piece by piece."""
    with socket.create_connection(("127.0.0.1", client.port)) as raw:
        raw.settimeout(10)
        for piece in pieces:
            raw.sendall(piece)
        return int(raw.recv(100).split()[1])


JSON = "Content-Type: application/json"
OWN_HOSTS = ["127.0.0.1:PORT", "localhost:PORT", "LOCALHOST:PORT", "[::1]:PORT"]
OTHER_HOSTS = ["", "127.0.0.1", "localhost:1", "evil.example:PORT", "0.0.0.0:PORT", "localhost:PORT.evil.example"]
OTHER_HOSTS += ["127.0.0.1.evil.example:PORT"]
OWN_ORIGINS = [None, "http://127.0.0.1:PORT", "http://localhost:PORT"]
OTHER_ORIGINS = ["", "null", "file://", "http://evil.example", "https://127.0.0.1:PORT", "http://127.0.0.1:1"]
OTHER_ORIGINS += ["http://127.0.0.1:PORT.evil.example"]


def test_host_and_origin_must_be_ours(client: Client) -> None:
    own = [(host, origin, 200) for host in OWN_HOSTS for origin in OWN_ORIGINS]
    others = [(host, None, 403) for host in OTHER_HOSTS] + [(OWN_HOSTS[0], origin, 403) for origin in OTHER_ORIGINS]
    for host, origin, expected in own + others:
        headers = {"Host": host.replace("PORT", str(client.port))}
        headers |= {} if origin is None else {"Origin": origin.replace("PORT", str(client.port))}
        for method, path, body in (("GET", "/api/run", None), ("POST", "/api/trace", {}), ("GET", "/app.js", None)):
            assert client.request(method, path, body, headers).status == expected, (headers, path)
    twice = head_of(client, f"Host: 127.0.0.1:{client.port}", question="GET /api/run")
    assert status_of(client, twice) in (400, 403), "two hosts are none"


def test_questions_need_the_token(client: Client) -> None:
    """A cookie or a query is none: other pages, and links, can send those."""
    posts = [("POST", f"/api/{name}") for name in ("trace", "attribute", "erase", "decode")]
    for method, path in [("GET", "/api/run"), ("GET", "/api/trace/t1/t/logits"), ("GET", "/api/nothing"), *posts]:
        for token in (None, "secret", f"{client.token}x", f"x{client.token}", "ÿ"):
            given = {security.TOKEN: token, "Cookie": f"glassformer={client.token}"}
            body = {"text": "a"} if method == "POST" else None
            answer = client.request(method, f"{path}?token={client.token}", body, given)
            assert answer.status == 401 and answer.json()["error"]["kind"] == "RequestError"
    assert len({security.new_token() for _ in range(100)}) == 100 and len(security.new_token()) >= 20


def test_questions_are_json_objects(client: Client) -> None:
    good = b'{"text": "a"}'
    for kind in (None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json"):
        assert client.request("POST", "/api/trace", good, {"Content-Type": kind}).status == 415
    charset = {"Content-Type": "application/json; charset=utf-8"}
    assert client.request("POST", "/api/trace", good, charset).status == 200
    for body in (b"", b"{", b'"a"', b"\xff", b'{"a": NaN}', b"[" * 100_000, b'{"a": 1} x'):
        answer = client.request("POST", "/api/trace", body)
        assert answer.status == 400 and answer.json()["error"]["message"], body[:12]


def test_bodies_have_a_size(client: Client) -> None:
    most = security.MAX_BODY_BYTES
    fits = b'{"text": "' + b"a" * (most - 12) + b'"}'
    assert len(fits) == most
    assert client.request("POST", "/api/trace", fits).status == 200
    for length in (str(most + 1), "9" * 30, "-1", "1e3", "²"):
        whole = head_of(client, JSON, f"Content-Length: {length}") + b"{}"  # what is no HTTP is not read any further
        assert status_of(client, whole) in (400, 413), length
    # Chunked: no length is promised, so what arrives is counted.
    pieces = [b"10000\r\n" + b" " * 0x10000 + b"\r\n"] * (most // 0x10000 + 2)
    assert status_of(client, head_of(client, JSON, "Transfer-Encoding: chunked"), *pieces) == 413


def test_a_body_that_is_too_large_is_refused(client: Client) -> None:
    """An answer given before the body was read is not lost with the connection: uvicorn reads on."""
    large = b'{"text": "' + b"a" * (3 * security.MAX_BODY_BYTES) + b'"}'
    refused = [({}, 413), ({security.TOKEN: "wrong"}, 401), ({"Content-Type": "text/plain"}, 415)]
    for headers, status in [*refused, ({"Host": "evil"}, 403)] * 3:
        answer = client.request("POST", "/api/trace", large, headers)
        assert answer.status == status and answer.json()["error"]["message"]


def test_a_body_that_does_not_come_is_not_waited_for(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "BODY_SECONDS", 0.2)
    assert status_of(client, head_of(client, JSON, "Content-Length: 100"), b'{"text"') == 408


def test_every_answer_carries_the_policy_and_permits_no_other_page(client: Client) -> None:
    preflight = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    answers = [
        client.request("GET", "/"),
        client.request("GET", "/api/run"),
        client.request("GET", "/nothing"),
        client.request("GET", "/api/run", None, {"Host": "evil.example"}),
        client.request("POST", "/api/trace", {"raise": "bug"}),
        client.request("PUT", "/api/trace", b"{}"),
        client.request("OPTIONS", "/api/trace", None, preflight),
    ]
    assert [a.status for a in answers] == [200, 200, 404, 403, 500, 405, 403]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        for rule in ("default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"):
            assert rule in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert not any(name.startswith("access-control") for name in answer.headers)
    assert answers[1].headers["cache-control"] == "no-store"


def test_no_path_reaches_a_file(client: Client) -> None:
    escaping = ["/../pyproject.toml", "/..%2f..%2fetc%2fpasswd", "/app.js/../../x", "//app.js", "/%00"]
    for path in [*escaping, "/static/app.js", "/index.html", "/api", "/api/trace/t1/t"]:
        assert client.request("GET", path).status in (404, 405), path


def test_errors_are_answered_and_survived(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    for kind, (_, status, named) in ERRORS.items():
        answer = client.post("/api/trace", {"raise": kind})
        error = answer.json()["error"]
        assert answer.status == status and error["kind"] == named and error["message"]
        assert set(error) == {"kind", "message", "hint"}
        assert b"Traceback" not in answer.body and b".py" not in answer.body
        assert "Traceback" not in capsys.readouterr().err
    answer = client.post("/api/trace", {"text": "日本 </script>"})  # and JSON has no NaN
    assert json.loads(answer.body, parse_constant=pytest.fail) == {"text": "日本 </script>", "nan": None}


def test_a_hundred_at_once(start: Start) -> None:
    """One is worked on, eight wait, the others are asked to come back; then all is as before."""
    client, service = start(n_waiting=8)
    with ThreadPoolExecutor(100) as pool:
        requested = [pool.submit(client.post, "/api/trace", {"wait": True, "i": i}) for i in range(100)]
        # Until the thread has taken the first from the queue one more may find the queue full.
        until(lambda: sum(f.done() for f in requested) >= 91)
        service.gate.set()
        answers = [f.result() for f in requested]
    statuses = [a.status for a in answers]
    assert statuses.count(503) in (91, 92) and statuses.count(200) + statuses.count(503) == 100
    assert service.most_running == 1
    assert service.n_done == statuses.count(200)
    refused = next(a for a in answers if a.status == 503)
    assert int(refused.headers["retry-after"]) > 0
    for i, answer in enumerate(answers):
        assert answer.status == 503 or answer.json()["i"] == i
    assert client.post("/api/trace", {"i": 1}).status == 200


def test_what_takes_too_long_is_given_up(start: Start) -> None:
    client, service = start(seconds=1)
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(client.post, "/api/trace", {"wait": True})
        until(lambda: service.running == 1)
        waiting = pool.submit(client.post, "/api/trace", {})
        assert slow.result().status == waiting.result().status == 504
    service.gate.set()
    until(lambda: service.running == 0)
    assert client.post("/api/trace", {}).status == 200
    assert service.n_done == 2, "what waited in vain is not done after all"


def test_whoever_leaves_is_not_worked_for(start: Start) -> None:
    client, service = start()
    whole = head_of(client, JSON, "Content-Length: 2") + b"{}"
    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(client.post, "/api/trace", {"wait": True})
        until(lambda: service.running == 1)
        for i in range(5):
            with socket.create_connection(("127.0.0.1", client.port)) as raw:
                raw.sendall(whole)
                until(lambda n=i + 2: len(service.work) == n)
        until(lambda: all(future.cancelled() for future in service.work[1:]))
        service.gate.set()
        assert busy.result().status == 200
    assert client.request("GET", "/api/run").status == 200
    assert service.n_done == 1


def test_cancelled_work_is_not_done_and_closing_drops_what_waits() -> None:
    worker, gate, done = Worker(), threading.Event(), []
    first = worker.submit(gate.wait)
    until(first.running)
    cancelled, dropped = worker.submit(lambda: done.append(1)), worker.submit(lambda: done.append(2))
    assert cancelled.cancel()
    threading.Timer(0.1, gate.set).start()
    worker.close()
    assert first.done() and dropped.cancelled() and done == []
    assert not worker._thread.is_alive()


def test_an_answer_is_not_kept() -> None:
    class Large:
        pass

    worker = Worker()
    future = worker.submit(Large)
    kept = weakref.ref(future.result(5))
    del future
    worker.submit(lambda: None).result(5)
    gc.collect()
    assert kept() is None
    worker.close()
