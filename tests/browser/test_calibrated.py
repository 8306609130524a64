"""Probabilities at the temperature that was fitted on the validation texts, on the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.browser.app import App
from tests.helpers.matrix import TEXTS, matrix_run, with_temperature

TEXT = TEXTS["classify"]
SHOWN = "main [data-role=probability]"


def shown(page: App) -> float:
    return float(page.page.locator(SHOWN).get_attribute("data-value") or "nan")


def test_a_button_sets_the_fitted_temperature(app: Callable[..., App]) -> None:
    run = with_temperature(matrix_run("classify"))
    page = app(run, "decode", text=TEXT)
    plain, calibrated = (run.predict(TEXT, calibrated=c)["probability"] for c in (False, True))
    assert shown(page) == pytest.approx(plain, abs=1e-5)
    page.page.click("[data-role=fitted]")
    page.until("() => location.hash.includes('heat=2.5')")
    page.settle()
    assert shown(page) == pytest.approx(calibrated, abs=1e-5) != pytest.approx(plain, abs=1e-3)
    page.page.locator("[data-role=slider-temperature]").fill("1")
    page.until("() => !location.hash.includes('heat=')")


def test_a_calibrated_page_begins_there(app: Callable[..., App], tmp_path: Path) -> None:
    run = with_temperature(matrix_run("classify"))
    e, p = run.explain(TEXT, calibrated=True), run.predict(TEXT, calibrated=True)["probability"]
    e.save(tmp_path / "page.html")
    for page in (app(tmp_path / "page.html", "decode"), app(run, "decode", text=TEXT, calibrated=1)):
        assert shown(page) == pytest.approx(p, abs=1e-5)
        assert f"{100 * p:.1f}%, calibrated" in page.page.inner_text("[data-role=answer]")
        page.page.locator("[data-role=slider-temperature]").fill("1")
        page.until("() => location.hash.includes('heat=1')")
        page.settle()
        assert shown(page) == pytest.approx(run.predict(TEXT)["probability"], abs=1e-5)
        page.page.click("[data-role=fitted]")
        page.until("() => !location.hash.includes('heat=')")


def test_without_a_fitted_temperature_there_is_no_button(app: Callable[..., App]) -> None:
    page = app(matrix_run("classify"), "decode", text=TEXT)
    assert page.page.locator("[data-role=fitted]").count() == 0
