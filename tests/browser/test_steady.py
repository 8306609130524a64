"""The page holds still: numbers that arrive late move nothing from under a pointer, and nothing from under the eyes.

A text of 128 tokens is on the screen, and answers, for under two seconds of a processor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import CDPSession
from tests.browser.app import App, Held, Open
from tests.browser.conftest import DESKTOP, PHONE
from tests.browser.models import CLASSIFIER, TRANSLATOR, WRITER, subject_of

from glassformer.explain.explanation import TraceRequest, explain
from glassformer.run import Run

AWAITED = ("**/t/**", "**/api/attribute")
"""What a screen asks for after the text was traced."""

MARK = """() => {
    const all = [...document.querySelectorAll("a, button, select, input, textarea, [role=button]")];
    window.marked = all.filter(one => one.getClientRects().length).map(one => {
        const { x, y } = one.getBoundingClientRect();
        return [one, x + scrollX, y + scrollY];
    });
    return window.marked.length;
}"""
MOVED = """() => window.marked.flatMap(([one, left, top]) => {
    const { x, y } = one.getBoundingClientRect();
    const moved = [x + scrollX - left, y + scrollY - top];
    const still = one.isConnected && Math.hypot(...moved) < 1;
    return still ? [] : [`${one.outerHTML.slice(0, 80)} moved by ${moved}`];
})"""
SCROLLED_BELOW_THE_SOURCE = "scrollY - document.querySelector('.step-how').offsetHeight"
"""Source lines of two steps, which are wrapped on a phone, differ in height."""
RECORD = """() => {
    window.frames_seen = [];
    const look = () => {
        window.frames_seen.push(scrollY);
        requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
}"""


def test_a_box_pressed_while_its_picture_comes_opens_its_step(app: Open) -> None:
    page, part = app(TRANSLATOR), "decoder.1.self.weights"
    held = Held(page, "**/t/**")
    page.reload()
    box = page.page.locator(f'[data-node-box="{part}"]').first
    box.scroll_into_view_if_needed()
    held.wait()
    assert box.locator("canvas").count() == 0
    found = box.bounding_box()
    assert found
    page.page.mouse.move(found["x"] + found["width"] / 2, found["y"] + found["height"] / 2)
    page.page.mouse.down()
    held.let_go()
    box.locator("canvas").wait_for()
    page.page.mouse.up()
    page.ready("step")
    assert page.param["node"] == part


@pytest.mark.parametrize(("family", "viewport"), [(TRANSLATOR, DESKTOP), (CLASSIFIER, PHONE)])
def test_nothing_moves_when_the_numbers_come(app: Open, family: str, viewport: dict[str, int]) -> None:
    page = app(family, options={"viewport": viewport})
    for screen in ("flow", "attention", "why"):
        page.go(screen)
        page.settle()
        held = Held(page, *AWAITED)
        page.reload()
        held.wait()
        assert page.page.evaluate(MARK) > 10
        held.let_go()
        assert page.page.evaluate(MOVED) == [], screen


@pytest.mark.parametrize("viewport", [DESKTOP | {"height": 600}, PHONE], ids=["desktop", "phone"])
def test_the_foot_of_a_step_stays_in_sight_from_cell_to_cell_and_step_to_step(
    app: Open, viewport: dict[str, int]
) -> None:
    at = {"node": "encoder.0.self.q_proj", "cell": "2,2", "arithmetic": 1}
    page = app(TRANSLATOR, "step", options={"viewport": viewport}, **at)
    page.settle()
    cell = page.page.locator("td[tabindex='0']")
    page.page.evaluate("scrollTo(0, 1e6)")
    cell.evaluate("cell => cell.focus({ preventScroll: true })")
    bottom = page.page.evaluate("scrollY")
    assert bottom > 200
    page.page.evaluate(RECORD)
    page.press("ArrowRight")
    page.wait("[data-role=arithmetic][data-cell='2,3'] .sum")
    page.settle()
    seen = page.page.evaluate("window.frames_seen")
    assert len(seen) > 3
    moved = {y for y in seen if abs(y - bottom) > 1}  # heights are fractions of a pixel, and scrolling rounds
    assert not moved, f"the page jumped from {bottom} to {moved} while another cell was worked out"

    page.page.evaluate("document.activeElement.blur(), scrollTo(0, 1e6)")
    below = page.page.evaluate(SCROLLED_BELOW_THE_SOURCE)
    held = Held(page, "**/t/**")
    page.press("ArrowRight")
    page.until("() => location.hash.includes('k_proj')")
    held.wait()
    jump = abs(page.page.evaluate(SCROLLED_BELOW_THE_SOURCE) - below)
    assert jump < 30, "the page jumped while a step's numbers were awaited"
    held.let_go()


@pytest.mark.parametrize(
    ("screen", "field", "stream"),
    [("flow", "text", "[data-stream=text]"), ("compare", "other-text", "[data-side=B] [data-stream=text]")],
)
def test_what_is_typed_while_a_trace_is_on_its_way_stays(app: Open, screen: str, field: str, stream: str) -> None:
    """And a second text that is removed meanwhile does not come back."""
    page = app(CLASSIFIER, screen)
    held = Held(page, "**/api/trace")
    area = page.page.locator(f"[data-role={field}]")
    area.fill("good good good")
    area.press("Enter")
    held.wait()
    area.fill("bad bad")
    held.let_go()
    page.until(f"() => document.querySelectorAll('{stream} [data-token]').length === 3")
    assert area.input_value() == "bad bad"
    area.press("Enter")
    page.until(f"() => document.querySelectorAll('{stream} [data-token]').length === 2")
    if screen == "compare":
        page.go("compare")
        held = Held(page, "**/api/trace")
        area.fill("good a b")
        area.press("Enter")
        held.wait()
        page.page.go_back()
        page.until("() => !location.hash.includes('o.text')")
        page.until("() => document.querySelector('main').getAttribute('aria-busy') === 'false'")
        held.let_go()
        page.page.wait_for_timeout(300)
        assert page.count("[data-side=B]") == 0


def test_a_new_text_has_all_its_words(app: Open) -> None:
    """What was erased in the last one, and what was asked of it, is not carried over."""
    page = app(TRANSLATOR, "why", text="abc de", erased="source:0", foil=7, position=1)
    page.settle()
    page.trace("fed cab")
    page.settle()
    assert not page.param.keys() & {"erased", "foil", "position", "class"}
    assert page.count("[data-word][aria-pressed=true]") == 0
    assert page.count("[data-word]") > 0


HANDLERS = """() => {
    const handlers = one => Object.values(one).flatMap(
        held => held && typeof held === "object" && !(held instanceof Node) ? Object.values(held) : []);
    const all = [...document.querySelectorAll("main a, main button, header a, header button, form, [data-token]")];
    const now = all.map(one => [one, handlers(one).filter(held => typeof held === "function")]);
    const before = window.handlers_before;
    window.handlers_before = now;
    const view = one => one.closest("[data-word]") ? "word"
        : one.closest("[data-stream]")?.dataset.stream ?? one.closest("[data-view]")?.dataset.view
        ?? one.outerHTML.slice(0, 60);
    return before && now.filter(([, mine], i) => mine.length && mine.some((one, k) => one !== before[i][1][k]))
        .map(([one]) => view(one));
}"""
"""Whose handlers are others than at the last call: a component that is drawn anew gives its elements new ones."""


def test_nothing_is_drawn_anew_when_the_script_of_other_screens_comes(app: Open) -> None:
    page = app(WRITER)
    held = Held(page, "**/later.js")
    page.reload()
    held.wait()
    page.page.evaluate(HANDLERS)
    held.let_go()
    page.settle()
    assert page.page.evaluate(HANDLERS) == []


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
