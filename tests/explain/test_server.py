"""The server on three tiny models: what it answers equals what Python computes, and four traces are kept.

Every JSON object that is sent is compared with the class that its TypeScript interface is made from, and requests are
checked before a model is run. Who may ask the server what: names, origins, tokens, types, sizes and speeds, against a
real socket, and the thread that does one after the other.
"""

from __future__ import annotations

import gc
import gzip
import json
import secrets
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import fields
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints
from urllib.parse import quote

import numpy as np
import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert, defstruct
from tests.browser.models import subject_of
from tests.explain.test_report import Page
from tests.helpers.for_each import for_each
from tests.helpers.forking import until
from tests.helpers.serving import DTYPES, TEXTS, Answer, Client

from glassformer.config import DecodeConfig
from glassformer.errors import CheckpointError, ResourceError, UsageError
from glassformer.explain.attribution import Attribution, Erased
from glassformer.explain.capture.sites import AXES, SITES
from glassformer.explain.explanation import TraceRequest, explain
from glassformer.explain.page import server as security
from glassformer.explain.page import service
from glassformer.explain.page.manifest import MAX_F16, MAX_TENSOR_BYTES, Manifest, RunInfo, pack
from glassformer.explain.page.saved_page import SavedPageData, asset, saved_page_html
from glassformer.explain.page.server import TOKEN, PageServer, RequestError, build_app, listen, tensor_response
from glassformer.explain.page.service import Service, Worker
from glassformer.explain.page.typescript import INTERFACES, NOT_SENT, PAGE, REQUESTS, types_ts
from glassformer.explain.streams import Stream, StreamName
from glassformer.run import Run

Clients = dict[str, tuple[Run, Client]]
everyone = pytest.mark.parametrize("name", list(TEXTS))
EDIT = "encoder.0.self.context[head:0]=0"


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    runs = {name: subject_of((name, {})) for name in TEXTS}
    with ExitStack() as stack:
        served = {n: stack.enter_context(PageServer(r, port=0, start=[{"text": TEXTS[n]}])) for n, r in runs.items()}
        yield {name: (runs[name], Client(s.port, s.token)) for name, s in served.items()}


def values(answer: Answer) -> np.ndarray:
    """The array of a tensor's answer."""
    assert answer.status == 200, answer.body
    shape = [int(n) for n in answer.headers["x-shape"].split(",") if n]
    return np.frombuffer(answer.body, DTYPES[answer.headers["x-dtype"]]).reshape(shape)


@everyone
def test_a_run_and_every_tensor_of_a_text_are_what_python_has(clients: Clients, name: str) -> None:
    run, client = clients[name]
    facts = client.request("GET", "/api/run").json()
    assert facts["model"]["task"] == facts["model"]["run"] == name, "the folder's name, never its path"
    assert facts["start"] == [{"text": TEXTS[name]}] and facts["limits"]["max_traces"] == 4
    sent, reference = client.post("/api/trace", {"text": TEXTS[name]}).json(), explain(run, TEXTS[name])
    assert sent["format"] == "glassformer-trace-1"
    assert [n["id"] for n in sent["nodes"]] == [n["id"] for n in reference.manifest()["nodes"]]
    for id, described in [*((node["id"], node) for node in sent["nodes"]), *sent["params"].items()]:
        answer = client.request("GET", f"/api/trace/{sent['id']}/t/{quote(id, safe='')}")
        assert list(values(answer).shape) == [axis["size"] for axis in described["axes"]], id
        assert answer.headers["x-dtype"] == described.get("value", "f32")
        np.testing.assert_array_equal(values(answer), reference.tensor(id), err_msg=id)


def test_what_is_not_there_or_no_question_is_refused_with_a_sentence(clients: Clients) -> None:
    client, translator = clients["classify"][1], clients["translate"][1]
    trace = client.post("/api/trace", {"text": "a", "edits": [EDIT]}).json()["id"]
    request = {"text": "a", "edits": [EDIT]}
    edits = [{"edits": edits} for edits in ("x", ["x"], ["encoder.0.self.out=B"], ["encoder.0.self.out=0"] * 65)]
    cases: list[tuple[Client, str, dict[str, Any] | None, int]] = [
        *((client, f"/api/trace/{path}", None, 404) for path in ("t99/t/logits", "/t/logits")),
        *(
            (client, f"/api/trace/{trace}/t/{path}", None, 400)
            for path in ("x", "logits?slice=head:99", "logits?slice=%00", "..%2f..%2fx")
        ),
        *((client, "/api/trace", {"text": "a"} | one, 400) for one in edits),
        *((client, "/api/trace", one, 400) for one in ({"text": 3}, {"text": "a", "checkpoint": "../../x"})),
        (translator, "/api/decode", {"text": "a " * 200_000}, 413),
        (client, "/api/decode", request, 400),
        (client, "/api/attribute", {"trace": "t0", "method": "erase"}, 404),
        (client, "/api/attribute", {"trace": trace, "method": "guess"}, 400),
        (client, "/api/attribute", {"trace": trace, "method": "erase"}, 400),
        (client, "/api/erase", {"trace": trace, "erase": {"text": "all"}}, 400),
        (client, "/api/sweep", {"trace": trace, "kind": "states"}, 400),
        (client, "/api/sweep", {"trace": trace, "kind": "all"}, 400),
        *(
            (client, "/api/save", body, 400)
            for body in ({}, {"request": "x"}, {"request": request, "view": 1}, {"request": request, "path": "/tmp/x"})
        ),
        (client, "/api/save", {"request": request, "view": "#" * 10_001}, 400),
    ]
    for asking, path, body, status in cases:
        answer = asking.request("POST" if body is not None else "GET", path, body)
        assert answer.status == status, (path, answer.body[:300])
        error = answer.json()["error"]
        assert error["message"] and error["kind"] in ("UsageError", "RequestError", "UnknownRecord")


def test_questions_are_answered_as_by_the_service(clients: Clients) -> None:
    """Whose answers are those of Python in `test_matrix.py`."""
    translator, question = clients["translate"][1], {"text": "abcd", "decode": {"beam_size": 3, "max_new_tokens": 4}}
    traced, decoded = (translator.post(f"/api/{path}", question).json() for path in ("trace", "decode"))
    assert decoded == {key: traced[key] for key in ("decode", "answer", "streams")}
    run, client = clients["classify"]
    own, text = Service(run), {"text": TEXTS["classify"]}
    weighed = [("attribute", {"method": "erase"}), ("erase", {"erase": {"text": [0]}})]
    sweeps = [("sweep", {"kind": kind}) for kind in ("parts", "keys", "layers")]
    for request, questions in ((text, weighed + sweeps), (text | {"edits": [EDIT]}, sweeps)):
        sent, made = client.post("/api/trace", request).json(), own.trace(request)
        assert sent["edited"] == json.loads(json.dumps(made["edited"])) and sent["request"] == request
        for path, body in questions:
            expected = getattr(own, path)(body | {"trace": made["id"]})
            assert client.post(f"/api/{path}", body | {"trace": sent["id"]}).json() == json.loads(json.dumps(expected))


def test_a_page_is_saved_with_its_edits_and_second_text(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    client = clients["classify"][1]
    monkeypatch.setattr(service, "SAVE_SECONDS", 0.0)
    first, view = {"text": TEXTS["classify"]}, "#/step?node=</script>"
    body = {"request": first | {"edits": [EDIT]}, "other": {"text": "b a"}, "view": view}
    saved = client.post("/api/save", body).json()
    data = Page(saved["page"]).data()
    requests = [trace["request"] for trace in data["traces"]]
    assert [one["text"] for one in requests] == [TEXTS["classify"], TEXTS["classify"], "b a"]
    assert [one.get("edits", []) for one in requests] == [[], [EDIT], []]
    assert (data["view"], data["dropped"]) == (view, saved["dropped"])
    twice = Page(client.post("/api/save", {"request": first, "other": first}).json()["page"]).data()
    assert len(twice["traces"]) == 1 and "view" not in twice


def test_four_traces_are_kept_the_least_used_goes() -> None:
    with PageServer(subject_of(("classify", {})), port=0) as server:
        client = Client(server.port, server.token)
        ids = [client.post("/api/trace", {"text": word}).json()["id"] for word in ("a", "b", "c", "d")]
        assert len(set(ids)) == 4
        assert client.request("GET", f"/api/trace/{ids[0]}/t/logits").status == 200  # used again, so kept
        client.post("/api/trace", {"text": "e"})
        assert client.request("GET", f"/api/trace/{ids[0]}/t/logits").status == 200
        gone = client.request("GET", f"/api/trace/{ids[1]}/t/logits")
        assert gone.status == 404 and "trace the text again" in gone.json()["error"]["hint"]
    with listen(server.port):  # which the server has let go of
        pass


def test_tensors_are_there_while_the_model_computes(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, begun = threading.Event(), threading.Event()

    def slowly(*_: object) -> None:
        begun.set()
        gate.wait(30)
        raise UsageError("late")

    monkeypatch.setattr(service, "attribute", slowly)
    run, client = clients["translate"]
    id = client.post("/api/trace", {"text": "abcd"}).json()["id"]
    with ThreadPoolExecutor(1) as pool:
        weighing = pool.submit(client.post, "/api/attribute", {"trace": id})
        assert begun.wait(10)
        try:
            layer = client.request("GET", f"/api/trace/{id}/t/encoder.0.self.weights")
        finally:
            gate.set()
        assert weighing.result().status == 400
    np.testing.assert_array_equal(values(layer), explain(run, "abcd").tensor("encoder.0.self.weights"))


def test_long_texts_leave_no_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_KEPT_TOKENS", 7)
    kept = Service(subject_of(("classify", {})))
    first, second = (kept.trace({"text": text})["id"] for text in ("a b good c a", "b bad c"))
    assert kept.tensor(second, "logits", "").size
    with pytest.raises(RequestError, match="no trace"):
        kept.tensor(first, "logits", "")


def test_the_page_is_served_to_whoever_has_its_address_and_is_small(clients: Clients) -> None:
    client = clients["classify"][1]
    page = client.request("GET", "/", None, {TOKEN: None})
    assert page.status == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
    for name, kind in (("app.js", "text/javascript"), ("app.css", "text/css")):
        assert name.encode() in page.body
        file = client.request("GET", f"/{name}", None, {TOKEN: None})
        assert file.status == 200 and file.headers["content-type"].startswith(kind) and len(file.body) > 100
    size = {
        name: len(gzip.compress(asset(name).encode(), 9)) for name in ("app.js", "shared.js", "app.css", "later.js")
    }
    assert size.pop("later.js") < 80_000 and sum(size.values()) < 40_000


def test_the_browser_opens_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is in the fragment, which is not sent."""
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    server = PageServer(subject_of(("classify", {})), port=0)
    server.stop()
    thread = threading.Thread(target=server.run, args=(True,))  # a browser's test may have a loop running in this one
    thread.start()
    thread.join()
    assert opened == [server.address] and server.address.partition("#")[2].startswith("/flow?access=")


def test_a_port_that_is_taken_is_refused_and_without_one_the_next_free_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with listen(0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} cannot be used") as caught:
            listen(port)
        assert "--port" in caught.value.hint
    for impossible in (-1, 70_000):
        with pytest.raises(UsageError, match="cannot be used"):
            listen(impossible)
    monkeypatch.setattr("glassformer.explain.page.server.PORT", port)
    with listen(None) as first, listen(None) as second:
        assert first.getsockname() == ("127.0.0.1", port) and second.getsockname()[1] > port


def test_what_is_small_is_sent_at_once() -> None:
    """No connection waits for larger packets; each answer had taken 40 ms."""
    with listen(0) as listener, socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@for_each(
    ("array", "half", "sent", "layout"),
    [
        (np.linspace(-3, 3, 12).reshape(3, 4), False, "f32", "<f4"),
        (np.linspace(-3, 3, 12).reshape(3, 4), True, "f16", "<f2"),
        (np.array([1.0, -MAX_F16 * 1.01]), True, "f32", "<f4"),
        (np.array([1.0, -np.inf, np.nan]), True, "f16", "<f2"),
        (np.array([[True, False]]), True, "u8", "u1"),
        (np.array([3, 70_000], dtype=np.int64), True, "i32", "<i4"),
        (np.array(2.5, np.float32), False, "f32", "<f4"),
        (np.zeros((0, 4), np.float32), True, "f16", "<f2"),
        (np.arange(6, dtype=">f4").reshape(2, 3).T, False, "f32", "<f4"),
    ],
)
def test_bytes_are_little_endian_rows(array: np.ndarray, half: bool, sent: str, layout: str) -> None:
    data, dtype = pack(array, half)
    assert dtype == sent
    back = np.frombuffer(data, layout).reshape(array.shape)
    np.testing.assert_allclose(back, array, rtol=1e-3 if sent == "f16" else 1e-7)
    assert [int(n) for n in tensor_response(array).headers["X-Shape"].split(",") if n] == [*array.shape]


def test_what_is_too_large_is_refused() -> None:
    with pytest.raises(UsageError, match="too large to send"):
        pack(np.broadcast_to(np.float32(0), (MAX_TENSOR_BYTES // 4 + 1,)))


NAMES = {"AxisName": Literal[tuple(AXES)], "StreamName": StreamName}


@cache
def struct_of(kind: Any) -> type[Struct]:
    """Return the class of the objects that an interface describes: each field of its type, and no other field."""
    optional = {f.name for f in fields(kind)} - REQUESTS[kind] if kind in REQUESTS else set[str]()
    of: list[tuple[str, Any, Any]] = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        left_out = (UNSET,) if get_origin(hint) is NotRequired or name in optional else ()
        if name not in NOT_SENT.get(kind, ()):
            of.append((name, strict(hint) | UnsetType if left_out else strict(hint), *left_out))
    return defstruct(kind.__name__, of, forbid_unknown_fields=True, kw_only=True)


def strict(hint: Any) -> Any:
    """Return a type with every interface in it as `struct_of` has it."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated and not isinstance(args[1], Meta):
        return NAMES.get(args[1], args[0]) if isinstance(args[1], str) else strict(args[1])
    if hint in INTERFACES or origin is NotRequired:
        return struct_of(hint) if hint in INTERFACES else strict(args[0])
    if not args or origin in (Annotated, Literal):
        return hint
    return (Union if origin is UnionType else origin)[tuple(one if one is ... else strict(one) for one in args)]


@everyone
def test_json_matches_the_type_of_its_interface(name: str) -> None:
    run = subject_of((name, {}))
    answering = Service(run, [{"text": TEXTS[name]}])
    manifest = answering.trace({"text": TEXTS[name], "decode": {"max_new_tokens": 4}})
    which, first = {"trace": manifest["id"]}, manifest["streams"][0]
    answers: list[tuple[Any, Any]] = [
        (manifest, Manifest),
        (answering.run(), RunInfo),
        (answering.erase({**which, "erase": {first["name"]: [first["special"].index(False)]}}), Erased),
        *((answering.attribute({**which, "method": m}), Attribution) for m in ("erase", "integrated_gradients")),
        (Page(saved_page_html(explain(run, TEXTS[name]), seconds=0)[0]).data(), SavedPageData),
    ]
    for value, kind in answers:
        convert(json.loads(json.dumps(value, allow_nan=False)), strict(kind))
    for wrong in ({"name": "sauce"}, {"ids": [1, "2"]}, {"more": 1}):
        with pytest.raises(ValidationError):
            convert(first | wrong, strict(Stream))


def test_the_types_of_the_page_are_those_of_python() -> None:
    assert (PAGE / "types.ts").read_text(encoding="utf-8") == types_ts(), "run: make web"
    assert {axis for site in SITES.values() for axis in site.axes} <= AXES.keys()


def test_a_request_round_trips_through_json_and_takes_every_decoding_setting() -> None:
    decode = {f.name: f.default for f in fields(DecodeConfig)}
    del decode["bleu_tokenize"]  # of scoring, not of decoding
    data = {"text": "ein\u2028Satz", "prefix": [7, 8], "decode": decode, "checkpoint": "step-00000016"}
    assert TraceRequest.from_dict(json.loads(json.dumps(data))).to_json() == data
    assert TraceRequest.from_dict({"text": "a", "target": ""}).to_json() == {"text": "a", "target": ""}


@for_each(
    ("data", "named"),
    [
        (None, "must be a table"),
        ({}, "'text'"),
        ({"text": "\ud800"}, "text must be a string, at most"),
        ({"text": "x" * 2**21}, "1,048,576"),
        ({"text": "a", "txt": 1}, "'txt'"),
        ({"text": "a", "target": []}, "target"),
        ({"text": "a", "prefix": "12"}, "prefix"),
        ({"text": "a", "prefix": [1, -1]}, r"prefix must be an array, .* at \[1\]"),
        ({"text": "a", "prefix": [10**5000]}, "got list at"),
        ({"text": "a", "prefix": [1] * 5000}, "at most 4,096 long"),
        ({"text": "a", "checkpoint": "../../etc"}, "checkpoint"),
        ({"text": "a", "checkpoint": "step-1\n"}, "checkpoint"),
        ({"text": "a", "member": -1}, r"member must be a whole number in \[0, 99\]"),
        ({"text": "a", "decode": []}, "decode"),
        ({"text": "a", "decode": {"beams": 2}}, "'beams'"),
        ({"text": "a", "decode": {"beam_size": 10**6}}, "beam_size"),
        ({"text": "a", "decode": {"temperature": float("nan")}}, "temperature"),
        ({"text": "a", "decode": {"max_new_tokens": 10**7}}, "max_new_tokens"),
    ],
)
def test_a_refusal_names_the_invalid_field(data: Any, named: str) -> None:
    with pytest.raises(UsageError, match=named) as caught:
        TraceRequest.from_dict(data)
    assert len(caught.value.message) < 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(data=st.dictionaries(st.sampled_from([f.name for f in fields(TraceRequest)]), JSON))
def test_any_json_is_a_request_or_is_refused(data: dict[str, Any]) -> None:
    try:
        request = TraceRequest.from_dict(data)
    except UsageError:
        return
    assert isinstance(request.text, str) and all(type(i) is int for i in request.prefix)


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
        token = secrets.token_urlsafe(16)
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


OF_JSON = "Content-Type: application/json"
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
        whole = head_of(client, OF_JSON, f"Content-Length: {length}") + b"{}"  # what is no HTTP is not read any further
        assert status_of(client, whole) in (400, 413), length
    # Chunked: no length is promised, so what arrives is counted.
    pieces = [b"10000\r\n" + b" " * 0x10000 + b"\r\n"] * (most // 0x10000 + 2)
    assert status_of(client, head_of(client, OF_JSON, "Transfer-Encoding: chunked"), *pieces) == 413


def test_a_body_that_is_too_large_is_refused(client: Client) -> None:
    """An answer given before the body was read is not lost with the connection: uvicorn reads on."""
    large = b'{"text": "' + b"a" * (3 * security.MAX_BODY_BYTES) + b'"}'
    refused = [({}, 413), ({security.TOKEN: "wrong"}, 401), ({"Content-Type": "text/plain"}, 415)]
    for headers, status in [*refused, ({"Host": "evil"}, 403)] * 3:
        answer = client.request("POST", "/api/trace", large, headers)
        assert answer.status == status and answer.json()["error"]["message"]


def test_a_body_that_does_not_come_is_not_waited_for(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "BODY_SECONDS", 0.2)
    assert status_of(client, head_of(client, OF_JSON, "Content-Length: 100"), b'{"text"') == 408


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
    whole = head_of(client, OF_JSON, "Content-Length: 2") + b"{}"
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
    worker = Worker()
    future = worker.submit(set[int])
    kept = weakref.ref(future.result(5))
    del future
    worker.submit(lambda: None).result(5)
    gc.collect()
    assert kept() is None
    worker.close()
