"""The page of a bare encoder: every number up to its vector, and a sentence where there is no answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.browser.app import App
from tests.helpers.pretrained import bert_folder

import glassformer
from glassformer.interop import transfer
from glassformer.run import Run

HEAD_OFF = "encoder.1.self.context[head:0]=0"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("encoder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer, "check_import", lambda *_: None)
        return glassformer.import_model(bert_folder(folder / "source", "bare"), folder / "run")


def test_a_bare_encoder_has_every_step_and_no_answer(app: Callable[..., App], encoder: Run) -> None:
    page = app(encoder, "flow")
    assert "one vector for the text" in page.page.inner_text("[data-role=vector]")
    assert page.page.locator('[data-node-box="probabilities"]').count() == 0
    for screen in ("why", "decode"):
        page.go(screen)
        assert "no answer to" in page.page.inner_text("[data-role=no-answer]")
    for node in ("embedding.norm", "encoder.1.self.weights", "pooled"):
        page.go("step", node=node)
        assert page.check(node) == "ok"


def test_edits_turn_its_vector_and_two_vectors_are_compared(app: Callable[..., App], encoder: Run) -> None:
    page = app(encoder, "flow", text="the film was not good", edits=HEAD_OFF)
    page.page.wait_for_selector("[data-role=effect]")
    assert "cosine" in page.page.inner_text("[data-role=effect]")
    page.go("compare", text="the film was not good", edits=None)
    page.until("() => document.querySelector('[data-role=other-text]').value !== ''")  # it begins as A's text
    page.page.fill("[data-role=other-text]", "a good film")
    page.page.click("[data-role=compare]")
    shown = float(page.page.wait_for_selector("[data-role=cosine] b").inner_text())  # type: ignore[union-attr]
    a, b = (run["pooled"] for run in map(encoder.explain, ("the film was not good", "a good film")))
    assert shown == pytest.approx(float(a @ b / ((a @ a) * (b @ b)) ** 0.5), abs=6e-4)


def test_the_tour_has_the_steps_that_it_can_show(app: Callable[..., App], encoder: Run) -> None:
    page = app(encoder, "flow", text="the film was not good")
    page.page.click("[data-role=tour]")
    page.page.wait_for_selector(".tour [data-option]")
    assert "predicts nothing" in page.page.inner_text(".tour")
