"""The matrices and diagrams of the book: one style, and what a figure must show."""

from __future__ import annotations

import matplotlib.colors
import pytest
import torch
from drawings import (
    NEGATIVE,
    POSITIVE,
    WEIGHT,
    colours_of,
    draw_attention_boxes,
    draw_counting,
    draw_heads,
    draw_mask,
    draw_matrix,
    draw_positions,
    draw_rotations,
    draw_turns,
)
from tools import InlineSvg

from glassformer.nn.embeddings import sinusoidal


def test_a_sign_has_a_colour_and_a_size_an_opacity() -> None:
    colours = colours_of(torch.tensor([[4.0, -2.0, 0.0]]))[0]
    assert tuple(colours[0, :3]) == matplotlib.colors.to_rgb(POSITIVE)
    assert tuple(colours[1, :3]) == matplotlib.colors.to_rgb(NEGATIVE)
    assert colours[:, 3].tolist() == pytest.approx([0.8, 0.4, 0.0])


@pytest.mark.parametrize("x", [torch.tensor([[0.25, 0.75]]), torch.tensor([[False, True]])])
def test_what_has_no_sign_has_the_colour_of_weights(x: torch.Tensor) -> None:
    assert tuple(colours_of(x)[0, 1, :3]) == matplotlib.colors.to_rgb(WEIGHT)


def test_hidden_cells_are_hatched_and_have_no_number() -> None:
    hidden = torch.tensor([[False, True, False]])
    x = torch.tensor([[0.25, 0.5, 0.125]])
    [axes] = draw_matrix(x, ["q"], ["a", "b", "c"], "T", hidden=hidden).axes
    assert [patch.get_hatch() for patch in axes.patches] == [None, "////", None]
    assert [text.get_text() for text in axes.texts] == ["0.25", "0.125"]
    [axes] = draw_mask(~hidden, ["q"], ["a", "b", "c"], "T").axes
    assert [patch.get_hatch() for patch in axes.patches] == [None, "////", None]


def test_equal_differences_of_positions_have_the_same_arc() -> None:
    figure = draw_rotations(
        torch.tensor([0.9, 0.2]), torch.tensor([0.6, 0.6]), {"1, 3": (0.5, 1.5), "4, 6": (2.0, 3.0), "1, 5": (0.5, 2.5)}
    )
    angles = [[text.get_text() for text in axes.texts if "°" in text.get_text()] for axes in figure.axes]
    assert angles[0] == angles[1] != angles[2]


def test_diagrams_name_their_parts_in_the_ink_of_the_page() -> None:
    figures = {
        "mean of values": draw_attention_boxes(5, 6, 4, 3),
        "(H, L, E)": draw_heads(4, 3, 2),
        "+2": draw_turns({"fast": 1.0, "slow": 0.3}, [(0, 2), (3, 5)]),
        "feature 6": draw_positions(sinusoidal(20, 8), [0, 6]),
        "binary digits": draw_counting(torch.eye(3).bool(), sinusoidal(3, 6)),
    }
    for words, figure in figures.items():
        svg = InlineSvg(figure, "T").data
        assert words in svg and "currentColor" in svg and "#010203" not in svg
