"""Who may ask the server what: names, origins, tokens, types, sizes and speeds, against a real socket."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import uvicorn
from tests.helpers.forking import until
from tests.helpers.serving import Client

from glassformer.errors import CheckpointError, ResourceError, UsageError
from glassformer.explain.page import security
from glassformer.explain.page.server import build_app, listen
from glassformer.explain.page.service import Service, Worker


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
            raises = {
                "usage": UsageError("no", "yes"),
                "checkpoint": CheckpointError("gone"),
                "resource": ResourceError("full"),
                "memory": MemoryError(),
                "bug": ZeroDivisionError("oh"),
            }
            if question.get("raise") in raises:
                raise raises[question["raise"]]
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
        future = super().submit(job)
        self.work.append(future)
        return future


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


HOSTS = [
    ("127.0.0.1:{port}", True),
    ("localhost:{port}", True),
    ("LOCALHOST:{port}", True),
    ("[::1]:{port}", True),
    ("127.0.0.1", False),
    ("localhost:1", False),
    ("evil.example:{port}", False),
    ("0.0.0.0:{port}", False),
    ("127.0.0.1.evil.example:{port}", False),
    ("localhost:{port}.evil.example", False),
    ("", False),
]
ORIGINS = [
    (None, True),
    ("http://127.0.0.1:{port}", True),
    ("http://localhost:{port}", True),
    ("http://evil.example", False),
    ("null", False),
    ("https://127.0.0.1:{port}", False),
    ("http://127.0.0.1:1", False),
    ("http://127.0.0.1:{port}.evil.example", False),
    ("file://", False),
    ("", False),
]


@pytest.mark.parametrize(("host", "own_host"), HOSTS)
def test_host_and_origin_must_be_ours(client: Client, host: str, own_host: bool) -> None:
    for origin, own_origin in ORIGINS:
        headers = {
            "Host": host.format(port=client.port),
            "Origin": None if origin is None else origin.format(port=client.port),
        }
        for method, path, body in (("GET", "/api/run", None), ("POST", "/api/trace", {"text": "a"})):
            status = client.request(method, path, body, headers).status
            assert status == (200 if own_host and own_origin else 403), (origin, path)
        status = client.request("GET", "/app.js", None, headers).status
        assert status in ((200, 500) if own_host and own_origin else (403,)), origin


def test_two_hosts_are_none(client: Client) -> None:
    twice = f"Host: 127.0.0.1:{client.port}"
    assert status_of(client, head_of(client, twice, question="GET /api/run")) in (400, 403)


@pytest.mark.parametrize("token", ["", "secret", "{}x", "x{}", "ÿ"])
def test_questions_need_the_token(client: Client, token: str) -> None:
    """A cookie or a query is none: other pages, and links, can send those."""
    for method, path, body in (
        ("GET", "/api/run", None),
        ("GET", "/api/trace/t1/t/logits", None),
        ("GET", "/api/nothing", None),
        ("POST", "/api/trace", {"text": "a"}),
        ("POST", "/api/attribute", {}),
        ("POST", "/api/erase", {}),
        ("POST", "/api/decode", {}),
    ):
        given = {security.TOKEN: token.format(client.token) or None, "Cookie": f"glassformer={client.token}"}
        answer = client.request(method, f"{path}?token={client.token}", body, given)
        assert answer.status == 401
        assert answer.json()["error"]["kind"] == "RequestError"


def test_tokens_are_long() -> None:
    assert len({security.new_token() for _ in range(100)}) == 100
    assert len(security.new_token()) >= 20


@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json"]
)
def test_questions_are_json(client: Client, kind: str | None) -> None:
    assert client.request("POST", "/api/trace", b'{"text": "a"}', {"Content-Type": kind}).status == 415
    charset = {"Content-Type": "application/json; charset=utf-8"}
    assert client.request("POST", "/api/trace", b'{"text": "a"}', charset).status == 200


@pytest.mark.parametrize(
    "body", [b"", b"{", b'"a"', b"\xff", b'{"a": NaN}', b"[" * 100_000, b'{"a": 1} x'], ids=lambda b: repr(b[:12])
)
def test_what_is_no_json_object_is_refused(client: Client, body: bytes) -> None:
    answer = client.request("POST", "/api/trace", body)
    assert answer.status == 400
    assert answer.json()["error"]["message"]


def test_bodies_have_a_size(client: Client) -> None:
    most = security.MAX_BODY_BYTES
    fits = b'{"text": "' + b"a" * (most - 12) + b'"}'
    assert len(fits) == most
    assert client.request("POST", "/api/trace", fits).status == 200
    for length in (str(most + 1), "9" * 30, "-1", "1e3", "²"):
        whole = head_of(client, JSON, f"Content-Length: {length}") + b"{}"  # what is no HTTP is not read any further
        assert status_of(client, whole) in (400, 413), length


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 413), ({security.TOKEN: "wrong"}, 401), ({"Content-Type": "text/plain"}, 415), ({"Host": "evil"}, 403)],
    ids=str,
)
def test_who_sends_too_much_is_told_so(client: Client, headers: dict[str, str], status: int) -> None:
    """An answer given before the body was read is not lost with the connection: uvicorn reads on."""
    large = b'{"text": "' + b"a" * (3 * security.MAX_BODY_BYTES) + b'"}'
    for _ in range(5):
        answer = client.request("POST", "/api/trace", large, headers)
        assert answer.status == status
        assert answer.json()["error"]["message"]


def test_a_body_in_pieces_has_the_same_size(client: Client) -> None:
    """Chunked: no length is promised, so what arrives is counted."""
    pieces = [b"10000\r\n" + b" " * 0x10000 + b"\r\n"] * (security.MAX_BODY_BYTES // 0x10000 + 2)
    assert status_of(client, head_of(client, JSON, "Transfer-Encoding: chunked"), *pieces) == 413
    assert client.request("GET", "/api/run").status == 200


def test_a_body_that_does_not_come_is_not_waited_for(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "BODY_SECONDS", 0.2)
    assert status_of(client, head_of(client, JSON, "Content-Length: 100"), b'{"text"') == 408


def test_every_answer_carries_the_policy(client: Client) -> None:
    answers = [
        client.request("GET", "/"),
        client.request("GET", "/api/run"),
        client.request("GET", "/nothing"),
        client.request("GET", "/api/run", None, {"Host": "evil.example"}),
        client.request("POST", "/api/trace", {"raise": "bug"}),
        client.request("PUT", "/api/trace", b"{}"),
    ]
    assert [a.status for a in answers] == [200, 200, 404, 403, 500, 405]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        for rule in ("default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"):
            assert rule in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert not any(name.startswith("access-control") for name in answer.headers)
    assert answers[1].headers["cache-control"] == "no-store"


def test_another_page_is_not_told_that_it_may_ask(client: Client) -> None:
    preflight = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    answer = client.request("OPTIONS", "/api/trace", None, preflight)
    assert answer.status == 403
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml",
        "/static/app.js",
        "/..%2f..%2fetc%2fpasswd",
        "/app.js/../../x",
        "//app.js",
        "/index.html",
        "/api/trace/t1/t",
        "/api",
        "/%00",
    ],
)
def test_no_path_reaches_a_file(client: Client, path: str) -> None:
    assert client.request("GET", path).status in (404, 405)


@pytest.mark.parametrize(
    ("kind", "status", "named"),
    [
        ("usage", 400, "UsageError"),
        ("checkpoint", 409, "CheckpointError"),
        ("resource", 507, "ResourceError"),
        ("memory", 507, "ResourceError"),
        ("bug", 500, "GlassformerError"),
    ],
)
def test_errors_are_told_and_survived(
    start: Start, capsys: pytest.CaptureFixture[str], kind: str, status: int, named: str
) -> None:
    client, _ = start()
    answer = client.post("/api/trace", {"raise": kind})
    assert answer.status == status
    error = answer.json()["error"]
    assert error["kind"] == named and error["message"] and set(error) == {"kind", "message", "hint"}
    assert b"Traceback" not in answer.body and b".py" not in answer.body
    assert "Traceback" not in capsys.readouterr().err
    assert client.request("GET", "/api/run").status == 200


def test_json_has_no_nan(client: Client) -> None:
    answer = client.post("/api/trace", {"text": "日本 </script>"})
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
        assert slow.result().status == 504
        assert waiting.result().status == 504
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
