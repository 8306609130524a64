"""Everything by keyboard alone: every screen, every step, cells, heads, layers and help."""

from __future__ import annotations

import pytest
from tests.browser.app import Open
from tests.browser.models import TEXTS
from tests.browser.test_screens import SCREENS

FOCUS = "document.activeElement"


def test_numbers_open_the_screens_and_the_first_tab_skips_to_the_content(app: Open) -> None:
    """Help opens and closes, and typing is left alone."""
    page = app("classify, pre-norm")
    page.press("Tab")
    assert "Skip" in page.page.evaluate(f"{FOCUS}.textContent")
    page.press("Enter")
    assert page.page.evaluate(f"{FOCUS}.id") == "main"
    for key, screen in [("6", "compare"), *((str(i + 1), name) for i, name in enumerate(SCREENS[:6]))]:
        page.press(key)
        page.ready(screen)
        assert page.page.get_attribute(f'a[data-nav="{screen}"]', "aria-current") == "page"
    page.press("1", "?")
    page.wait("dialog[open]")
    page.press("Escape")
    page.gone("dialog[open]")
    page.page.focus("[data-role=text]")
    page.press("End", "2", "?")
    assert page.screen == "flow" and page.page.input_value("[data-role=text]").endswith("2?")


def test_space_walks_through_every_step(app: Open) -> None:
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


def test_brackets_and_commas_change_layer_and_head(app: Open) -> None:
    page = app("classify, pre-norm", "step", node="encoder.0.self.weights", head=0)
    for key, layer, head in [("]", 1, "0"), (".", 1, "1"), (".", 1, "1"), ("[", 0, "1"), (",", 0, "0"), ("[", 0, "0")]:
        page.press(key)
        node = f"encoder.{layer}.self.weights"
        assert (page.param["node"], page.param.get("head", "0")) == (node, head), key
        page.wait(f'figure[data-node="{node}"][data-slice="head:{head}"] td[data-row]')


def test_arrows_walk_a_grid_with_one_stop_in_the_tab_order_and_enter_opens_the_arithmetic(app: Open) -> None:
    page = app("classify, pre-norm", "step", node="encoder.0.self.weights")
    page.wait("main table[role=grid]")
    assert page.count("main td[tabindex='0']") == 1
    page.press("Enter")
    page.wait("[data-role=arithmetic]")
    page.press("Enter")
    page.gone("[data-role=arithmetic]")
    page.page.focus("main td[tabindex='0']")
    keys = "ArrowDown ArrowRight End ArrowRight Home ArrowUp ArrowUp PageDown".split()
    cells = [(1, 0), (1, 1), (1, 4), (1, 4), (1, 0), (0, 0), (0, 0), (4, 0)]
    for key, cell in zip(keys, cells, strict=True):
        page.press(key)
        at = page.page.evaluate(f"[+{FOCUS}.dataset.row, +{FOCUS}.dataset.col, {FOCUS}.getAttribute('aria-selected')]")
        assert (at[0], at[1]) == cell and at[2] == "true", key
    assert page.param["cell"] == "4,0"


@pytest.mark.parametrize("screen", SCREENS[:6])
def test_every_control_can_be_reached_and_is_seen_when_it_is(app: Open, screen: str) -> None:
    """Tab visits every control that is not one of a group, and each shows that it has the focus."""
    page = app("translate, pre-norm", screen, text=TEXTS["translate"])
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
