"""The report is one file that holds its own numbers: parsed as a browser would, against what Python has."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.for_each import for_each
from tests.helpers.serving import DTYPES, TEXTS, tiny_run

from glassformer.errors import UsageError
from glassformer.explain.explanation import TraceRequest, explain
from glassformer.explain.page.saved_page import html_json, saved_attributions, saved_page_html, size_of
from glassformer.explain.page.security import WHOLE, asset

HOSTILE = "</script><script>alert(1)</script> <!-- ]]> \u2028 \u2029 & 日本 🙂 \u202eabc good"


class Page(HTMLParser):
    """What a browser would see: the elements, and the content of each script and style."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.inside = False
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.contents: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.contents.append((*self.elements[-1], data))

    def data(self) -> dict[str, Any]:
        [text] = [t for _, attrs, t in self.contents if attrs.get("id") == "glassformer-data"]
        return json.loads(text)

    def policy(self) -> str:
        [policy] = [a["content"] for t, a in self.elements if "http-equiv" in a]
        return str(policy)


def tensor(packed: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(packed["data"]), DTYPES[packed["dtype"]]).reshape(packed["shape"])


@pytest.fixture(scope="module", params=list(TEXTS))
def made(request: pytest.FixtureRequest) -> tuple[str, str, list[str]]:
    """Name of the task, the report, and what it left out."""
    name = request.param
    question = TraceRequest.from_dict({"text": TEXTS[name], "decode": {"max_new_tokens": 4}})
    return name, *saved_page_html(explain(tiny_run(name), question))


def test_it_needs_nothing_but_itself(made: tuple[str, str, list[str]]) -> None:
    page = Page(made[1])
    for tag, attrs in page.elements:
        assert "src" not in attrs, tag
        assert (attrs.get("href") or "data:").startswith("data:"), tag
    policy = page.policy()
    assert "default-src 'none'" in policy and "connect-src 'none'" in policy and "unsafe" not in policy
    [script] = [t for tag, attrs, t in page.contents if tag == "script" and not attrs]
    [style] = [t for tag, _, t in page.contents if tag == "style"]
    for kind, content in (("script", script), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert re.search(r"<meta charset=\"utf-8\">", made[1][:1024])


def test_its_numbers_are_those_of_python(made: tuple[str, str, list[str]]) -> None:
    name, html, _ = made
    data = Page(html).data()
    [manifest] = data["traces"]
    question = TraceRequest.from_dict({"text": TEXTS[name], "decode": {"max_new_tokens": 4}})
    reference = explain(tiny_run(name), question)
    packed = data["tensors"][manifest["id"]]
    assert packed.keys() == {n["id"] for n in manifest["nodes"]} | manifest["params"].keys()
    for key, value in packed.items():
        expected = reference.tensor(key)
        assert value["dtype"] in ("f16", "i32", "u8"), "nothing of a new model is beyond 16 bits"
        np.testing.assert_allclose(tensor(value), expected, rtol=1e-3, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("name", ["translate", "lm"])
def test_logits_of_a_large_vocabulary_are_left_out_and_said_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.explain.page.saved_page.MAX_LOGITS_BYTES", 10)
    explanation = explain(tiny_run(name), TEXTS[name])
    html, dropped = saved_page_html(explanation)
    assert any("Logits of the whole vocabulary" in sentence for sentence in dropped)
    assert "logits" not in Page(html).data()["tensors"][explanation.id]


def test_words_are_weighed_and_each_erased(made: tuple[str, str, list[str]]) -> None:
    name, html, _ = made
    data = Page(html).data()
    [manifest] = data["traces"]
    weighed = [(a["request"]["method"], a["request"].get("prediction")) for a in data["attributions"]]
    methods = ("erase", "integrated_gradients")
    if name == "classify":
        assert weighed == [(method, None) for method in methods]
        [stream] = manifest["streams"]
        assert len(data["erased"]) == len(stream["word_texts"])
    else:
        stream = manifest["streams"][-1]
        wrote = [i for i, p in enumerate(manifest["predictions"]) if p["actual"]]
        if name == "lm":
            wrote = [i for i in wrote if manifest["predictions"][i]["position"] + 1 >= stream["n_given"]]
        assert weighed == [(method, i) for method in methods for i in wrote] != []
    for erased in data["erased"]:
        [(stream_name, positions)] = erased["request"]["erase"].items()
        stream = next(s for s in manifest["streams"] if s["name"] == stream_name)
        assert len({stream["words"][i] for i in positions}) == 1 and stream["words"][positions[0]] >= 0


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    explanation = explain(tiny_run("classify"), HOSTILE)
    html, _ = saved_page_html(explanation)
    page = Page(html)
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert page.data()["traces"][0]["request"]["text"] == HOSTILE
    assert "alert(1)</script>" not in html and "\u2028" not in html
    for text in ("<!--", "</SCRIPT>", "<\u2029&amp;>", '"é漢\\😀\x7f'):
        assert not set("<>&") & set(html_json(text)) and html_json(text).isascii()
        assert json.loads(html_json(text)) == text


def test_a_full_file_says_what_it_lacks() -> None:
    explanation = explain(tiny_run("classify"), TEXTS["classify"])
    whole, nothing = saved_page_html(explanation)
    assert nothing == []
    limit = len(whole) - 20_000
    html, dropped = saved_page_html(explanation, max_bytes=limit)
    assert len(html.encode()) <= limit
    data = Page(html).data()
    [sentence] = dropped
    assert data["dropped"] == dropped and "to limit the size of the file" in sentence
    manifest = data["traces"][0]
    kept = data["tensors"][manifest["id"]].keys()
    weights = [n["id"] for n in manifest["nodes"] if n["op"] == "softmax"]
    assert weights and kept >= set(weights), "attention is kept for longest"
    everything = {n["id"] for n in manifest["nodes"]} | manifest["params"].keys()
    n_missing = len(everything) - len(kept)
    assert n_missing > 0 and sentence.startswith(f"{n_missing} tensors")


@for_each("name", ["classify", "translate"])
def test_the_limit_is_of_the_whole_file(name: str) -> None:
    """Weights of words and erasures count, too; when there is no room they are left out, and that is reported."""
    explanation = explain(tiny_run(name), TEXTS[name])
    sizes = []
    for limit in (450_000, 300_000, 10_000_000):
        try:
            html, dropped = saved_page_html(explanation, max_bytes=limit, seconds=600)
        except UsageError as error:
            assert limit < 450_000 and f"more than {limit:,}" in error.message
            continue
        assert len(html.encode()) <= limit
        data = Page(html).data()
        sizes.append(len(data["attributions"]) + len(data["erased"]))
    assert dropped == [] and sizes[0] <= sizes[-1]
    n = sum(
        one["request"].get("prediction") == data["attributions"][0]["request"].get("prediction")
        for one in data["erased"]
    )
    least = size_of([data["attributions"][0], *data["erased"][:n]]) + 60  # seconds differ in length
    output: list[str] = []
    saved = saved_attributions([explanation], time.monotonic() + 60, output, least)
    assert size_of([*saved["attributions"], *saved["erased"]]) <= least
    assert len(saved["attributions"]) == 1 and len(saved["erased"]) == n and "are left out" in output[0]


@for_each("name, kept, left", [("translate", [], 2), ("classify", ["erase"], 1)])
def test_time_that_runs_out_is_told(name: str, kept: list[str], left: int) -> None:
    """A slow classifier, with hundreds of words, has the scores by erasing alone."""
    dropped: list[str] = []
    explanation = explain(tiny_run(name), TEXTS[name])
    saved = saved_attributions([explanation], time.monotonic() - 1, dropped, 10**9)
    assert [one["request"]["method"] for one in saved["attributions"]] == kept and bool(saved["erased"]) == bool(kept)
    assert len(dropped) == left and all("answers are left out" in sentence for sentence in dropped)
    assert "by integrated gradients" in dropped[-1]


def test_two_to_compare_are_written_at_once(tmp_path: Path) -> None:
    run = tiny_run("classify")
    first, second = explain(run, "a good b", trace_id="t1"), explain(run, "a bad b", trace_id="t2")
    data = Page(saved_page_html(first, other=second)[0]).data()
    assert [m["request"]["text"] for m in data["traces"]] == ["a good b", "a bad b"]
    assert data["tensors"].keys() == {"t1", "t2"}
    params = data["traces"][0]["params"].keys()
    assert data["tensors"]["t1"].keys() >= params, "shared parameters are stored once"
    assert not data["tensors"]["t2"].keys() & params
    assert "encoder.0.self.weights" in data["tensors"]["t2"]
    assert {a["request"]["trace"] for a in data["attributions"]} == {"t1", "t2"}
    first.save(tmp_path / "new" / "a.html")
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a.html"]


def test_the_built_page_can_be_inlined() -> None:
    assert not re.search(r"</script|<!--", asset(WHOLE), re.IGNORECASE) and "</style" not in asset("app.css").lower()
