"""Everything by keyboard alone: every screen, every step, cells, heads, layers, help, erasing and forcing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.browser.app import App
from tests.browser.models import MODELS, TEXTS

SCREENS = ("flow", "step", "attention", "decode", "why", "compare")
FOCUS = "document.activeElement"


def test_numbers_open_the_screens(app: Callable[..., App]) -> None:
    page = app("classify, pre-norm")
    for key, screen in [("6", "compare"), *((str(i + 1), name) for i, name in enumerate(SCREENS))]:
        page.press(key)
        page.ready(screen)
        assert page.page.locator(f'a[data-nav="{screen}"]').get_attribute("aria-current") == "page"


def test_space_walks_through_every_step(app: Callable[..., App]) -> None:
    page = app("classify, pre-norm", "step")
    seen = [page.param.get("node")]
    for _ in range(60):
        page.press(" ")
        node = page.param.get("node")
        if node == seen[-1]:
            break
        seen.append(node)
    assert seen[1] == "embedding.rows" and seen[-1] == "probabilities"
    assert len(set(seen)) == len(seen) > 30
    page.press("Shift+Space")
    assert page.param["node"] == "logits"


def test_enter_opens_the_arithmetic(app: Callable[..., App]) -> None:
    page = app("classify, pre-norm", "step", node="encoder.0.self.products")
    assert page.page.locator("[data-role=arithmetic]").count() == 0
    page.press("Enter")
    page.page.wait_for_selector("[data-role=arithmetic]")
    page.press("Enter")
    page.page.wait_for_selector("[data-role=arithmetic]", state="detached")


def test_brackets_and_commas_change_layer_and_head(app: Callable[..., App]) -> None:
    page = app("classify, pre-norm", "step", node="encoder.0.self.weights", head=0)
    for key, node, head in [
        ("]", "encoder.1.self.weights", "0"),
        (".", "encoder.1.self.weights", "1"),
        (".", "encoder.1.self.weights", "1"),
        ("[", "encoder.0.self.weights", "1"),
        (",", "encoder.0.self.weights", "0"),
        ("[", "encoder.0.self.weights", "0"),
    ]:
        page.press(key)
        assert (page.param["node"], page.param.get("head", "0")) == (node, head), key
        page.page.wait_for_selector(f'figure[data-node="{node}"][data-slice="head:{head}"] td[data-row]')


def test_arrows_walk_a_grid_with_one_stop_in_the_tab_order(app: Callable[..., App]) -> None:
    page = app("classify, pre-norm", "step", node="encoder.0.self.weights")
    grid = page.page.locator("main table[role=grid]").first
    grid.wait_for()
    assert grid.locator("td[tabindex='0']").count() == 1
    grid.locator("td[tabindex='0']").focus()
    for key, cell in [
        ("ArrowDown", (1, 0)),
        ("ArrowRight", (1, 1)),
        ("End", (1, 4)),
        ("ArrowRight", (1, 4)),
        ("Home", (1, 0)),
        ("ArrowUp", (0, 0)),
        ("ArrowUp", (0, 0)),
        ("PageDown", (4, 0)),
    ]:
        page.press(key)
        at = page.page.evaluate(f"[+{FOCUS}.dataset.row, +{FOCUS}.dataset.col, {FOCUS}.getAttribute('aria-selected')]")
        assert (at[0], at[1]) == cell and at[2] == "true", key
    assert page.param["cell"] == "4,0"


def test_help_opens_and_closes_and_typing_is_left_alone(app: Callable[..., App]) -> None:
    page = app("classify, pre-norm")
    page.press("?")
    page.page.wait_for_selector("dialog[open]")
    page.press("Escape")
    page.page.wait_for_selector("dialog[open]", state="detached")
    page.page.locator("[data-role=text]").focus()
    page.press("End", "2", "?")
    assert page.screen == "flow" and page.page.input_value("[data-role=text]").endswith("2?")


def test_the_first_tab_skips_to_the_content(app: Callable[..., App]) -> None:
    page = app("classify, pre-norm")
    page.press("Tab")
    assert "Skip" in page.page.evaluate(f"{FOCUS}.textContent")
    page.press("Enter")
    assert page.page.evaluate(f"{FOCUS}.id") == "main"


@pytest.mark.parametrize("name", ["classify, pre-norm", "translate, pre-norm", "lm, pre-norm"])
@pytest.mark.parametrize("screen", SCREENS)
def test_every_control_can_be_reached_and_is_seen_when_it_is(app: Callable[..., App], name: str, screen: str) -> None:
    """Tab visits every control that is not one of a group, and each shows that it has the focus."""
    page = app(name, screen, text=TEXTS[MODELS[name][0]])
    page.settle()
    wanted = page.page.evaluate(
        """() => [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]')]
            .filter((e) => e.checkVisibility({visibilityProperty: true}) && !e.disabled && e.tabIndex >= 0
                && !(e.type === 'radio' && !e.checked) && !e.closest('dialog:not([open])'))
            .map((e, i) => { e.dataset.stop = i; return i; }).length"""
    )
    seen: set[str] = set()
    for _ in range(wanted + 10):
        page.press("Tab")
        stop, ring = page.page.evaluate(
            f"""() => {{ const e = {FOCUS}, s = getComputedStyle(e);
                const drawn = e.matches('svg *') && getComputedStyle(e.querySelector('rect'));
                return [e.dataset.stop, s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0
                    || s.boxShadow !== 'none' || drawn && parseFloat(drawn.strokeWidth) > 2]; }}"""
        )
        if stop is not None:
            assert ring, f"the focus is not seen on {page.page.evaluate(f'{FOCUS}.outerHTML.slice(0, 200)')}"
            seen.add(stop)
    assert len(seen) == wanted


def test_a_word_is_erased_and_a_token_is_forced_by_keyboard(app: Callable[..., App]) -> None:
    page = app("classify, pre-norm", "why", text="a b good c a")
    word = page.page.locator("[data-word='2']")
    word.wait_for()
    word.focus()
    page.press(" ")
    page.page.wait_for_selector("[data-word='2'][aria-pressed=true]")
    page = app("lm, pre-norm", "decode", text="abc")
    force = page.page.locator("[data-role=force]:not([disabled])").first
    force.wait_for()
    candidate = force.get_attribute("data-candidate")
    force.focus()
    page.press("Enter")
    page.until("() => location.hash.includes('prefix=')")
    assert page.param["prefix"].split(".")[-1] == candidate
