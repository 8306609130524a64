"""Texts that try to be something else: markup, controls, other scripts. Each must come out as text, everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.browser.app import App
from tests.browser.models import Parts, subject_of

from glassformer.data.splits import Split, TextData
from glassformer.explain.explanation import TraceRequest, explain
from glassformer.explain.page.saved_page import saved_page_html
from glassformer.run import Run

SCREENS = ("flow", "step", "attention", "decode", "why", "compare")
HOSTILE = [
    "</script><script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<!--",
    "]]>",
    "'\"`",
    "__proto__",
    "\U0001f469\u200d\U0001f680",  # an emoji of three characters
    "\U0001f600",
    "שלום",
    "مرحبا",
    "漢字かな",
    "\u202eright\u202c",
    "e\u0301\u0323",
    "\x1b[31m",
    "\ufffe\x7f",
    "🏳️‍🌈",
    "%3Cb%3E",
    "{{7*7}}",
]
TEXT = " ".join(HOSTILE)
FAMILIES: dict[str, Parts] = {
    "char": ("lm", {"n_layers": 1}),
    "byte-bpe": ("lm", {"n_layers": 1}),
    "bpe": ("translate", {"n_layers": 1}),
    "word": ("classify", {"n_layers": 1}),
}


def hostile_run(kind: str) -> Run:
    """A model that learned its tokenizer from hostile texts, and whose classes have hostile names."""
    task = FAMILIES[kind][0]
    answers = {"classify": ["</script><b>no</b>", "<i>yes"] * 15, "translate": [TEXT] * 30}.get(task)
    split = Split([TEXT] * 30, answers, "train")
    data = TextData(split, split, split)
    vocab = {"char": 200, "byte-bpe": 400, "bpe": 600, "word": 300}[kind]
    return subject_of(FAMILIES[kind], data, 500, tokenizer=kind, vocab_size=vocab)


@pytest.mark.parametrize(
    "kind", [*(pytest.param(k, marks=pytest.mark.slow) for k in ("char", "byte-bpe")), "bpe", "word"]
)
def test_hostile_texts_are_text_on_every_screen(app: Callable[..., App], tmp_path: Path, kind: str) -> None:
    run = hostile_run(kind)
    text = TEXT if kind != "byte-bpe" else TEXT[:140]
    decode = {"max_new_tokens": 5} if kind != "word" else {}
    explanation = explain(run, TraceRequest(text, **({"decode": decode} if decode else {})))
    file = tmp_path / "report.html"
    file.write_text(saved_page_html(explanation, seconds=0)[0], encoding="utf-8")
    for page in (app(run, "flow", text=text, **decode), app(file, "flow")):
        scripts = page.page.locator("script").count()
        for screen in SCREENS:
            page.go(screen, **({"text": text} | decode if page.base.startswith("http") else {}))
            page.settle()
            assert page.page.evaluate("window.pwned") is None
            assert page.page.locator("script").count() == scripts
            assert page.page.locator("img, iframe, object, embed").count() == 0
            width = page.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert width <= 0, f"{screen} is {width} pixels too wide"
        answer = page.page.inner_text("[data-role=answer]")
        if kind == "word":
            assert explanation.answer["headline"] in answer and "<" in answer
        assert page.page.input_value("[data-role=text]") == text


def test_tokens_are_written_as_they_are(app: Callable[..., App]) -> None:
    run = hostile_run("word")
    page = app(run, "flow", text=TEXT, unfold="text")
    explanation = explain(run, TEXT)
    (stream,) = explanation.streams
    shown = page.page.locator("[data-stream=text] [data-token]").evaluate_all(
        "tokens => Object.fromEntries(tokens.map(t => [t.dataset.token, t.textContent]))"
    )
    assert len(shown) == len(stream.pieces)
    for i, piece in enumerate(stream.pieces):
        if piece.isprintable():
            assert piece in shown[str(i)]
