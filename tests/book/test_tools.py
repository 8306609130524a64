"""What the book's cells share."""

from __future__ import annotations

import pytest
import torch
from diagrams import draw_encoder_layer
from tools import InlineSvg, draw_weights, fails, show_matrix


def test_an_expected_error_is_shown_and_a_missing_one_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with fails(ZeroDivisionError, "by zero"):
        _ = 1 / 0
    assert capsys.readouterr().out == "ZeroDivisionError: division by zero\n"
    with pytest.raises(AssertionError, match="no KeyError was raised"), fails(KeyError):
        pass
    with pytest.raises(AssertionError, match="does not match"), fails(ZeroDivisionError, "by three"):
        _ = 1 / 0


def test_a_matrix_is_shown_with_shape_and_labels(capsys: pytest.CaptureFixture[str]) -> None:
    show_matrix("w", torch.tensor([[0.25, 1.0], [0.0, -2.0]]), rows=["a", "bc"], columns=["k", "l"])
    assert capsys.readouterr().out.splitlines() == ["w  (2, 2)", "       k     l", " a  0.25     1", "bc     0    -2"]


def test_a_figure_has_the_ink_of_the_page_and_is_the_same_again() -> None:
    pictures = [
        InlineSvg(draw_weights(torch.eye(2), ["a", "b"], ["a", "b"], "T"), 'each "token"').data for _ in range(2)
    ]
    assert pictures[0] == pictures[1] and pictures[0].startswith("<svg")
    assert "currentColor" in pictures[0] and "#010203" not in pictures[0]
    assert 'aria-label="each &quot;token&quot;"' in pictures[0]


def test_a_figure_without_links_has_the_same_text() -> None:
    linked, plain = (InlineSvg(draw_encoder_layer(), "T", links=links).data for links in (True, False))
    assert 'href="attention.html"' in linked and "<a" not in plain and "</a>" not in plain and "href" not in plain
    assert plain.count("<text") == linked.count("<text") > 0
