"""The guided tour: offered once, its steps by keyboard for each kind of model, its limits in words, and from disk."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext
from tests.browser.app import App, Watch
from tests.browser.models import MODELS, TEXTS, subject_of
from tests.helpers.ngram_runs import ngram_run

from glassformer.explain.explanation import explain
from glassformer.explain.page.saved_page import saved_page_html

FOCUS = "document.activeElement"
NO_STORAGE = (
    """Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('denied', 'SecurityError') }})"""
)


def focused_heading(page: App, *, but: str = "") -> str:
    """Wait until the tour's card has taken the focus for another phase; return what its heading says."""
    page.until(
        f"but => {FOCUS}.matches('.tour h2') && {FOCUS}.closest('.tour').querySelector('button[data-option], "
        f"[data-role=do-it], [data-role=found], [data-role=tour-next]') && {FOCUS}.closest('.tour').innerText !== but",
        but,
    )
    return page.page.inner_text(".tour h2")


def card(page: App) -> str:
    return page.page.inner_text(".tour")


def tab_to(page: App, selector: str) -> None:
    for _ in range(6 + page.page.locator("[data-nav]").count()):  # the links to the screens are before the offer
        page.press("Tab")
        if page.page.evaluate(f"selector => {FOCUS}.matches(selector)", selector):
            return
    raise AssertionError(f"Tab does not reach {selector}: {card(page)}")


def walk(page: App) -> list[tuple[str, str]]:
    """Go through the tour by keyboard alone, from its first card; the title and the finding of each step."""
    seen: list[tuple[str, str]] = []
    title = focused_heading(page)
    while True:
        question = card(page)
        tab_to(page, "[data-option='0']")
        page.press("Enter")
        focused_heading(page, but=question)
        task = card(page)
        page.page.wait_for_selector("[data-tour=control]")
        tab_to(page, "[data-role=do-it]")
        page.press("Enter")
        focused_heading(page, but=task)
        found = page.page.inner_text("[data-role=found]")
        seen.append((title, found))
        page.page.wait_for_selector("[data-tour=control]")
        tab_to(page, "[data-role=tour-next]")
        text, last = card(page), page.page.inner_text("[data-role=tour-next]") == "Finish"
        page.press("Enter")
        if last:
            page.page.wait_for_selector(".tour", state="detached")
            return seen
        title = focused_heading(page, but=text)


STEPS = {
    "translate, pre-norm": [
        "Where does this token come from?",
        "Block it",
        "An earlier decision",
        "Another token",
        "Twice the temperature",
    ],
    "classify, pre-norm": [
        "Which word decides?",
        "Two words together",
        "Which token does it attend to?",
        "Block it",
        "Twice the temperature",
        "One step of learning",
    ],
    "lm, pre-norm": [
        "Twice the temperature",
        "Where does this token come from?",
        "Block it",
        "Which word does it depend on?",
        "Another token",
        "One step of learning",
    ],
}


@pytest.mark.parametrize("name", list(STEPS))
def test_its_steps_by_keyboard(app: Callable[..., App], name: str) -> None:
    page = app(name)
    tab_to(page, "[data-role=tour]")
    page.press("Enter")
    seen = walk(page)
    assert [title for title, _ in seen] == STEPS[name]
    assert all(any(letter.isdigit() for letter in found) for _, found in seen), "each has numbers of the page"
    assert page.page.evaluate(f"{FOCUS}.id") == "main"
    assert page.page.locator(".offer").count() == 0


def test_the_reader_does_it_and_the_numbers_are_those_of_the_page(app: Callable[..., App]) -> None:
    page = app("classify, pre-norm")
    page.page.click(".offer [data-role=tour]")
    page.page.click("[data-option='0']")
    page.ready("why")
    control = page.page.wait_for_selector("[data-tour=control]")
    assert control is not None
    page.page.click("[data-role=to-control]")
    assert page.page.evaluate(f"{FOCUS}.dataset.tour") == "control"
    page.press("Enter")
    page.page.wait_for_selector("[data-role=found]")
    page.until("() => document.querySelector('[data-role=probability]').textContent.includes('was')")
    shown = page.page.inner_text("[data-role=probability] b")
    assert f"to {shown}" in page.page.inner_text("[data-role=found]")


@pytest.mark.parametrize("name", ["classify, pre-norm", "lm, pre-norm"])
def test_the_last_step_learns_and_says_the_losses_of_the_page(app: Callable[..., App], name: str) -> None:
    page = app(name)
    page.page.click(".offer [data-role=tour]")
    focused_heading(page)
    found = walk(page)[-1][1]
    page.ready("learn")
    assert page.param["learn_steps"] == "1"
    for role in ("mean-before", "mean-after"):
        shown = page.page.wait_for_selector(f"[data-role={role}][data-state=ok]")
        assert shown is not None
        value = float(shown.get_attribute("data-value") or "nan")
        assert any(abs(float(word) - value) < 0.006 for word in re.findall(r"[0-9]+[.][0-9]+", found)), found
    page.page.click("[data-role=put-back]")
    page.page.wait_for_selector("[data-role=mean-after]", state="detached")
    page.settle()
    assert "learn_steps" not in page.param


def test_escape_ends_it_and_it_is_remembered_but_found_under_keys(app: Callable[..., App]) -> None:
    page = app("lm, pre-norm")
    page.page.click(".offer [data-role=tour]")
    focused_heading(page)
    page.press("Escape")
    page.page.wait_for_selector(".tour", state="detached")
    page.page.reload()
    page.ready("flow")
    assert page.page.locator(".offer").count() == 0
    page.press("?")
    page.page.wait_for_selector("dialog[open]")
    tab_to(page, "dialog [data-role=tour]") if not page.page.evaluate(f"{FOCUS}.dataset.role === 'tour'") else None
    page.press("Enter")
    page.page.wait_for_selector("dialog[open]", state="detached")
    focused_heading(page)


def test_no_thanks_is_remembered_and_loads_nothing(app: Callable[..., App], watch: Watch) -> None:
    page = app("classify, pre-norm")
    page.page.click("[data-role=no-tour]")
    page.page.wait_for_selector(".offer", state="detached")
    page.settle()
    assert not [url for url in watch.requests if url.endswith("later.js")]
    page.page.reload()
    page.ready("flow")
    assert page.page.locator(".offer").count() == 0


def test_of_an_ensemble_it_says_what_it_shows(app: Callable[..., App]) -> None:
    page = app(ngram_run(members=3), text="refunds lost card")
    page.page.click(".offer [data-role=tour]")
    focused_heading(page)
    assert "ensemble of 3 models" in page.page.inner_text("[data-role=tour-limit]")
    assert len(walk(page)) == 6


def test_of_a_masked_model_it_says_what_it_cannot_show(app: Callable[..., App]) -> None:
    page = app("pretrain, pre-norm")
    page.page.click(".offer [data-role=tour]")
    focused_heading(page)
    assert "no step about forced tokens or temperature" in page.page.inner_text("[data-role=tour-limit]")
    titles = [title for title, _ in walk(page)]
    assert titles[:3] == ["How certain is it?", "Which token does it attend to?", "Block it"] and 4 <= len(titles) <= 5


@pytest.mark.parametrize("name", ["translate, pre-norm", "classify, pre-norm", "lm, pre-norm", "pretrain, pre-norm"])
def test_in_a_saved_page_without_storage(context: Callable[..., BrowserContext], tmp_path: Path, name: str) -> None:
    file = tmp_path / "report.html"
    explanation = explain(subject_of(MODELS[name]), TEXTS[MODELS[name][0]])
    file.write_text(saved_page_html(explanation, seconds=5)[0], encoding="utf-8")
    opened = context().new_page()
    opened.add_init_script(NO_STORAGE)
    with App(opened, file.as_uri()).open() as page:
        page.page.click(".offer [data-role=tour]")
        focused_heading(page)
        assert "cannot run the model" in page.page.locator("[data-role=tour-limit]").first.inner_text()
        seen = walk(page)
        assert len(seen) >= 3 and not {"Block it", "Another token"} & {title for title, _ in seen}
        assert page.page.locator("[role=alert]").count() == 0


def test_another_text_begins_it_again(app: Callable[..., App]) -> None:
    page = app("classify, pre-norm")
    page.page.click(".offer [data-role=tour]")
    focused_heading(page)
    page.page.fill("[data-role=text]", "good b c")
    page.page.click("[data-role=trace]")
    page.page.wait_for_selector(".tour button:has-text('Begin the tour with it')")
    page.page.click(".tour button:has-text('Begin the tour with it')")
    focused_heading(page)
    walk(page)
    assert page.param["text"] == "good b c"
