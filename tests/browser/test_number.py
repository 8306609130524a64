"""The page of a model whose answer is a number: no probability is shown, and words are weighed in its units."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.browser.app import App
from tests.helpers.matrix import matrix_run

TEXT = "a b good b a"


@pytest.fixture
def page(app: Callable[..., App]) -> App:
    return app(matrix_run("regress"), "flow", text=TEXT)


def test_a_number_has_no_probability(page: App) -> None:
    assert "one number for the text" in page.page.inner_text("[data-role=vector]")
    assert page.page.locator('[data-node-box="probabilities"]').count() == 0
    page.go("decode")
    number = f"{matrix_run('regress').predict(TEXT)['number']:.3g}"
    assert number in page.page.inner_text("[data-role=no-answer]") and "%" not in page.page.inner_text("main")
    page.go("step", node="logits")
    assert page.check("logits") == "ok"


def test_words_are_weighed_and_masked(page: App) -> None:
    run = matrix_run("regress")
    page.go("why")
    shown = page.page.wait_for_selector("[data-role=number]")
    assert shown is not None and shown.inner_text().startswith(f"{run.predict(TEXT)['number']:.3g}"[:3])
    e = run.explain(TEXT)
    scores = zip(e.streams[0].words, e.attribute().scores["text"], strict=True)
    of_word = sum(score for word, score in scores if word == 2)
    words = page.page.locator(".word[data-word]")
    assert words.count() == 5
    assert float(words.nth(2).get_attribute("data-score") or "") == pytest.approx(of_word, abs=1e-4)
    words.nth(2).click()
    page.until("() => document.querySelector('[data-role=number]').textContent.includes('masked')")


def test_a_saved_page_holds_the_words(app: Callable[..., App], tmp_path: Path) -> None:
    matrix_run("regress").explain(TEXT).save(tmp_path / "page.html")
    page = app(tmp_path / "page.html", "why")
    words = page.page.locator(".word[data-word]")
    assert words.count() == 5
    words.nth(2).click()
    page.until("() => document.querySelector('[data-role=number]').textContent.includes('masked')")


def test_an_edit_changes_the_number(app: Callable[..., App]) -> None:
    page = app(matrix_run("regress"), "flow", text=TEXT, edits="encoder.0.self.context[head:0]=0")
    page.page.wait_for_selector("[data-role=effect]")
    assert "without edits" in page.page.inner_text("[data-role=effect]")
