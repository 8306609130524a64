"""The page holds still: numbers that arrive late move nothing from under a pointer, and nothing from under the eyes."""

from __future__ import annotations

import pytest
from tests.browser.app import Held, Open
from tests.browser.conftest import DESKTOP, PHONE

CLASSIFIER, TRANSLATOR, WRITER = "classify, pre-norm", "translate, pre-norm", "lm, pre-norm"
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
    page.page.reload()
    page.ready("flow")
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
        page.page.reload()
        page.ready(screen)
        held.wait()
        assert page.page.evaluate(MARK) > 10
        held.let_go()
        assert page.page.evaluate(MOVED) == [], screen
        page.page.unroute_all()


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
        page.page.unroute_all()
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
    page.page.reload()
    page.ready("flow")
    held.wait()
    page.page.evaluate(HANDLERS)
    held.let_go()
    page.settle()
    assert page.page.evaluate(HANDLERS) == []
