"""The server on three tiny models: what it answers equals what Python computes, and four traces are kept."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import numpy as np
import pytest
from tests.explain.test_report import Page
from tests.helpers.serving import DTYPES, TEXTS, Answer, Client, tiny_run

from glassformer.errors import UsageError
from glassformer.explain.explanation import TraceRequest, explain
from glassformer.explain.page import service
from glassformer.explain.page.security import TOKEN, RequestError, asset
from glassformer.explain.page.server import PageServer, listen
from glassformer.run import Run
from glassformer.utils.process_settings import Cancelled, cancellable, check_cancelled


@pytest.fixture(scope="module")
def clients() -> Iterator[dict[str, tuple[Run, Client]]]:
    runs = {name: tiny_run(name) for name in TEXTS}
    servers = {name: PageServer(run, port=0, start=[{"text": TEXTS[name]}]) for name, run in runs.items()}
    for server in servers.values():
        server.__enter__()
    yield {name: (runs[name], Client(s.port, s.token)) for name, s in servers.items()}
    for server in servers.values():
        server.__exit__()


Clients = dict[str, tuple[Run, Client]]
everyone = pytest.mark.parametrize("name", list(TEXTS))


def values(answer: Answer) -> np.ndarray:
    """The array of a tensor's answer."""
    assert answer.status == 200, answer.body
    shape = [int(n) for n in answer.headers["x-shape"].split(",") if n]
    return np.frombuffer(answer.body, DTYPES[answer.headers["x-dtype"]]).reshape(shape)


@everyone
def test_the_run_is_described(clients: Clients, name: str) -> None:
    _, client = clients[name]
    facts = client.request("GET", "/api/run").json()
    assert facts["model"]["task"] == name
    assert facts["model"]["run"] == name, "the folder's name, never its path"
    assert facts["start"] == [{"text": TEXTS[name]}]
    assert facts["limits"]["max_traces"] == 4


@everyone
def test_every_tensor_of_a_manifest_is_what_python_has(clients: Clients, name: str) -> None:
    run, client = clients[name]
    manifest = client.post("/api/trace", {"text": TEXTS[name]}).json()
    reference = explain(run, TEXTS[name])
    assert manifest["format"] == "glassformer-trace-1"
    assert [n["id"] for n in manifest["nodes"]] == [n["id"] for n in reference.manifest()["nodes"]]
    for node in manifest["nodes"]:
        answer = client.request("GET", f"/api/trace/{manifest['id']}/t/{quote(node['id'], safe='')}")
        got, expected = values(answer), reference.tensor(node["id"])
        assert list(got.shape) == [axis["size"] for axis in node["axes"]], node["id"]
        assert answer.headers["x-dtype"] == node["value"]
        np.testing.assert_array_equal(got, expected, err_msg=node["id"])
    for param, facts in manifest["params"].items():
        got = values(client.request("GET", f"/api/trace/{manifest['id']}/t/{quote(param, safe='')}"))
        assert list(got.shape) == [axis["size"] for axis in facts["axes"]]
        np.testing.assert_array_equal(got, reference.tensor(param))


def test_slices_and_half_precision(clients: Clients) -> None:
    _, client = clients["classify"]
    manifest = client.post("/api/trace", {"text": TEXTS["classify"]}).json()
    weights = next(n["id"] for n in manifest["nodes"] if n["id"].endswith("self.weights"))
    base = f"/api/trace/{manifest['id']}/t/{weights}"
    whole = values(client.request("GET", base))
    np.testing.assert_array_equal(values(client.request("GET", f"{base}?slice=head:1")), whole[1])
    half = client.request("GET", f"{base}?slice=head:1%3Btoken:0-2&dtype=f16")
    assert half.headers["x-dtype"] == "f16"
    np.testing.assert_allclose(values(half), whole[1, :2], atol=5e-4)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("t99/t/logits", 404),
        ("/t/logits", 404),
        ("{id}/t/nothing", 400),
        ("{id}/t/logits?slice=head:99", 400),
        ("{id}/t/logits?slice=%00", 400),
        ("{id}/t/logits?dtype=f64", 400),
        ("{id}/t/..%2f..%2fx", 400),
    ],
)
def test_what_is_not_there_is_said(clients: Clients, path: str, status: int) -> None:
    _, client = clients["classify"]
    trace = client.post("/api/trace", {"text": "a"}).json()["id"]
    answer = client.request("GET", "/api/trace/" + path.format(id=trace))
    assert answer.status == status
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"text": 3}, 400),
        ({"text": "a", "checkpoint": "../../x"}, 400),
        ({"text": "a", "decode": {"beam_size": 10**6}}, 400),
        ({"text": "a " * 200_000}, 413),
    ],
    ids=lambda b: str(b)[:40],
)
def test_hostile_questions_are_answered_with_a_sentence(clients: Clients, body: dict, status: int) -> None:
    for path in ("/api/trace", "/api/decode"):
        answer = clients["lm"][1].post(path, body)
        assert answer.status == status, answer.body[:300]
        assert answer.json()["error"]["kind"] in ("UsageError", "RequestError")


@everyone
def test_words_are_weighed_and_erased(clients: Clients, name: str) -> None:
    _, client = clients[name]
    manifest = client.post("/api/trace", {"text": TEXTS[name], "decode": {"max_new_tokens": 3}}).json()
    message = client.post("/api/attribute", {"trace": manifest["id"], "method": "erase"})
    assert message.status == 200, message.body
    stream = manifest["streams"][0]
    scores = message.json()["scores"][stream["name"]]
    assert len(scores) == len(stream["ids"])
    first = [i for i, word in enumerate(stream["words"]) if word == 0]
    erased = client.post("/api/erase", {"trace": manifest["id"], "erase": {stream["name"]: first}}).json()
    fall = erased["original"] - erased["value"]
    assert fall == pytest.approx(sum(scores[i] for i in first), abs=1e-4)
    assert client.post("/api/attribute", {"trace": "t0", "method": "erase"}).status == 404
    assert client.post("/api/attribute", {"trace": manifest["id"], "method": "guess"}).status == 400
    assert client.post("/api/erase", {"trace": manifest["id"], "erase": {"text": "all"}}).status == 400


@everyone
def test_edits_are_applied_and_sweeps_answered(clients: Clients, name: str) -> None:
    run, client = clients[name]
    base = client.post("/api/trace", {"text": TEXTS[name]}).json()
    stack = "decoder" if name == "lm" else "encoder"
    edits = [f"{stack}.0.self.context[head:0]=0"]
    traced = client.post("/api/trace", {"text": TEXTS[name], "edits": edits}).json()
    expected = explain(run, TraceRequest(TEXTS[name], edits=tuple(edits)))
    assert traced["edited"] == expected.edited.to_json() and traced["request"]["edits"] == edits
    node = f"{stack}.0.self.out"
    shown = values(client.request("GET", f"/api/trace/{traced['id']}/t/{node}"))
    np.testing.assert_array_equal(shown, expected.tensor(node))
    for body in ({"edits": "x"}, {"edits": ["x"]}, {"edits": [f"{node}=B"]}, {"edits": [f"{node}=0"] * 65}):
        assert client.post("/api/trace", {"text": TEXTS[name]} | body).status == 400, body
    for kind, id in (("parts", base["id"]), ("keys", base["id"]), ("layers", base["id"])):
        assert client.post("/api/sweep", {"trace": id, "kind": kind}).status == 200
        on_top = client.post("/api/sweep", {"trace": traced["id"], "kind": kind})
        assert (
            on_top.status == 200
            and on_top.json().keys()
            and on_top.json() != client.post("/api/sweep", {"trace": base["id"], "kind": kind}).json()
        )
    # What asks the model again is without edits, and says so.
    for path, body in (
        ("/api/attribute", {"trace": traced["id"], "method": "erase"}),
        ("/api/decode", {"text": TEXTS[name], "edits": edits}),
        ("/api/sweep", {"trace": base["id"], "kind": "states"}),
        ("/api/sweep", {"trace": base["id"], "kind": "all"}),
    ):
        assert client.post(path, body).status == 400, path


@everyone
def test_a_page_is_saved_with_its_edits_and_second_text(
    clients: Clients, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(service, "SAVE_SECONDS", 0.0)
    _, client = clients[name]
    stack = "decoder" if name == "lm" else "encoder"
    request = {"text": TEXTS[name], "edits": [f"{stack}.0.self.context[head:0]=0"]}
    view = "#/step?node=</script>"
    answer = client.post("/api/save", {"request": request, "other": {"text": "b a"}, "view": view})
    assert answer.status == 200, answer.body
    saved = answer.json()
    data = Page(saved["page"]).data()
    requests = [trace["request"] for trace in data["traces"]]
    assert [one["text"] for one in requests] == [TEXTS[name], TEXTS[name], "b a"]
    assert [one.get("edits", []) for one in requests] == [[], request["edits"], []]
    assert (data["view"], data["dropped"]) == (view, saved["dropped"])
    twice = client.post("/api/save", {"request": {"text": TEXTS[name]}, "other": {"text": TEXTS[name]}}).json()
    assert len(Page(twice["page"]).data()["traces"]) == 1 and "view" not in Page(twice["page"]).data()
    for body in ({}, {"request": "x"}, {"request": request, "view": 1}, {"request": request, "path": "/tmp/x"}):
        assert client.post("/api/save", body).status == 400, body
    assert client.post("/api/save", {"request": request, "view": "#" * 10_001}).status == 400


def test_a_sweep_whose_reader_is_gone_ends_between_two_batches() -> None:
    """The job sees that it was given up; the next one is not."""
    given_up = threading.Event()
    given_up.set()
    with pytest.raises(Cancelled), cancellable(given_up):
        check_cancelled()
    with cancellable(threading.Event()):
        check_cancelled()
    check_cancelled()


def test_decoding_alone_tells_what_a_trace_would(clients: Clients) -> None:
    _, client = clients["translate"]
    question = {"text": "abcd", "decode": {"beam_size": 3, "max_new_tokens": 4}}
    traced, decoded = client.post("/api/trace", question).json(), client.post("/api/decode", question).json()
    assert set(decoded) == {"decode", "answer", "streams"}
    assert decoded == {key: traced[key] for key in decoded}


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


def test_the_page_is_served_to_whoever_has_its_address(clients: Clients) -> None:
    _, client = clients["classify"]
    page = client.request("GET", "/", None, {TOKEN: None})
    assert page.status == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
    for name, kind in (("app.js", "text/javascript"), ("app.css", "text/css")):
        assert name.encode() in page.body
        file = client.request("GET", f"/{name}", None, {TOKEN: None})
        assert file.status == 200 and file.headers["content-type"].startswith(kind) and len(file.body) > 100


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


def test_the_first_view_is_small() -> None:
    """Compressed as a server on the way would; the page itself is on this machine."""
    first = sum(len(gzip.compress(asset(name).encode(), 9)) for name in ("app.js", "shared.js", "app.css"))
    assert first < 40_000
    assert len(gzip.compress(asset("later.js").encode(), 9)) < 80_000  # loaded when one is opened


def test_a_port_that_is_taken() -> None:
    with listen(0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} cannot be used") as caught:
            listen(port)
        assert "--port" in caught.value.hint
    for impossible in (-1, 70_000):
        with pytest.raises(UsageError, match="cannot be used"):
            listen(impossible)


def test_without_a_port_the_next_free_one_is_taken(free_default: int) -> None:
    with listen(None) as first, listen(None) as second:
        assert first.getsockname() == ("127.0.0.1", free_default)
        assert second.getsockname()[1] > free_default


@pytest.fixture
def free_default(monkeypatch: pytest.MonkeyPatch) -> int:
    """A port nobody else uses, in place of 8317."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setattr("glassformer.explain.page.server.PORT", port)
    return port


def test_a_server_ends_and_lets_go_of_its_port() -> None:
    with PageServer(tiny_run("classify"), port=0) as server:
        assert Client(server.port, server.token).request("GET", "/api/run").status == 200
    with listen(server.port):
        pass


def test_what_is_small_is_sent_at_once() -> None:
    """No connection waits for larger packets; each answer had taken 40 ms."""
    with listen(0) as listener, socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
