"""The figures of the book and what its cells share: one style, and what a figure must show."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib.colors
import pytest
import torch
from diagrams import (
    DECODER_LAYER,
    ENCODER_LAYER,
    draw_decoder_layer,
    draw_encoder_layer,
    draw_norm_orders,
    draw_translator,
)
from drawings import ACCENT, INK, NEGATIVE, POSITIVE, WEIGHT, colours_of, draw_mask, draw_matrix
from matplotlib.patches import Circle
from tools import InlineSvg, fails, show_matrix

from glassformer import Translator, trace
from glassformer.config import ModelConfig

BOOK = Path(__file__).parents[2] / "docs" / "book"
DIAGRAMS = [
    (draw_encoder_layer, 2, ["self-attention", "feed-forward", "norm"]),
    (draw_decoder_layer, 3, ["masked self-attention", "cross-attention", "from the"]),
    (draw_norm_orders, 4, ["pre-norm", "post-norm (the paper)"]),
    (draw_translator, 7, ["N ×", "source ids", "target ids so far", "linear: a logit per token"]),
]
"""How many sums each has, one for each residual connection and where positions are added, and words in it."""


@pytest.mark.parametrize(("draw", "n_sums", "words"), DIAGRAMS)
def test_a_diagram_has_its_sums_names_and_pages_all_inside(draw, n_sums: int, words: list[str]) -> None:
    figure = draw()
    figure.canvas.draw()
    [axes] = figure.axes
    for text in axes.texts:
        box = text.get_window_extent()
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1, text.get_text()
        assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1, text.get_text()
    assert sum(isinstance(patch, Circle) for patch in axes.patches) == n_sums
    linked, plain = (InlineSvg(draw(), 'a "T"', links=links).data for links in (True, False))
    assert all(word in linked for word in words) and INK not in linked and ACCENT in linked
    assert "currentColor" in linked and 'aria-label="a &quot;T&quot;"' in linked
    pages = re.findall(r'xlink:href="(\w+)\.html"', linked)
    assert pages and all((BOOK / f"{page}.md").exists() for page in pages)
    assert "href" not in plain and plain.count("<text") == linked.count("<text") > 0
    assert plain == InlineSvg(draw(), 'a "T"', links=False).data, "the same again"


def test_the_sublayers_are_those_of_the_library() -> None:
    config = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_ff=12, dropout=0.0)
    with trace(model := Translator(config, vocab_size=30, max_len=6)) as steps:
        model(torch.tensor([[7, 8, 9]]), torch.tensor([[2, 5]]))
    for stream, sublayers in (("encoder", ENCODER_LAYER), ("decoder", DECODER_LAYER)):
        assert len([id for id in steps if re.fullmatch(rf"{stream}\.0\.\w+\.residual", id)]) == len(sublayers)


def test_a_sign_has_a_colour_and_a_size_an_opacity() -> None:
    colours = colours_of(torch.tensor([[4.0, -2.0, 0.0]]))[0]
    assert [tuple(c[:3]) for c in colours[:2]] == [*map(matplotlib.colors.to_rgb, (POSITIVE, NEGATIVE))]
    assert colours[:, 3].tolist() == pytest.approx([0.8, 0.4, 0.0])
    for x in (torch.tensor([[0.25, 0.75]]), torch.tensor([[False, True]])):  # what has no sign
        assert tuple(colours_of(x)[0, 1, :3]) == matplotlib.colors.to_rgb(WEIGHT)


def test_hidden_cells_are_hatched_and_have_no_number() -> None:
    hidden, x = torch.tensor([[False, True, False]]), torch.tensor([[0.25, 0.5, 0.125]])
    [matrix] = draw_matrix(x, ["q"], ["a", "b", "c"], "T", hidden=hidden).axes
    [mask] = draw_mask(~hidden, ["q"], ["a", "b", "c"], "T").axes
    assert all([patch.get_hatch() for patch in axes.patches] == [None, "////", None] for axes in (matrix, mask))
    assert [text.get_text() for text in matrix.texts] == ["0.25", "0.125"]


def test_cells_show_expected_errors_and_matrices(capsys: pytest.CaptureFixture[str]) -> None:
    with fails(ZeroDivisionError, "by zero"):
        _ = 1 / 0
    show_matrix("w", torch.tensor([[0.25, 1.0], [0.0, -2.0]]), rows=["a", "bc"], columns=["k", "l"])
    lines = ["ZeroDivisionError: division by zero", "w  (2, 2)", "       k     l", " a  0.25     1", "bc     0    -2"]
    assert capsys.readouterr().out.splitlines() == lines
    with pytest.raises(AssertionError, match="no KeyError was raised"), fails(KeyError):
        pass
    with pytest.raises(AssertionError, match="does not match"), fails(ZeroDivisionError, "by three"):
        _ = 1 / 0
