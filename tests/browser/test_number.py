"""The page of a model whose answer is a number: no probability is shown, and words are weighed in its units."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.browser.app import App, Watch
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


def test_sweeps_are_in_the_units_of_the_number(app: Callable[..., App]) -> None:
    page = app(matrix_run("regress"), "why", why="parts", text=TEXT)
    e = matrix_run("regress").explain(TEXT)
    other = matrix_run("regress").explain("g d good a c")
    shown = {"parts": "[data-part]", "keys": "[data-part*=blocked]", "layers": "[data-layer]"}
    shown |= {"contributions": "[data-direct]", "states": "[data-role=states]"}
    texts = {}
    for why, selector in shown.items():
        page.go("why", why=why, text=TEXT, **({"o.text": other.request.text} if why == "states" else {}))
        page.page.wait_for_selector(selector)
        texts[why] = page.page.inner_text("main")
        assert not re.search(r"nats|log-prob|log p|probabilit|logit|rank", texts[why]), why
        if why in ("parts", "keys"):
            rows = e.sweep(why).rows
            of_page = "all => all.map(one => +one.dataset.change)"
            changes = page.page.locator("[data-change]").evaluate_all(of_page)
            rows = rows if why == "parts" else sorted(rows, key=lambda row: -abs(row.change))[:15]
            expected = [row.change for row in rows]
            np.testing.assert_allclose(changes, expected, atol=1e-4)
    assert all(row.after in texts["layers"] for row in e.sweep("layers").rows)
    assert "Number minus mean of the training numbers" in texts["contributions"]
    assert e.answer["headline"] in texts["states"] and other.answer["headline"] in texts["states"]
    page.page.locator("[data-why=checkpoints]").click()
    assert "Make an edit first" in page.page.inner_text("main")


def test_a_number_is_learned(app: Callable[..., App]) -> None:
    run = matrix_run("regress")
    page = app(run, "learn", text=TEXT)
    page.page.locator("[data-role=learn-answer]").fill("2.5")
    page.page.locator("[data-role=loss]").click()
    before = page.page.wait_for_selector("[data-role=mean-before][data-state=ok]")
    learned = run.learn(TEXT, "2.5", steps=1).learning
    assert learned is not None and learned.learned is not None and before is not None
    assert float(before.get_attribute("data-value") or "nan") == pytest.approx(learned.loss, rel=1e-4)
    page.page.locator("[data-role=one-step]").click()
    after = page.page.wait_for_selector("[data-role=mean-after][data-state=ok]")
    assert after is not None
    assert float(after.get_attribute("data-value") or "nan") == pytest.approx(learned.learned.loss, rel=1e-3)
    shown = page.page.inner_text("main")
    assert all(word not in shown for word in ("probab", "nats", "class", "logit")), shown
    page.page.wait_for_selector("[data-role=update-lines][data-state=ready]")
    for node in ("loss.error", "loss", "loss.grad", "loss.error.grad", "logits.grad"):
        page.go("step", node=node, text=TEXT, answer="2.5", numbers="gradients")
        assert page.check(node) == "ok", node
    page.go("step", node="loss.error", text=TEXT, answer="2.5", arithmetic=1, cell="0,0")
    page.page.wait_for_selector("[data-role=arithmetic]")
    page.settle()
    assert "−" in page.page.inner_text("[data-role=arithmetic]")


def test_a_number_is_not_learned_from_words(app: Callable[..., App], watch: Watch) -> None:
    page = app(matrix_run("regress"), "learn", text=TEXT)
    watch.expected = "400|422|Bad Request"
    page.page.locator("[data-role=learn-answer]").fill("good")
    page.page.locator("[data-role=loss]").click()
    page.until("() => document.body.textContent.includes('is not a number')")


def test_a_saved_page_recomputes_the_loss(app: Callable[..., App], tmp_path: Path) -> None:
    matrix_run("regress").learn(TEXT, "2.5", steps=3).save(tmp_path / "page.html")
    page = app(tmp_path / "page.html", "learn")
    for name in ("before", "after"):
        page.page.wait_for_selector(f"[data-role=mean-{name}][data-state=ok]")
