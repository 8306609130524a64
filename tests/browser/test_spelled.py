"""A classifier that reads n-grams, three of them together: what each step shows, and which member is shown."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.browser.app import App, address
from tests.browser.test_values import WALK, matrix_of
from tests.helpers.ngram_runs import ngram_run

from glassformer.explain.explanation import TraceRequest, explain
from glassformer.run import Run

TEXT = "refunds xyzzy 😀 card"


@pytest.fixture(scope="module")
def run() -> Run:
    return ngram_run(members=3)


def test_every_cell_is_torchs_and_every_check_agrees(app: Callable[..., App], run: Run) -> None:
    explanation = explain(run, TraceRequest(TEXT, member=1))
    page = app(run, "step", text=TEXT, member=1)
    nodes = [*explanation.records, "probabilities"]
    addresses = [address("step", {"text": TEXT, "member": 1, "node": node, "head": 1}) for node in nodes]
    for node, found in zip(nodes, page.page.evaluate(WALK, [nodes, addresses]), strict=True):
        assert found["state"] == "ok", (node, found["says"])
        expected = matrix_of(explanation, node, found["slice"])
        for row, column, value, _ in found["cells"]:
            assert float(value) == pytest.approx(expected[row, column], rel=1e-6, abs=1e-7), node


def test_pairs_of_words_are_shown_and_recomputed(app: Callable[..., App]) -> None:
    run, text = ngram_run(bigrams=40), "card cards card lost"
    explanation = run.explain(text)
    page = app(run, "step", text=text)
    nodes = ["embedding.bigram_ids", "embedding.bigrams", "embedding.with_bigrams", "embedding.sum"]
    addresses = [address("step", {"text": text, "node": node}) for node in nodes]
    for node, found in zip(nodes, page.page.evaluate(WALK, [nodes, addresses]), strict=True):
        assert found["state"] == "ok", (node, found["says"])
        expected = matrix_of(explanation, node, found["slice"])
        for row, column, value, _ in found["cells"]:
            assert float(value) == pytest.approx(expected[row, column], rel=1e-6, abs=1e-7), node
    numbers = explanation.streams[0].bigram_ids
    assert numbers is not None and any(numbers)
    at = next(place for place, number in enumerate(numbers) if number)
    page.go("step", text=text, node="embedding.bigram_ids", cell=f"0,{at}", arithmetic=1)
    assert explanation.streams[0].bigrams[at] in page.page.inner_text("[data-role=arithmetic]")


def test_the_n_grams_of_the_chosen_token_are_written_out(app: Callable[..., App], run: Run) -> None:
    page = app(run, "step", text=TEXT, node="embedding.ngrams", cell="0,3", arithmetic=1)
    written = page.page.inner_text("[data-role=ngrams]")
    assert written.startswith("refunds [UNK]: <re · <ref")
    page.until("document.querySelectorAll('[data-role=arithmetic] tbody tr').length > 5")
    total = float(page.page.inner_text("[data-role=arithmetic] .sum").replace("\u2212", "-"))
    assert total == pytest.approx(explain(run, TEXT).tensor("embedding.ngrams")[0, 3], abs=1e-3)
    page.go("step", text=TEXT, node="embedding.ngram_ids", cell="2,1")
    assert page.page.inner_text("[data-role=ngrams]").endswith("0xF0 · 0x9F · 0x98 · 0x80")


def test_another_member_is_a_click_away(app: Callable[..., App], run: Run) -> None:
    page = app(run, "flow", text=TEXT)
    assert "member 0, shown here" in page.page.inner_text(".notes")
    page.page.click("[data-member='2']")
    page.until("document.querySelector('.notes').textContent.includes('member 2, shown here')")
    assert page.param["member"] == "2"
    answer = explain(run, TraceRequest(TEXT, member=2)).together.answer  # pyright: ignore
    assert page.page.inner_text("[data-role=answer]").split() == f"{' '.join(answer.values())}, by all 3 models".split()
