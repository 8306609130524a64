"""Pairs of texts on the page: every number agrees, and what is no pair gets a sentence."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.browser.app import App, address
from tests.browser.test_values import WALK, matrix_of
from tests.helpers.matrix import matrix_run

TEXT = "ab c [SEP] good b"


def test_every_cell_is_torchs_and_every_check_agrees(app: Callable[..., App]) -> None:
    run = matrix_run("pairs")
    explanation = run.explain(TEXT)
    page = app(run, "step", text=TEXT)
    nodes = [*explanation.records, "probabilities"]
    addresses = [address("step", {"text": TEXT, "node": node, "head": 1}) for node in nodes]
    for node, found in zip(nodes, page.page.evaluate(WALK, [nodes, addresses]), strict=True):
        assert found["state"] == "ok", (node, found["says"])
        expected = matrix_of(explanation, node, found["slice"])
        for row, column, value, _ in found["cells"]:
            assert float(value) == pytest.approx(expected[row, column], rel=1e-6, abs=1e-7), node
    assert explanation["embedding.segment_ids"].tolist() == [0] * 5 + [1] * 6
    for screen in ("flow", "why", "compare", "decode"):
        page.go(screen, text=TEXT)
