"""The page with the model, from a disk: it answers any text, asks nobody, and keeps to its policy."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.browser.app import Open, Watch
from tests.browser.models import MODELS, SCREENS, TEXTS, subject_of
from tests.browser.test_texts import FAMILIES, TEXT, hostile_run

from glassformer.explain.explanation import TraceRequest, explain
from glassformer.explain.page.model_page import model_page
from glassformer.run import Run

CLASSIFIER, TRANSLATOR = "classify, pre-norm", "translate, pre-norm"


@pytest.fixture
def file_of(tmp_path: Path) -> Callable[..., Path]:
    def write(run: Run, name: str = "page.html", change: Callable[[str], str] = str) -> Path:
        page, _ = model_page(run, [], lambda *_: (1, 1))
        (tmp_path / name).write_text(change(page), encoding="utf-8")
        return tmp_path / name

    return write


@pytest.mark.parametrize("name", [CLASSIFIER, TRANSLATOR])
def test_another_text_is_answered_edited_and_learned(
    app: Open, watch: Watch, file_of: Callable[..., Path], name: str
) -> None:
    run, file = subject_of(MODELS[name]), file_of(subject_of(MODELS[name]))
    page = app(file)
    for text in (TEXTS[MODELS[name][0]][::-1], "g e"):
        page.trace(text)
        assert page.text("[data-role=answer] strong") == explain(run, TraceRequest(text)).answer["headline"]
    edits = "encoder.0.self.out[token:0]=0"
    for screen in SCREENS:
        for params in ({"text": "g e"}, {"text": "g e", "edits": edits}, {"text": "g e", "answer": "good"}):
            if screen != "training" and ("answer" not in params or name == CLASSIFIER):
                page.go(screen, **params)
                page.settle()
                assert page.texts("[role=alert]") == []
    page.go("step", text="g e", node="encoder.0.self.weights")
    assert page.check("encoder.0.self.weights") == "ok"
    assert {url.split("#")[0] for url in watch.requests} == {file.as_uri()}


@pytest.mark.parametrize("kind", FAMILIES)
def test_hostile_words_and_classes_are_text_in_it(app: Open, file_of: Callable[..., Path], kind: str) -> None:
    page = app(file_of(hostile_run(kind)))
    scripts = page.count("script")
    for screen in SCREENS[:6]:
        page.go(screen, text=TEXT, max_new_tokens=5)
        page.settle()
        assert page.page.evaluate("window.pwned") is None and page.count("script") == scripts


def test_it_stands_in_a_sandboxed_frame(app: Open, file_of: Callable[..., Path], tmp_path: Path) -> None:
    file_of(subject_of(MODELS[CLASSIFIER]))
    (tmp_path / "outer.html").write_text('<iframe sandbox="allow-scripts" src="page.html"></iframe>', encoding="utf-8")
    page = app(file_of(subject_of(MODELS[CLASSIFIER]), "other.html")).page
    page.goto((tmp_path / "outer.html").as_uri())
    page.frame_locator("iframe").locator("[data-role=answer]").wait_for()


def test_long_work_is_shown_and_stopped(app: Open, file_of: Callable[..., Path]) -> None:
    run = subject_of((CLASSIFIER.partition(",")[0], {"n_layers": 6, "d_model": 64, "d_ff": 256}), max_len=400)
    page = app(file_of(run))
    page.go("why", text=" ".join("abcdefg"[i % 7] * (i % 5 + 1) for i in range(60)))
    page.click("[data-role=stop]")
    page.until("() => [...document.querySelectorAll('[role=alert]')].some(one => one.textContent.includes('stopped'))")
    page.trace("a b")  # the page lives
    page.gone("[data-role=stop]")


def test_a_damaged_file_says_so(app: Open, watch: Watch, file_of: Callable[..., Path]) -> None:
    run = subject_of(MODELS[CLASSIFIER])
    damaged = file_of(run, change=lambda page: re.sub(r'\],"eN', '],"eJ', page, count=1))
    page, watch.expected = app(file_of(run, "other.html")), "damaged"
    page.page.goto(damaged.as_uri())
    page.wait("[role=alert]")
    assert "This file is damaged" in page.text("[role=alert]")
