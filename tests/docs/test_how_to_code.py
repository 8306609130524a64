"""The Python that how-to guides show is run: a server, with a run and with an export, and scikit-learn."""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.tiny_runs import Runs

import glassformer

GUIDES = Path(__file__).parents[2] / "docs" / "how-to"


def python_of(guide: str) -> list[str]:
    text = (GUIDES / f"{guide}.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def executed(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(code, "guide", "exec"), names)
    return names


async def call(app: Any, body: bytes, path: str = "/predict", method: str = "POST") -> tuple[int, Any, int]:
    """Send one request to an application, without a socket; return its status, its answer and the parts not read."""
    chunks = [body[i : i + 50_000] for i in range(0, len(body), 50_000)] or [b""]
    messages = [{"type": "http.request", "body": c, "more_body": i < len(chunks) - 1} for i, c in enumerate(chunks)]
    sent = list[dict[str, Any]]()

    async def receive() -> dict[str, Any]:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b"", "root_path": ""}
    with suppress(Exception):  # the server logs it, after the answer
        await app(scope | {"http_version": "1.1", "scheme": "http", "server": ("localhost", 80)}, receive, send)
    return sent[0]["status"], json.loads(b"".join(m.get("body", b"") for m in sent[1:])), len(messages)


def test_exports_of_annotation_tools_become_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    convert, tags = python_of("tag-words")
    doccano = {"text": "Eva ran", "entities": [{"id": 1, "label": "PER", "start_offset": 0, "end_offset": 3}]}
    names = executed(f"import json\nrows = [{doccano!r}]\n{convert}")
    spans = {"text": "Eva ran", "spans": [{"start": 0, "end": 3, "label": "PER"}]}
    assert json.loads(Path("train.jsonl").read_text("utf-8")) == spans
    assert names["of_label_studio"]({"text": "Eva ran", "label": [{"start": 0, "end": 3, "labels": ["PER"]}]}) == spans
    assert names["of_spacy"](["Eva ran", {"entities": [[0, 3, "PER"]]}]) == spans
    assert names["of_prodigy"](spans | {"answer": "accept", "tokens": [{"text": "Eva"}]}) == spans
    assert names["of_prodigy"](spans | {"answer": "reject"}) is None
    given = "S-X O B-X E-X/U-X B-X L-X O/I-X I-X O I-Y/I-X B-X I-Y I-Y/B-X I-X B-X O"
    wanted = "B-X O B-X I-X/B-X B-X I-X O/B-X I-X O B-Y/B-X B-X B-Y I-Y/B-X I-X B-X O"
    assert [*map(executed(tags)["iob2"], map(str.split, given.split("/")))] == [*map(str.split, wanted.split("/"))]


@pytest.fixture(scope="module")
def served(runs: Runs) -> dict[str, Any]:
    return executed(python_of("serve-a-run")[0].replace('"runs/reviews"', repr(str(runs.classify))))


def test_a_run_is_served(served: dict[str, Any], runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    def posted(body: bytes, **more: Any) -> Any:
        return asyncio.run(call(served["app"], body, **more))

    assert compile(python_of("serve-a-run")[1], "guide", "exec")  # the line that loads an export instead
    status, answer, _ = posted(b'{"text": "a good film"}')
    assert status == 200 and answer == glassformer.load(runs.classify).predict("a good film")
    for body in (b"", b"{", b"\xff", b"[" * 50_000, b"[]", b"{}", b'{"text": null}', b'{"text": "\\ud800"}'):
        status, answer, _ = posted(body)
        assert status == 400 and "expected JSON" in answer["error"], body[:20]
    status, answer, left = posted(b"a" * 5_000_000)
    assert status == 413 and "more than 100,000 bytes" in answer["error"] and left > 90, "it is not read to its end"
    assert posted(b"{}", path="/")[:2] == (404, {"error": "Not Found"})
    assert posted(b"{}", method="GET")[:2] == (405, {"error": "Method Not Allowed"})
    monkeypatch.setattr(served["model"], "predict", lambda text: 1 // 0)
    assert posted(b'{"text": "a"}')[:2] == (500, {"error": "internal error"})


def test_one_request_is_answered_at_a_time(served: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    running, most = list[str](), list[int]()

    def predict(text: str) -> dict[str, str]:
        running.append(text)
        most.append(len(running))
        time.sleep(0.005)  # long enough for another to begin, if it could
        running.remove(text)
        return {"text": text}

    async def together() -> list[Any]:
        return await asyncio.gather(*(call(served["app"], b'{"text": "%d"}' % i) for i in range(20)))

    monkeypatch.setattr(served["model"], "predict", predict)
    answers = asyncio.run(together())
    assert [answer["text"] for _, answer, _ in answers] == [str(i) for i in range(20)] and {*most} == {1}


@pytest.mark.slow
def test_the_guide_to_scikit_learn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    given = (
        "texts = [f'a {word} film, number {i}' for i in range(30) for word in ('bad', 'good')]\nlabels = [7, 8] * 30\n"
    )
    names = executed(given + "\n".join(python_of("use-with-scikit-learn")))
    best = names["search"].best_estimator_
    assert best.lr in (5e-4, 2e-3) and best.classes_.tolist() == [7, 8]
    labels = [best.run_.predict(text)["label"] for text in names["texts"][:4]]
    assert best.predict(names["texts"][:4]).tolist() == [best.classes_[int(label)] for label in labels]
