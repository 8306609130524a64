"""Probabilities at the temperature that was fitted on the validation texts, on the page."""

from __future__ import annotations

from collections.abc import Callable

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


def test_without_a_fitted_temperature_there_is_no_button(app: Callable[..., App]) -> None:
    page = app(matrix_run("classify"), "decode", text=TEXT)
    assert page.page.locator("[data-role=fitted]").count() == 0
