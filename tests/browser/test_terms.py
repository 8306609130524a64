"""Terms with their definition: by mouse, by keyboard, on touch screens, for screen readers; served and saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect
from tests.browser.app import Open
from tests.browser.conftest import PHONE
from tests.browser.models import MODELS, TEXTS, subject_of

from glassformer.explain.explanation import explain

STEP = {"node": "encoder.0.self.products"}
OPEN = ".term-box:popover-open"


def shown(page: Page) -> list[str]:
    return page.locator(OPEN).all_inner_texts()


def term(page: Page, word: str) -> Locator:
    return page.locator("main .term-name", has_text=word).first


def test_pointing_or_the_focus_shows_the_definition_and_leaving_or_escape_hides_it(app: Open) -> None:
    """Its button is described by the definition also while that is hidden, and space is no step there."""
    opened = app("classify, pre-norm", "step", **STEP)
    page = opened.page
    box, name = page.locator(OPEN), term(page, "query")
    assert page.locator(f"[id='{name.get_attribute('aria-describedby')}']").text_content() and shown(page) == []
    name.hover()
    assert shown(page)[0].startswith("query, key, value\nThree projections of token vectors.")
    box.hover()  # the box stays while the pointer is on it
    assert box.count() == 1
    page.keyboard.press("Escape")
    assert box.count() == 0
    name.hover()
    page.mouse.move(2, 2)
    expect(box).to_have_count(0)
    name.focus()
    assert len(shown(page)) == 1
    opened.press(" ", "Enter")
    assert len(shown(page)) == 1 and opened.param["node"] == STEP["node"]
    opened.press("Tab")
    assert all("Three projections" not in one for one in shown(page))


@pytest.mark.parametrize(
    ("model", "screen", "params", "terms"),
    [
        ("translate, pre-norm", "step", {"node": "decoder.0.self.mask"}, {"token", "causal mask"}),
        ("translate, pre-norm", "attention", {}, {"token"}),
        ("classify, pre-norm", "step", {"node": "logits"}, {"Logits"}),
        ("classify, pre-norm", "why", {}, {"quantity", "Comprehensiveness", "Sufficiency"}),
        ("classify, pre-norm", "why", {"why": "parts"}, {"head", "feed-forward block", "log-probability"}),
    ],
)
def test_every_screen_has_its_terms(app: Open, model: str, screen: str, params: dict, terms: set) -> None:
    page = app(model, screen, **params)
    page.settle()
    found = page.texts("main .term-name")
    assert terms <= set(found), found
    if params.get("node") == "logits":
        assert "head" not in {one.lower() for one in page.texts("#step-title .term-name")}, "of attention"


def test_axe_finds_nothing_with_a_definition_open(app: Open) -> None:
    page = app("classify, pre-norm", "step", **STEP).page
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # pyright: ignore[reportArgumentType]
        page.reload()
        term(page, "query").focus()
        assert len(shown(page)) == 1
        found = Axe().run(page).response["violations"]
        assert not found, [(scheme, one["id"], one["nodes"][0]["html"]) for one in found]
    page.emulate_media(color_scheme="null")


def test_a_saved_page_has_them_and_a_phone_shows_them_whole(app: Open, saved: Callable[..., Path]) -> None:
    base = explain(subject_of(MODELS["classify, pre-norm"]), TEXTS["classify"])
    page = app(saved(base), "step", options={"viewport": PHONE, "has_touch": True}, **STEP).page
    term(page, "query").tap()
    box = page.locator(OPEN).bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]
    assert box["y"] >= 0 and box["y"] + box["height"] <= PHONE["height"]
    page.touchscreen.tap(5, PHONE["height"] - 5)
    assert shown(page) == []


def test_escape_closes_the_definition_before_the_tour(app: Open) -> None:
    page = app("translate, pre-norm").page
    page.keyboard.press("?")
    page.click("dialog [data-role=tour]")
    page.locator("aside .term-name").first.focus()
    for terms, tours in ((1, 1), (0, 1), (0, 0)):
        assert (len(shown(page)), page.locator("aside.tour").count()) == (terms, tours)
        page.keyboard.press("Escape")
