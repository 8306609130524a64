"""A text of 128 tokens is on the screen, and answers, for under two seconds of a processor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import CDPSession
from tests.browser.app import App, Open
from tests.browser.models import subject_of

from glassformer.explain.explanation import TraceRequest, explain
from glassformer.run import Run

SECONDS = 2.0
"""Of a processor, the server's and the page's together: what else a machine is busy with is no matter of ours."""
TEXT = "abcdefg " * 15 + "abcdefg"
"""127 characters; one is written."""
DRAWN = """() => {
    const all = [...document.querySelectorAll("main canvas")];
    return all.length > 3 && all.every(c => c.width > 1);
}"""


@pytest.fixture(scope="module")
def run() -> Run:
    """A model of the size that must be quick: 6 layers, 256 features, 8 heads."""
    return subject_of(("lm", {"n_layers": 6, "d_model": 256, "n_heads": 8, "d_ff": 1024}), max_len=256)


def seconds(session: CDPSession) -> float:
    """Processor seconds of this process, which serves, and of the thread of a page's scripts, styles and layout."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return time.process_time() + next(m["value"] for m in metrics if m["name"] == "TaskDuration")


def best_of_five(page: App, attempt: Callable[[int], Iterator[None]]) -> None:
    """From the first `yield` of an attempt on it takes less than so many seconds, at least once."""
    session = page.page.context.new_cdp_session(page.page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    took: list[float] = []
    for number in range(5):
        page.page.goto("about:blank")
        steps = attempt(number)
        next(steps)
        began = seconds(session)
        next(steps, None)
        took.append(seconds(session) - began)
        if took[-1] < SECONDS:
            return
    pytest.fail(f"never within {SECONDS} s: {took}")


@pytest.mark.parametrize("screen", ["flow", "attention"])
def test_128_tokens_within_two_seconds(app: Open, run: Run, screen: str) -> None:
    """From asking on: a cold cache says nothing about the page."""
    page = app(run, screen, text="abc", max_new_tokens=1)

    def attempt(number: int) -> Iterator[None]:
        page.open(screen, text="abc", max_new_tokens=1)
        requested = TEXT[number:] + "defga"[:number]
        yield
        page.page.evaluate("hash => { location.hash = hash }", f"#/{screen}?max_new_tokens=1&text={requested}")
        page.until("text => document.querySelector('[data-role=text]').value === text", requested)
        page.ready(screen)
        page.until(DRAWN)
        page.press("2")  # and it listens
        page.ready("step")
        page.press(" ")
        page.until("() => location.hash.includes('node=')")

    best_of_five(page, attempt)


def test_a_saved_page_of_128_tokens_opens_within_two_seconds(app: Open, run: Run, saved: Callable[..., Path]) -> None:
    e = explain(run, TraceRequest(TEXT, decode={"max_new_tokens": 1}))
    assert len(e.streams[0]) == 128
    page = app(saved(e, seconds=0), "attention")

    def attempt(_: int) -> Iterator[None]:
        yield
        page.open("attention")
        page.until(DRAWN)

    best_of_five(page, attempt)
