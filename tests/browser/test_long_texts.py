"""Texts of more tokens than edits are made on: Flow folds them, and nothing is offered that would be refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.browser.app import App, Watch
from tests.browser.models import MODELS, TEXTS, subject_of
from tests.browser.test_screens import problems
from tests.browser.test_tour import focused_heading, walk

from glassformer.explain.explanation import explain
from glassformer.explain.page.saved_page import saved_page_html
from glassformer.run import Run

N = 150
LETTERS = "abcdefg" * 21
LONG: dict[str, dict[str, Any]] = {
    "classify, pre-norm": {"text": "a b good c a " * 30},
    "translate, pre-norm": {"text": LETTERS, "target": LETTERS},
    "lm, pre-norm": {"text": "abc d" * 28},
    "pretrain, pre-norm": {"text": "a b [MASK] c a " * 30},
}
SCREENS = ("flow", "step", "attention", "decode", "why", "compare")
EDITING = {
    "a switch": "[data-edit]",
    "the field for edits": "#edit",
    "the form of a step": "form[aria-label=Edit]",
    "blocking of keys": "[aria-label='Edits of this head']",
    "the views of Why": "[data-why]",
}
SCALES = [(360, "light"), (1280, "dark"), (1920, "light")]


@cache
def subject(name: str) -> Run:
    return subject_of(MODELS[name], max_len=200)


def shown(page: App, stream: str) -> list[int]:
    """Return the tokens of a stream that Flow shows."""
    chips = page.page.locator(f"main ol[data-stream={stream}] [data-token]")
    return chips.evaluate_all("all => all.map(one => +one.dataset.token)")


def folds(page: App, stream: str) -> list[tuple[str, str]]:
    """Return the words of each fold of a stream, and whether it is open."""
    buttons = page.page.locator(f"main ol[data-stream={stream}] [aria-expanded]")
    return buttons.evaluate_all("all => all.map(one => [one.innerText, one.getAttribute('aria-expanded')])")


def offers(page: App) -> set[str]:
    return {what for what, selector in EDITING.items() if page.page.locator(selector).count()}


@pytest.mark.parametrize("name", list(LONG))
def test_the_middle_is_folded_and_opens_by_keyboard(app: Callable[..., App], name: str) -> None:
    page = app(subject(name), **LONG[name])
    streams = page.page.locator("main ol[data-stream]").evaluate_all("all => all.map(one => one.dataset.stream)")
    for stream in streams:
        [(words, is_open)] = folds(page, stream)
        ends = shown(page, stream)
        n = int(words.split()[1]) + len(ends)
        assert 140 < n <= 200 and is_open == "false"
        assert ends == [*range(16), *range(n - 16, n)]
        fold = page.page.locator(f"main ol[data-stream={stream}] [aria-expanded]")
        fold.focus()
        page.press("Enter")
        assert shown(page, stream) == [*range(n)]
        assert fold.get_attribute("aria-expanded") == "true" and fold.evaluate("one => one === document.activeElement")
    page.page.reload()
    page.ready("flow")
    assert all(len(shown(page, stream)) > 140 for stream in streams), "the link says what is open"
    for stream in streams:
        page.page.focus(f"main ol[data-stream={stream}] [aria-expanded]")
        page.press("Space")
        assert len(shown(page, stream)) == 32
    assert "unfold" not in page.param


@pytest.mark.parametrize("at", [0, 15, 16, 19, 20, 75, 131, 134, 149])
def test_the_selected_token_is_never_folded(app: Callable[..., App], at: int) -> None:
    """A row of a step, the row and the column of attention weights, and the position of a prediction."""
    page = app(subject("lm, pre-norm"), "step", node="embedding.sum", cell=f"{at},3", **LONG["lm, pre-norm"])
    selected = "main ol[data-stream=text] [aria-pressed=true]"
    for params, wanted in [
        ({"node": "embedding.rows", "cell": f"{at},3"}, {at}),
        ({"node": "embedding.ids", "cell": f"0,{at}"}, {at}),
        ({"node": "decoder.1.self.weights", "cell": f"{at},{at // 2}"}, {at, at // 2}),
        ({"cell": f"{at},{at // 2}"}, {at, at // 2}),
        ({"position": at}, {at}),
    ]:
        page.go("flow", **LONG["lm, pre-norm"], **params)
        chips = page.page.locator(selected).evaluate_all("all => all.map(one => +one.dataset.token)")
        assert set(chips) == wanted, params
        around = {i for one in wanted for i in range(max(0, one - 4), min(N, one + 5))}
        assert around <= set(shown(page, "text")), params
        assert len(shown(page, "text")) < 55
    after = page.page.locator(".flow-next button:not([aria-expanded])").count()
    assert after == len(shown(page, "text")), "the predictions are folded as the tokens are"


def test_a_cell_of_cross_attention_selects_in_both_streams(app: Callable[..., App]) -> None:
    long = LONG["translate, pre-norm"]
    page = app(subject("translate, pre-norm"), node="decoder.0.cross.weights", cell="60,90", **long)
    assert 60 in shown(page, "target") and 60 not in shown(page, "source")
    assert 90 in shown(page, "source") and 90 not in shown(page, "target")


def test_a_token_opens_its_step_and_stays_in_view(app: Callable[..., App]) -> None:
    page = app(subject("classify, pre-norm"), unfold="text", **LONG["classify, pre-norm"])
    page.page.click("main [data-token='70']")
    page.ready("step")
    page.page.click("[data-nav=flow]")
    page.page.click("main [aria-expanded=true]")
    assert set(range(66, 75)) <= set(shown(page, "text"))
    assert [words for words, _ in folds(page, "text")] == ["… 50 tokens", "… 59 tokens"]
    page.page.fill("[data-role=text]", "a b c")
    page.page.click("[data-role=trace]")
    page.until("() => document.querySelectorAll('main [data-token]').length === 3")
    assert not {"unfold", "cell"} & page.param.keys()


def test_a_short_text_is_whole_and_offers_all(app: Callable[..., App]) -> None:
    offered = set[str]()
    page = app(subject("classify, pre-norm"), text=TEXTS["classify"], cell="1,0")
    assert not folds(page, "text") and not page.page.locator("main ol [aria-pressed=true]").count()
    for screen in SCREENS:
        page.go(screen, text=TEXTS["classify"], node="encoder.0.self.scores")
        offered |= offers(page)
    assert offered == set(EDITING)


@pytest.mark.parametrize("name", list(LONG))
def test_nothing_is_offered_that_is_refused(app: Callable[..., App], name: str) -> None:
    """No control for edits on any screen, nor keys; where they were, the reason as Python says it."""
    node = "encoder.0.self.scores" if name != "lm, pre-norm" else "decoder.0.self.scores"
    page = app(subject(name), **LONG[name])
    for screen in SCREENS:
        page.go(screen, node=node, why="parts", **LONG[name])
        page.page.wait_for_selector("main h1, .compare")
        assert not offers(page), screen
        reason = page.page.inner_text("[aria-label=Edits]")
        assert reason.startswith("Edits need a text of at most 128 tokens, and this one has 1") or "200" in reason
        page.press("x", "b", "w", "z")
        assert "edits" not in page.param and not page.page.locator("[role=alert]").count()


def test_contributions_are_not_offered_where_a_logit_is_no_sum(app: Callable[..., App]) -> None:
    views = {}
    for name in ("pretrain, pre-norm", "lm, pre-norm"):
        page = app(name, "why", text=TEXTS[MODELS[name][0]], why="contributions")
        page.page.wait_for_selector("[data-why]")
        views[name] = page.page.locator("[data-why]").evaluate_all("all => all.map(one => one.dataset.why)")
        assert page.page.locator("[data-why][aria-pressed=true]").count() == 1
    assert "contributions" in views["lm, pre-norm"]
    assert views["pretrain, pre-norm"] == [one for one in views["lm, pre-norm"] if one != "contributions"]


def test_a_link_with_edits_of_a_long_text_says_why_not(app: Callable[..., App], watch: Watch) -> None:
    watch.expected = "status of 400"
    page = app(subject("classify, pre-norm"), edits="encoder.0.self.context=0", **LONG["classify, pre-norm"])
    assert "at most 128 tokens" in page.page.inner_text("[role=alert]")
    assert "edits" not in page.param and not offers(page)


@pytest.mark.parametrize("name", list(LONG)[:3])
def test_the_tour_of_a_long_text_shows_other_steps(app: Callable[..., App], name: str) -> None:
    page = app(subject(name), **LONG[name])
    page.page.click(".offer [data-role=tour]")
    focused_heading(page)
    assert "at most 128 tokens" in page.page.inner_text("[data-role=tour-limit]")
    titles = [title for title, _ in walk(page)]
    assert len(titles) == (4 if "target" in LONG[name] else 5) and "Block it" not in titles
    assert not page.page.locator("[role=alert]").count()


@pytest.mark.parametrize(("width", "scheme"), SCALES)
def test_folds_look_right_everywhere(app: Callable[..., App], width: int, scheme: str) -> None:
    options = {"color_scheme": scheme, "viewport": {"width": width, "height": 900}}
    name = "translate, pre-norm"
    page = app(subject(name), options=options, node="decoder.0.cross.weights", cell="60,90", **LONG[name])
    page.settle()
    assert not problems(page, "flow")


def test_in_a_saved_page_too(app: Callable[..., App], tmp_path: Path) -> None:
    file = tmp_path / "long.html"
    name = "classify, pre-norm"
    file.write_text(saved_page_html(explain(subject(name), LONG[name]["text"]), seconds=2)[0], encoding="utf-8")
    page = app(file)
    assert len(shown(page, "text")) == 32
    page.page.click("main [aria-expanded=false]")
    assert len(shown(page, "text")) == N and page.param["unfold"] == "text"
    for screen in SCREENS:
        page.go(screen, why="parts")
        assert not offers(page) and not page.page.locator("[role=alert]").count()
