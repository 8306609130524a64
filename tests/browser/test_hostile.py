"""Texts that try to be something else: markup, controls, other scripts. Each must come out as text, everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.browser.app import Open
from tests.browser.models import Parts, subject_of
from tests.browser.test_screens import SCREENS

from glassformer.data.splits import Split, TextData
from glassformer.explain.explanation import TraceRequest, explain
from glassformer.run import Run

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
FAMILIES: dict[str, Parts] = {"bpe": ("translate", {"n_layers": 1}), "word": ("classify", {"n_layers": 1})}


def hostile_run(kind: str) -> Run:
    """A model that learned its tokenizer from hostile texts, and whose classes have hostile names."""
    task = FAMILIES[kind][0]
    answers = {"classify": ["</script><b>no</b>", "<i>yes"] * 15, "translate": [TEXT] * 30}.get(task)
    split = Split([TEXT] * 30, answers, "train")
    data = TextData(split, split, split)
    return subject_of(FAMILIES[kind], data, 500, tokenizer=kind, vocab_size=600)


@pytest.mark.parametrize("kind", FAMILIES)
def test_hostile_texts_are_text_on_every_screen(app: Open, saved: Callable[..., Path], kind: str) -> None:
    run = hostile_run(kind)
    decode = {"max_new_tokens": 5} if kind != "word" else {}
    explanation = explain(run, TraceRequest(TEXT, decode=decode))
    for page in (app(run, "flow", text=TEXT, **decode), app(saved(explanation, seconds=0), "flow")):
        scripts = page.count("script")
        for screen in SCREENS[:6]:
            page.go(screen, **({"text": TEXT} | decode if page.base.startswith("http") else {}))
            page.settle()
            assert page.page.evaluate("window.pwned") is None
            assert page.count("script") == scripts and page.count("img, iframe, object, embed") == 0
            width = page.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert width <= 0, f"{screen} is {width} pixels too wide"
        answer = page.text("[data-role=answer]")
        if kind == "word":
            assert explanation.answer["headline"] in answer and "<" in answer
        assert page.page.input_value("[data-role=text]") == TEXT
    if kind == "word":  # and tokens are written as they are
        page = app(run, "flow", text=TEXT, unfold="text")
        pieces, shown = explanation.streams[0].pieces, page.all("[data-stream=text] [data-token]", "one.textContent")
        assert all(piece in text for piece, text in zip(pieces, shown, strict=True) if piece.isprintable())
