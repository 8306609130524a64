"""The page's own check: it agrees with the model, and turns red when one number is not the model's."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from playwright.sync_api import Route
from tests.browser.app import App
from tests.browser.models import subject_of


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("classify, pre-norm", "encoder.0.self.weights"),
        ("classify, post-norm", "pooled"),
        ("translate, pre-norm", "decoder.1.cross.context"),
        ("lm, pre-norm", "decoder.0.self.q"),
    ],
)
def test_one_perturbed_number_turns_the_check_red(app: Callable[..., App], name: str, node: str) -> None:
    page = app(name, "step", node=node)
    assert page.check(node) == "ok"
    delta = page.page.get_attribute(f'[data-check="{node}"]', "data-delta")
    assert delta is not None and float(delta) < 1e-4

    def perturb(route: Route) -> None:
        answer = route.fetch()
        assert answer.headers["x-dtype"] == "f32"
        values = np.frombuffer(answer.body(), "<f4").copy()
        values[len(values) // 2] += 0.01
        route.fulfill(response=answer, body=values.tobytes())

    page.page.route(re.compile(rf"/t/{re.escape(node)}(\?|$)"), perturb)
    page.page.reload()
    page.ready("step")
    assert page.check(node) == "bad"
    check = page.page.locator(f'[data-check="{node}"]')
    assert float(check.get_attribute("data-delta") or "nan") == pytest.approx(0.01, rel=0.05)
    assert "disagree" in check.inner_text()


def test_a_step_after_a_perturbed_one_is_checked_from_what_is_shown(app: Callable[..., App]) -> None:
    """An error is blamed on the step that made it: what follows is computed from the model's own numbers."""
    page = app("classify, pre-norm", "step", node="encoder.0.self.scores")

    def perturb(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=(np.frombuffer(answer.body(), "<f4") + 0.5).astype("<f4").tobytes())

    page.page.route(re.compile(r"/t/encoder\.0\.self\.products(\?|$)"), perturb)
    page.page.reload()
    page.ready("step")
    assert page.check("encoder.0.self.scores") == "bad"  # computed from products that are not the model's
    page.go("step", node="encoder.0.self.weights")
    assert page.check("encoder.0.self.weights") == "ok"


def test_the_arithmetic_of_a_cell_sums_to_the_cell(app: Callable[..., App]) -> None:
    page = app("classify, pre-norm", "step", node="encoder.0.self.products", head=1, cell="2,3", arithmetic=1)
    rows = page.page.locator("[data-role=arithmetic] tr")
    rows.first.wait_for()
    (figure,) = [f for f in page.figures() if f["node"] == "encoder.0.self.products"]
    value = next(float(v) for r, c, v, _ in figure["cells"] if (r, c) == (2, 3))
    cells = [row.locator("th, td").all_inner_texts() for row in rows.all()]
    numbers = [[float(n.replace("−", "-")) for n in row[1:4]] for row in cells if row[0].isdigit()]
    assert len(numbers) == 8, "a product for each feature of the head"
    for q, k, product in numbers:
        assert product == pytest.approx(q * k, rel=2e-3)
    assert sum(product for _, _, product in numbers) == pytest.approx(value, abs=5e-3 * abs(value))
    output = next(row for row in cells if row[0] == "sum")
    assert float(output[-1].replace("−", "-") or output[-2].replace("−", "-")) == pytest.approx(value, rel=1e-3)


def test_the_code_shown_marks_the_line_that_computes_the_step(app: Callable[..., App]) -> None:
    page = app("classify, pre-norm", "step", node="encoder.0.self.weights")
    if not page.page.locator("[data-role=code] pre").is_visible():
        page.page.locator("[data-role=code] summary, [data-role=code] button").first.click()
    code = page.page.inner_text("[data-role=code]")
    assert "softmax(dim=-1)" in code and "nn/attention.py" in code


def test_a_long_text_is_cut_and_said_to_be(app: Callable[..., App]) -> None:
    """A source of 560 characters is cut to 512, and every step of what is left can be checked."""
    run = subject_of(("translate", {"n_layers": 1}), max_len=600)
    requested = {"text": "abcdefg" * 80, "target": "abc"}
    page = app(run, "step", node="src_embedding.ids", **requested)
    assert "512" in page.page.inner_text(".notes")
    for node in ("src_embedding.ids", "tgt_embedding.positions", "encoder.0.self.weights", "decoder.0.self.weights"):
        page.go("step", node=node, **requested)
        assert page.check(node) == "ok", node
    page.go("attention", node="encoder.0.self.weights", **requested)
    assert "every row sums to 1" in page.page.inner_text("main")
