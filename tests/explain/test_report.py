"""The report is one file that holds its own numbers: parsed as a browser would, against what Python has.

And a page of some steps: it holds them, what they are computed from, and nothing more.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import step_frame
from step_frame import learn_frame_html, step_address, step_frame_html
from tests.browser.models import subject_of
from tests.helpers.for_each import for_each
from tests.helpers.matrix import TEXTS as ALL_TEXTS
from tests.helpers.matrix import matrix_run
from tests.helpers.serving import DTYPES, TEXTS

from glassformer.errors import UsageError
from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.explain.page.saved_page import WHOLE, asset, html_json, saved_attributions, saved_page_html, size_of
from glassformer.run import Run

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


def tensor(packed: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(packed["data"]), DTYPES[packed["dtype"]]).reshape(packed["shape"])


def tiny_run(name: str) -> Run:
    return subject_of((name, {"n_layers": 1, "d_model": 32, "d_ff": 64}))


@pytest.fixture(scope="module", params=list(TEXTS))
def made(request: pytest.FixtureRequest) -> tuple[Explanation, str]:
    """An explanation and its report."""
    text = TEXTS[request.param]
    e = explain(tiny_run(request.param), TraceRequest.from_dict({"text": text, "decode": {"max_new_tokens": 4}}))
    return e, saved_page_html(e)[0]


def test_it_needs_nothing_but_itself(made: tuple[Explanation, str]) -> None:
    page = Page(made[1])
    for tag, attrs in page.elements:
        assert "src" not in attrs and (attrs.get("href") or "data:").startswith("data:"), tag
    [policy] = [str(a["content"]) for t, a in page.elements if "http-equiv" in a]
    assert "default-src 'none'" in policy and "connect-src 'none'" in policy and "unsafe" not in policy
    [script] = [t for tag, attrs, t in page.contents if tag == "script" and not attrs]
    [style] = [t for tag, _, t in page.contents if tag == "style"]
    for kind, content in (("script", script), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert re.search(r"<meta charset=\"utf-8\">", made[1][:1024])
    assert not re.search(r"</script|<!--", asset(WHOLE), re.IGNORECASE) and "</style" not in asset("app.css").lower()


def test_words_are_weighed_and_each_erased(made: tuple[Explanation, str]) -> None:
    e, data = made[0], Page(made[1]).data()
    weighed = [(a["request"]["method"], a["request"].get("prediction")) for a in data["attributions"]]
    explained = [None] if e.is_classifier else [i for i, p in enumerate(e.predictions) if p.actual]
    if e.subject.task.name == "lm":  # of a prompt nothing was predicted
        explained = [i for i in explained if e.predictions[i].position + 1 >= e.streams[0].n_given]
    assert weighed == [(method, i) for method in ("erase", "integrated_gradients") for i in explained] != []
    assert not e.is_classifier or len(data["erased"]) == len(e.streams[0].word_texts)
    for erased in data["erased"]:
        [(name, positions)] = erased["request"]["erase"].items()
        words = next(stream.words for stream in e.streams if stream.name == name)
        assert len({words[i] for i in positions}) == 1 and words[positions[0]] >= 0


@pytest.mark.parametrize("name", ["translate", "lm"])
def test_logits_of_a_large_vocabulary_are_left_out_with_a_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.explain.page.saved_page.MAX_LOGITS_BYTES", 10)
    explanation = explain(tiny_run(name), TEXTS[name])
    html, dropped = saved_page_html(explanation, seconds=0)
    assert any("Logits of the whole vocabulary" in sentence for sentence in dropped)
    assert "logits" not in Page(html).data()["tensors"][explanation.id]


def test_hostile_text_stays_text() -> None:
    html, _ = saved_page_html(explain(tiny_run("classify"), HOSTILE), seconds=0)
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
    n_missing = len({n["id"] for n in manifest["nodes"]} | manifest["params"].keys()) - len(kept)
    assert n_missing > 0 and sentence.startswith(f"{n_missing} tensors")


@for_each("name", ["classify", "translate"])
def test_the_limit_is_of_the_whole_file(name: str) -> None:
    """Weights of words and erasures count, too; when there is no room they are left out, and that is reported."""
    explanation = explain(tiny_run(name), TraceRequest("ab", target="ba") if name == "translate" else "a b good")
    with pytest.raises(UsageError, match="more than 200,000"):
        saved_page_html(explanation, max_bytes=200_000, seconds=600)
    html, dropped = saved_page_html(explanation, seconds=600)
    longer = explain(tiny_run(name), TEXTS[name])
    assert len(saved_page_html(longer, max_bytes=450_000, seconds=600)[0].encode()) <= 450_000
    data, first = Page(html).data(), Page(html).data()["attributions"][0]
    of_first = [e for e in data["erased"] if e["request"].get("prediction") == first["request"].get("prediction")]
    least = size_of([first, *of_first]) + 60  # seconds differ in length
    output: list[str] = []
    saved = saved_attributions([explanation], time.monotonic() + 60, output, least)
    assert dropped == [] and size_of([*saved["attributions"], *saved["erased"]]) <= least
    assert len(saved["attributions"]) == 1 and len(saved["erased"]) == len(of_first) and "are left out" in output[0]


@for_each("name, kept, left", [("translate", [], 2), ("classify", ["erase"], 1)])
def test_time_that_runs_out_is_reported(name: str, kept: list[str], left: int) -> None:
    """A slow classifier, with hundreds of words, has the scores by erasing alone."""
    dropped: list[str] = []
    explanation = explain(tiny_run(name), TEXTS[name])
    saved = saved_attributions([explanation], time.monotonic() - 1, dropped, 10**9)
    assert [one["request"]["method"] for one in saved["attributions"]] == kept and bool(saved["erased"]) == bool(kept)
    assert len(dropped) == left and all("answers are left out" in sentence for sentence in dropped)
    assert "by integrated gradients" in dropped[-1]


TWO: list[tuple[Callable[[], Run], dict[str, Any], dict[str, Any]]] = [
    (lambda: tiny_run("classify"), {"text": "a good b"}, {"text": "a bad b"}),
    (lambda: matrix_run("multilabel"), {"text": ALL_TEXTS["multilabel"]}, {"text": "a b good", "label": "good"}),
    (lambda: matrix_run("classify", 3), {"text": "a good b", "member": 1}, {"text": "a good b", "member": 2}),
]
"""Two texts, two labels of a text, and two members of an ensemble."""


@for_each(("run", "first", "second"), TWO)
def test_two_to_compare_store_equal_parameters_once(run: Any, first: Any, second: Any, tmp_path: Path) -> None:
    made = run()
    one, other = (explain(made, TraceRequest(**each), trace_id=id) for each, id in ((first, "t1"), (second, "t2")))
    data = Page(saved_page_html(one, other=other, parameters=True)[0]).data()
    assert [trace["request"] for trace in data["traces"]] == [first, second]
    stored = data["tensors"]
    for id in data["traces"][0]["params"]:
        assert (id in stored["t2"]) == (not np.array_equal(one[id], other[id])), "what both share is stored once"
        for e in (one, other):
            packed = stored[e.id].get(id) or stored["t1"][id]
            np.testing.assert_allclose(tensor(packed), e[id], rtol=1e-3, atol=1e-6, err_msg=id)
    assert "encoder.0.self.weights" in stored["t2"]
    assert {a["request"]["trace"] for a in data["attributions"]} == {"t1", "t2"}
    one.save(tmp_path / "new" / "a.html")
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a.html"]


STEPS = ["encoder.0.self.q_proj", "encoder.0.self.weights"]


def test_it_holds_the_steps_their_inputs_and_their_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    explanation = explain(tiny_run("classify"), TEXTS["classify"])
    html = step_frame_html(explanation, STEPS[::-1], "../assets")
    data = Page(html).data()
    [trace] = data["traces"]
    assert [node["id"] for node in trace["nodes"]] == STEPS
    inputs = {id for node in trace["nodes"] for id in node["inputs"]}
    assert data["tensors"][trace["id"]].keys() == {*STEPS, *inputs, *trace["params"]}
    assert 'src="../assets/whole.js"' in html and 'href="../assets/app.css"' in html
    assert step_address("encoder.0.self.q", head=1) == "#/step?node=encoder.0.self.q&head=1&frame=step"
    with pytest.raises(UsageError, match=r"no step 'encoder.9'"):
        step_frame_html(explanation, ["encoder.9"], ".")
    monkeypatch.setattr(step_frame, "MAX_BYTES", 1000)
    with pytest.raises(UsageError, match="bytes, more than"):
        step_frame_html(explanation, STEPS, ".")


def test_what_was_learned_holds_the_loss_before_and_after_and_one_update() -> None:
    after = explain(tiny_run("classify"), TraceRequest(TEXTS["classify"], answer="good", learn_steps=2))
    data = Page(learn_frame_html(after, ["head.weight"], ".")).data()
    before, learned = data["traces"]
    assert not before["learning"]["learned"] and len(learned["learning"]["learned"]["steps"]) == 2
    losses = {"loss", "loss.each", "loss.probabilities", "loss.targets"}
    assert data["tensors"][before["id"]].keys() == losses
    kept = data["tensors"][learned["id"]].keys() - losses
    assert {"head.weight", "head.weight.before", "head.weight.clipped_grad"} < kept
    assert all(id.startswith("head.weight") for id in kept) and [*learned["params"]] == ["head.weight"]
