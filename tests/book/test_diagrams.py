"""The diagrams of layers: what they name and link to, and that arrows are where the library computes sums."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from diagrams import (
    DECODER_LAYER,
    ENCODER_LAYER,
    draw_connections,
    draw_curves,
    draw_decoder_layer,
    draw_encoder_layer,
    draw_norm_orders,
    draw_normalized,
    draw_translator,
)
from drawings import ACCENT, INK
from matplotlib.patches import Circle
from tools import InlineSvg

from glassformer import Translator, trace
from glassformer.config import ModelConfig

BOOK = Path(__file__).parents[2] / "docs" / "book"


@pytest.mark.parametrize(
    ("draw", "n_sums", "words"),
    [
        (draw_encoder_layer, 2, ["self-attention", "feed-forward", "norm"]),
        (draw_decoder_layer, 3, ["masked self-attention", "cross-attention", "from the"]),
        (draw_norm_orders, 4, ["pre-norm", "post-norm (the paper)"]),
        (draw_translator, 7, ["N ×", "source ids", "target ids so far", "linear: a logit per token"]),
    ],
)
def test_a_diagram_has_its_sums_names_and_pages(draw: Callable[[], Any], n_sums: int, words: list[str]) -> None:
    """Each residual connection ends in a sum; positions are added as well."""
    figure = draw()
    [axes] = figure.axes
    assert sum(isinstance(patch, Circle) for patch in axes.patches) == n_sums
    svg = InlineSvg(figure, "T").data
    assert all(word in svg for word in words) and INK not in svg and ACCENT in svg
    pages = re.findall(r'xlink:href="(\w+)\.html"', svg)
    assert pages and all((BOOK / f"{page}.md").exists() for page in pages)


def test_everything_is_inside_the_figure() -> None:
    for draw in (draw_encoder_layer, draw_decoder_layer, draw_norm_orders, draw_translator):
        figure = draw()
        figure.canvas.draw()
        [axes] = figure.axes
        for text in axes.texts:
            box = text.get_window_extent()
            assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1, text.get_text()
            assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1, text.get_text()


def test_the_sublayers_are_those_of_the_library() -> None:
    config = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_ff=12, dropout=0.0)
    model = Translator(config, vocab_size=30, max_len=6)
    with trace(model) as steps:
        model(torch.tensor([[7, 8, 9]]), torch.tensor([[2, 5]]))
    for stream, sublayers in (("encoder", ENCODER_LAYER), ("decoder", DECODER_LAYER)):
        sums = [id for id in steps if re.fullmatch(rf"{stream}\.0\.\w+\.residual", id)]
        assert len(sums) == len(sublayers)


def test_the_marked_output_has_its_connections_in_the_accent_colour() -> None:
    seen = torch.eye(4, dtype=torch.bool)
    seen[2] = True
    [axes] = draw_connections({"some layer": (seen, "a note")}, mark=2).axes
    lines = [line for line in axes.lines if len(line.get_xdata()) == 2]
    assert sum(line.get_color() == ACCENT for line in lines) == 4 and len(lines) == 7


def test_values_that_are_normalized_together_are_filled() -> None:
    together = torch.zeros(2, 3, 5, dtype=torch.bool)
    together[1, 2] = True
    [axes] = draw_normalized({"layer norm": together}).axes
    assert len(axes.patches) == together.numel()
    assert sum(patch.get_alpha() == 0.75 for patch in axes.patches) == 5


def test_curves_are_named() -> None:
    x = torch.linspace(-1, 1, 5)
    svg = InlineSvg(draw_curves(x, {"GELU": x, "ReLU": -x}, "Title", "y"), "T").data
    assert "GELU" in svg and "ReLU" in svg and "Title" in svg
