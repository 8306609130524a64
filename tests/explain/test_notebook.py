"""A notebook shows the page in a frame that can do nothing but run it, and something where it shows no HTML."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from tests.helpers.for_each import for_each
from tests.helpers.inference import untrained

from glassformer.errors import GlassformerError
from glassformer.explain.explanation import Explanation, explain
from glassformer.explain.figures.explanation_plots import attention_png
from glassformer.explain.page.notebook import page_iframe

TEXT = 'good </script> "quoted" &amp; <b> b c'


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    return explain(untrained("classify"), TEXT)


class Frames(HTMLParser):
    """Collects the tags of a fragment."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, Any]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@for_each("name", ["classify", "translate", "lm"])
def test_an_explanation_shows_itself_without_another_pass(name: str) -> None:
    """No attribution, no reading of alignments, and no megabytes in the notebook."""
    explanation = explain(untrained(name), "abc")
    passes: list[object] = []
    handle = explanation.subject.model.register_forward_pre_hook(lambda *_: passes.append(1))
    bundle = explanation._repr_mimebundle_()
    handle.remove()
    assert not passes and len(repr(bundle)) < 400_000
    assert bundle["text/plain"] == repr(explanation)
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")


def test_the_page_stands_in_a_frame_that_may_only_run_it(explanation: Explanation) -> None:
    bundle = explanation.page()._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert bundle["text/plain"] == repr(explanation)
    parser = Frames()
    parser.feed(bundle["text/html"])
    ((tag, attributes),) = parser.tags  # nothing of the text got out of the attribute
    assert tag == "iframe" and attributes["sandbox"] == "allow-scripts"
    page = attributes["srcdoc"]
    assert "connect-src 'none'" in page and "http://" not in page.replace("http://www.w3.org/", "")
    data = re.search(r'<script type="application/json" id="glassformer-data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["traces"][0]["request"]["text"] == TEXT


def test_where_the_page_is_not_built_a_sentence_says_so(
    explanation: Explanation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise GlassformerError(f"the page <{name}> is missing", "build it: make web")

    monkeypatch.setattr("glassformer.explain.page.saved_page.asset", missing)
    assert page_iframe(explanation) == "<p>the page &lt;index.html&gt; is missing build it: make web</p>"


def test_a_translation_shows_its_cross_attention() -> None:
    explanation = explain(untrained("translate"), "abc")
    assert attention_png(explanation).startswith(b"\x89PNG")
