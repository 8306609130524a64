"""A text of 128 tokens is on the screen, and answers, for under two seconds of a processor."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page
from tests.browser.app import App
from tests.browser.models import subject_of

from glassformer.explain.explanation import TraceRequest, explain
from glassformer.explain.page.saved_page import saved_page_html
from glassformer.run import Run

SECONDS = 2.0
"""Of a processor, the server's and the page's together: what else a machine is busy with is no matter of ours."""
N_TOKENS = 128
REQUEST = TraceRequest("abcdefg " * 15 + "abcdefg", decode={"max_new_tokens": 1})
"""127 characters and one that is written."""
DRAWN = """() => {
    const all = [...document.querySelectorAll("main canvas")];
    return all.length > 3 && all.every(c => c.width > 1);
}"""


@pytest.fixture(scope="module")
def run() -> Run:
    """A model of the size that must be quick: 6 layers, 256 features, 8 heads."""
    return subject_of(("lm", {"n_layers": 6, "d_model": 256, "n_heads": 8, "d_ff": 1024}), max_len=256)


class Stopwatch:
    """Processor seconds of this process, which serves, and of the thread that a page's scripts, styles and layout
    run on.
    """

    def __init__(self, page: Page) -> None:
        self.session = page.context.new_cdp_session(page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def read(self) -> float:
        metrics = self.session.send("Performance.getMetrics")["metrics"]
        return time.process_time() + next(m["value"] for m in metrics if m["name"] == "TaskDuration")


@pytest.mark.parametrize("screen", ["flow", "attention"])
def test_128_tokens_within_two_seconds(app: Callable[..., App], run: Run, screen: str) -> None:
    """The best of five, from asking on: a cold cache says nothing about the page."""
    assert len(explain(run, REQUEST).streams[0].ids) == N_TOKENS
    page = app(run, screen, text="abc", max_new_tokens=1)
    stopwatch = Stopwatch(page.page)
    took: list[float] = []
    for attempt in range(5):
        page.page.goto("about:blank")
        page.open(screen, text="abc", max_new_tokens=1)
        requested = REQUEST.text[attempt:] + "defga"[:attempt]
        began = stopwatch.read()
        page.page.evaluate("hash => { location.hash = hash }", f"#/{screen}?max_new_tokens=1&text={requested}")
        page.until("text => document.querySelector('[data-role=text]').value === text", requested)
        page.ready(screen)
        page.until(DRAWN)
        page.press("2")  # and it listens
        page.ready("step")
        page.press(" ")
        page.until("() => location.hash.includes('node=')")
        took.append(stopwatch.read() - began)
        if took[-1] < SECONDS:
            return
    pytest.fail(f"never within {SECONDS} s: {took}")


def test_a_saved_page_of_128_tokens_opens_within_two_seconds(app: Callable[..., App], run: Run, tmp_path: Path) -> None:
    explanation = explain(run, REQUEST)
    assert len(explanation.streams[0].ids) == N_TOKENS
    html, _ = saved_page_html(explanation, seconds=0)
    file = tmp_path / "report.html"
    file.write_text(html, encoding="utf-8")
    page = app(file, "attention")
    stopwatch = Stopwatch(page.page)
    took: list[float] = []
    for _ in range(5):
        page.page.goto("about:blank")
        began = stopwatch.read()
        page.open("attention")
        page.until(DRAWN)
        took.append(stopwatch.read() - began)
        if took[-1] < SECONDS:
            return
    pytest.fail(f"never within {SECONDS} s: {took}")
