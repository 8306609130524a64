"""A text of 128 tokens is on the screen, and answers, in under two seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.browser.app import App
from tests.browser.models import subject_of

from glassformer.explain.explanation import TraceRequest, explain
from glassformer.explain.page.report import report_html
from glassformer.run import Run

SECONDS = 2.0 if "PYTEST_XDIST_WORKER" not in os.environ else 6.0
"""Alone on the machine two seconds, as promised; beside another worker of the suite, which has one of the cores and
most of the browser's time, only that nothing has become slow by an order."""
N_TOKENS = 128
REQUEST = TraceRequest("abcdefg " * 15 + "abcdefg", decode={"max_new_tokens": 1})
"""127 characters and one that is written."""
DRAWN = "() => { const all = [...document.querySelectorAll('main canvas')]; return all.length > 3 && all.every(c => c.width > 1) }"


@pytest.fixture(scope="module")
def run() -> Run:
    """A model of the size that must be quick: 6 layers, 256 features, 8 heads."""
    return subject_of(("lm", {"n_layers": 6, "d_model": 256, "n_heads": 8, "d_ff": 1024}), max_len=256)


@pytest.mark.parametrize("screen", ["flow", "attention"])
def test_128_tokens_within_two_seconds(app: Callable[..., App], run: Run, screen: str) -> None:
    """The best of five, from asking on: a busy machine says nothing about the page."""
    assert len(explain(run, REQUEST).streams[0].ids) == N_TOKENS
    page = app(run, screen, text="abc", max_new_tokens=1)
    took: list[float] = []
    for attempt in range(5):
        page.page.goto("about:blank")
        page.open(screen, text="abc", max_new_tokens=1)
        asked = REQUEST.text[attempt:] + "defga"[:attempt]
        began = time.perf_counter()
        page.page.evaluate("hash => { location.hash = hash }", f"#/{screen}?max_new_tokens=1&text={asked}")
        page.until("text => document.querySelector('[data-role=text]').value === text", asked)
        page.ready(screen)
        page.until(DRAWN)
        page.press("2")  # and it listens
        page.ready("step")
        page.press(" ")
        page.until("() => location.hash.includes('node=')")
        took.append(time.perf_counter() - began)
        if took[-1] < SECONDS:
            return
    pytest.fail(f"never within {SECONDS} s: {took}")


def test_a_saved_page_of_128_tokens_opens_within_two_seconds(
    app: Callable[..., App], run: Run, tmp_path: Path
) -> None:
    explanation = explain(run, REQUEST)
    assert len(explanation.streams[0].ids) == N_TOKENS
    html, _ = report_html(explanation, seconds=0)
    file = tmp_path / "report.html"
    file.write_text(html, encoding="utf-8")
    took: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        page = app(file, "attention")
        page.until(DRAWN)
        took.append(time.perf_counter() - began)
        if took[-1] < SECONDS:
            return
    pytest.fail(f"never within {SECONDS} s: {took}")
