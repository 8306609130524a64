"""The saved page: it opens from a disk, asks nothing of anyone, and shows what the live page shows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.browser.app import App, Watch
from tests.browser.models import MODELS, TEXTS, subject_of

from glassformer.explain.explanation import explain
from glassformer.explain.page.saved_page import saved_page_html

SCREENS = ("flow", "step", "attention", "decode", "why", "compare")


@pytest.mark.parametrize("name", ["classify, pre-norm", "translate, post-norm", "lm, pre-norm"])
def test_a_saved_page_matches_the_live_one(app: Callable[..., App], watch: Watch, tmp_path: Path, name: str) -> None:
    text = TEXTS[MODELS[name][0]]
    explanation = explain(subject_of(MODELS[name]), text)
    file = tmp_path / "report.html"
    file.write_text(saved_page_html(explanation, seconds=1)[0], encoding="utf-8")
    live = app(name, "step", text=text)
    saved = app(file, "step")
    n_live = len(watch.requests)
    assert saved.page.input_value("[data-role=text]") == text
    assert saved.page.inner_text("[data-role=answer]") == live.page.inner_text("[data-role=answer]")
    for node in [id for id in explanation.records if not id.endswith("logits")][::5]:
        for page, params in ((live, {"text": text}), (saved, {})):
            page.go("step", **params, node=node)
            assert page.check(node) == "ok", node
            page.page.wait_for_selector(f'figure[data-node="{node}"] td[data-row]')
        shown, expected = saved.figures()[0], live.figures()[0]
        assert shown["slice"] == expected["slice"] and len(shown["cells"]) == len(expected["cells"])
        for (row, column, value, _), (row_, column_, value_, _) in zip(shown["cells"], expected["cells"], strict=True):
            assert (row, column) == (row_, column_)
            assert float(value) == pytest.approx(float(value_), rel=1e-3, abs=1e-4), node
    for screen in SCREENS:
        saved.go(screen)
        saved.settle()
    after = [url for url in watch.requests[n_live:] if not url.startswith("http://127.0.0.1")]
    assert {url.split("#")[0] for url in after if not url.startswith(("data:", "blob:"))} <= {file.as_uri()}


def test_what_a_saved_page_cannot_do_it_says(app: Callable[..., App], tmp_path: Path) -> None:
    explanation = explain(subject_of(MODELS["classify, pre-norm"]), "a good b")
    file = tmp_path / "report.html"
    explanation.save(file)
    page = app(file, "why")
    assert page.page.locator("[data-role=trace]").count() == 0, "no button that could not work"
    word = page.page.locator("[data-word='1']")
    word.click()  # every word erased alone is in the file
    probability = page.page.locator("[data-role=probability]")
    page.until("() => document.querySelector('[data-role=probability]').textContent.includes('was')")
    data = re.search(r'id="glassformer-data">(.*?)</script>', file.read_text(encoding="utf-8"), re.DOTALL)
    assert data is not None
    erased = json.loads(data[1])["erased"][1]["erased"]["prediction"]["top"]
    target = explanation.predictions[0].top[0]
    expected = next(c["log_prob"] for c in erased if c["id"] == target.id)
    assert float(probability.get_attribute("data-value") or "nan") == pytest.approx(math.exp(expected))
    page.page.locator("[data-word='0']").click()  # two words together are not
    page.page.wait_for_selector("[role=alert]")
