"""The guided tour: offered once, its steps by keyboard for each kind of model, its limits in words, and from disk."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.browser.app import App, Open
from tests.browser.models import CLASSIFIER, MASKED, MODELS, TRANSLATOR, WRITER, explained, subject_of
from tests.browser.test_counting import disagreements
from tests.helpers.ngram_runs import ngram_run

FOCUS = "document.activeElement"
NO_STORAGE = "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('', 'SecurityError') }})"


def begin(page: App) -> None:
    page.click(".offer [data-role=tour]")
    next_card(page)


def next_card(page: App, *, but: str = "") -> str:
    """Wait until the tour's card has taken the focus for another phase; return what it says."""
    page.until(
        f"but => {FOCUS}.matches('.tour h2') && {FOCUS}.closest('.tour').querySelector('button[data-option], "
        f"[data-role=do-it], [data-role=found], [data-role=tour-next]') && {FOCUS}.closest('.tour').innerText !== but",
        but,
    )
    return page.text(".tour")


def press_on(page: App, selector: str) -> None:
    """Go by Tab to an element and press Enter."""
    for _ in range(6 + page.count("[data-nav]")):  # the links to the screens are before the offer
        page.press("Tab")
        if page.page.evaluate(f"selector => {FOCUS}.matches(selector)", selector):
            return page.press("Enter")
    raise AssertionError(f"Tab does not reach {selector}")


def walk(page: App, look: Callable[[list[str]], None] = lambda _: None) -> list[tuple[str, str]]:
    """Go through the tour by keyboard alone, from its first card; the title and the finding of each step.

    `look` is called with the three cards of each step, while the last of them is shown.
    """
    seen: list[tuple[str, str]] = []
    cards = [next_card(page)]
    while True:
        title = page.text(".tour h2")
        for button in ("[data-option='0']", "[data-role=do-it]"):
            press_on(page, button)
            cards.append(next_card(page, but=cards[-1]))
            page.wait("[data-tour=control]")
        seen.append((title, page.text("[data-role=found]")))
        look(cards)
        last = page.text("[data-role=tour-next]") == "Finish"
        press_on(page, "[data-role=tour-next]")
        if last:
            page.gone(".tour")
            return seen
        cards = [next_card(page, but=cards[-1])]


TITLES = {
    TRANSLATOR: "Where does this token come from? / Block it / An earlier decision / Another token / "
    "Twice the temperature",
    CLASSIFIER: "Which word decides? / Which token does it attend to? / Block it / "
    "Twice the temperature / One step of learning",
    WRITER: "Twice the temperature / Where does this token come from? / Block it / "
    "Which word does it depend on? / Another token / One step of learning",
}


@pytest.mark.parametrize("name", list(TITLES))
def test_its_steps_by_keyboard(app: Open, name: str) -> None:
    """What a card calls a head, a row or a token is what the address and the edits then say."""
    page, compared, wrong = app(name), list[str](), list[str]()

    def look(cards: list[str]) -> None:
        params = page.param
        row = params.get("cell", "").split(",")[0] or "0"
        python = params.get("edits") or (f"{params['node']}[head:{params.get('head', '')}]" if "node" in params else "")
        for card in cards[:2]:
            body = card.partition("\n")[2]
            compared.extend(re.findall(r"\b(?:head|layer) \d", body, re.IGNORECASE) if python else [])
            other = disagreements(python, re.sub(r"\((token|row) ", "(at ", body))
            wrong.extend([body] if other or set(re.findall(r"\brow (\d+)", body)) > {row} else [])

    press_on(page, "[data-role=tour]")
    seen = walk(page, look)
    assert not wrong, "\n".join(wrong)
    assert len(compared) >= 2
    assert " / ".join(title for title, _ in seen) == TITLES[name]
    assert all(any(letter.isdigit() for letter in found) for _, found in seen), "each has numbers of the page"
    assert page.page.evaluate(f"{FOCUS}.id") == "main" and page.count(".offer") == 0
    if seen[-1][0] == "One step of learning":
        page.ready("learn")
        assert page.param["learn_steps"] == "1"
        numbers = [float(word) for word in re.findall(r"[0-9]+[.][0-9]+", seen[-1][1])]
        for when in ("before", "after"):
            value = page.value(f"[data-role=mean-{when}]:has([data-check=loss][data-state=ok])")
            assert any(abs(word - value) < 0.006 for word in numbers), "the losses of the page"


def test_the_reader_does_it_and_another_text_begins_it_again(app: Open) -> None:
    """The numbers of its findings are those of the page."""
    page = app(CLASSIFIER)
    begin(page)
    page.click("[data-option='0']")
    page.ready("why")
    page.wait("[data-tour=control]")
    page.click("[data-role=to-control]")
    assert page.page.evaluate(f"{FOCUS}.dataset.tour") == "control"
    page.press("Enter")
    page.wait("[data-role=found]")
    page.until("() => document.querySelector('[data-role=probability]').textContent.includes('was')")
    assert f"to {page.text('[data-role=probability] b')}" in page.text("[data-role=found]")
    page.trace("good b c")
    page.click(".tour button:has-text('Begin the tour with it')")
    next_card(page)
    assert page.param["text"] == "good b c" and page.text(".tour h2") == "Which word decides?"


def test_escape_or_no_thanks_ends_it_and_is_remembered_but_it_is_found_under_keys(app: Open) -> None:
    page = app(WRITER)
    begin(page)
    page.press("Escape")
    page.gone(".tour")
    page.reload()
    assert page.count(".offer") == 0
    page.press("?")
    page.wait("dialog[open]")
    page.page.focus("dialog [data-role=tour]")
    page.press("Enter")
    page.gone("dialog[open]")
    next_card(page)
    page = app(WRITER)
    page.click("[data-role=no-tour]")
    page.gone(".offer")
    page.reload()
    assert page.count(".offer") == 0


def test_it_says_what_it_cannot_show(app: Open, saved: Callable[..., Path]) -> None:
    """Of an ensemble, a masked model, a text on which edits are not made, and from disk without storage."""
    long, letters = subject_of(MODELS[TRANSLATOR], max_len=200), "abcdefg" * 21
    file = saved(explained(TRANSLATOR, "abcd", decode={"max_new_tokens": 3}))
    for model, given, limit, least, most in [
        (ngram_run(members=3), {"text": "refunds lost card"}, "ensemble of 3 models", 0, 0),
        (MASKED, {}, "no step about forced tokens or temperature", 4, 5),
        (long, {"text": letters, "target": letters}, "at most 128 tokens", 3, 3),
        (file, {"options": {"init_script": NO_STORAGE}}, "cannot run the model", 3, 9),
    ]:
        page = app(model, **given)
        begin(page)
        assert limit in page.texts("[data-role=tour-limit]")[0]
        titles = [title for title, _ in walk(page)] if most else []
        assert least <= len(titles) <= most and not page.count("[role=alert]")
        if model == MASKED:
            assert titles[:3] == ["How certain is it?", "Which token does it attend to?", "Block it"]
        else:
            assert not {"Block it", "Another token"} & {*titles}
