"""The server on three tiny models: what it answers equals what Python computes, and four traces are kept."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from tests.explain.test_report import Page
from tests.helpers.for_each import for_each
from tests.helpers.serving import DTYPES, TEXTS, Answer, Client, tiny_run

from glassformer.errors import UsageError
from glassformer.explain.explanation import TraceRequest, explain
from glassformer.explain.page import service
from glassformer.explain.page.manifest import MAX_F16, MAX_TENSOR_BYTES, pack
from glassformer.explain.page.saved_page import asset
from glassformer.explain.page.server import TOKEN, PageServer, RequestError, listen, tensor_response
from glassformer.run import Run

Clients = dict[str, tuple[Run, Client]]
everyone = pytest.mark.parametrize("name", list(TEXTS))
EDIT = "encoder.0.self.context[head:0]=0"


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    runs = {name: tiny_run(name) for name in TEXTS}
    with ExitStack() as stack:
        served = {n: stack.enter_context(PageServer(r, port=0, start=[{"text": TEXTS[n]}])) for n, r in runs.items()}
        tokens = {server.token for server in served.values()}
        assert len(tokens) == 3 and min(map(len, tokens)) >= 20, "each has a secret of its own"
        yield {name: (runs[name], Client(s.port, s.token)) for name, s in served.items()}


@pytest.fixture
def client(clients: Clients) -> Client:
    return clients["classify"][1]


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


def test_slices(client: Client) -> None:
    trace = client.post("/api/trace", {"text": TEXTS["classify"]}).json()["id"]
    base = f"/api/trace/{trace}/t/encoder.0.self.weights"
    whole = values(client.request("GET", base))
    np.testing.assert_array_equal(values(client.request("GET", f"{base}?slice=head:1")), whole[1])
    np.testing.assert_array_equal(values(client.request("GET", f"{base}?slice=head:1%3Btoken:0-2")), whole[1, :2])


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
        (translator, "/api/decode", {"text": "a", "decode": {"beam_size": 10**6}}, 400),
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


def test_words_are_weighed_edits_applied_and_sweeps_answered(clients: Clients) -> None:
    translator, question = clients["translate"][1], {"text": "abcd", "decode": {"beam_size": 3, "max_new_tokens": 4}}
    traced, decoded = (translator.post(f"/api/{path}", question).json() for path in ("trace", "decode"))
    assert decoded == {key: traced[key] for key in ("decode", "answer", "streams")}
    run, client = clients["classify"]
    base = client.post("/api/trace", {"text": TEXTS["classify"]}).json()
    scores = client.post("/api/attribute", {"trace": base["id"], "method": "erase"}).json()["scores"]["text"]
    erased = client.post("/api/erase", {"trace": base["id"], "erase": {"text": [0]}}).json()
    assert erased["original"] - erased["value"] == pytest.approx(scores[0], abs=1e-4)
    edited = client.post("/api/trace", {"text": TEXTS["classify"], "edits": [EDIT]}).json()
    expected = explain(run, TraceRequest(TEXTS["classify"], edits=(EDIT,)))
    assert edited["edited"] == expected.edited.to_json() and edited["request"]["edits"] == [EDIT]
    shown = values(client.request("GET", f"/api/trace/{edited['id']}/t/encoder.0.self.out"))
    np.testing.assert_array_equal(shown, expected.tensor("encoder.0.self.out"))
    for kind in ("parts", "keys", "layers"):
        plain, on_top = (client.post("/api/sweep", {"trace": t["id"], "kind": kind}) for t in (base, edited))
        assert plain.status == on_top.status == 200 and plain.json() != on_top.json()


def test_a_page_is_saved_with_its_edits_and_second_text(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
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
    with PageServer(tiny_run("classify"), port=0) as server:
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


def test_tensors_are_there_while_the_model_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, begun = threading.Event(), threading.Event()

    def slowly(explanation: object, request: object) -> None:
        begun.set()
        gate.wait(30)
        raise UsageError("late")

    monkeypatch.setattr("glassformer.explain.page.service.attribute", slowly)
    run, request = tiny_run("translate", max_len=300), {"text": "abcdefg" * 25, "target": "abc"}
    reference = explain(run, TraceRequest.from_dict(request))
    with PageServer(run, port=0) as server, ThreadPoolExecutor(2) as pool:
        client = Client(server.port, server.token)
        id = client.post("/api/trace", request).json()["id"]
        weighing = pool.submit(client.post, "/api/attribute", {"trace": id})
        assert begun.wait(10)
        try:
            layer = pool.submit(client.request, "GET", f"/api/trace/{id}/t/encoder.0.self.weights").result(timeout=10)
        finally:
            gate.set()
        assert weighing.result().status == 400
    np.testing.assert_array_equal(values(layer), reference.tensor("encoder.0.self.weights"))


def test_long_texts_leave_no_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_KEPT_TOKENS", 7)
    kept = service.Service(tiny_run("classify"))
    first, second = (kept.trace({"text": text})["id"] for text in ("a b good c a", "b bad c"))
    assert kept.tensor(second, "logits", "").size
    with pytest.raises(RequestError, match="no trace"):
        kept.tensor(first, "logits", "")


def test_the_page_is_served_to_whoever_has_its_address_and_is_small(client: Client) -> None:
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
    server = PageServer(tiny_run("classify"), port=0)
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
