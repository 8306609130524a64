"""Tests of figures: they draw the recorded values with all labels, and files are vector graphics."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from tests.helpers.inference import Subject, untrained

from glassformer.errors import UsageError
from glassformer.explain.attribution import Attribution, Candidate, Faithfulness
from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.explain.figures import draw_attention, draw_attribution, save, save_figure, style

TEXT = {"classify": "a b good c d", "translate": "abcdefg", "lm": "abc def"}
HOSTILE = ["</script>", "$x^2$", "\U0001f600", "漢字", "שלום", "\x00\ufffe", "▁the"]


@pytest.fixture(scope="module")
def subjects() -> dict[str, Subject]:
    return {name: untrained(name, n_layers=2, n_heads=2) for name in TEXT}


@pytest.fixture(scope="module")
def explanations(subjects: dict[str, Subject]) -> dict[str, Explanation]:
    requests = {
        "classify": TraceRequest(TEXT["classify"]),
        "translate": TraceRequest(TEXT["translate"], target="gfed"),
        "lm": TraceRequest(TEXT["lm"], decode={"max_new_tokens": 3}),
    }
    return {name: explain(subjects[name], request) for name, request in requests.items()}


def panels(figure: Any) -> list[Any]:
    """Return the axes that hold a matrix of cells, without colour bars."""
    return [axes for axes in figure.axes if not hasattr(axes, "_colorbar") and cells(axes) is not None]


def cells(axes: Any) -> np.ma.MaskedArray | None:
    """Return the values that are drawn, masked where they are hatched."""
    for artist in axes.collections:
        if isinstance(artist, QuadMesh):
            drawn = artist.get_array()
            assert drawn is not None
            return np.ma.asarray(drawn)
    return np.ma.asarray(axes.images[0].get_array()) if axes.images else None


def hatched(axes: Any) -> np.ndarray:
    """Return True for the hatched cells: through them the background is seen."""
    drawn = cells(axes)
    return np.ma.getmaskarray(drawn) & bool(axes.patch.get_hatch())


def labels(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


@pytest.mark.row("3.8")
@pytest.mark.parametrize("task", list(TEXT))
def test_attention_draws_the_recorded_weights(explanations: dict[str, Explanation], task: str) -> None:
    explanation = explanations[task]
    stack = "decoder" if task == "lm" else "encoder"
    weights = np.asarray(explanation.records[f"{stack}.1.self.weights"])
    pieces = [p.replace("▁", "␣") for p in explanation.streams[0].pieces]
    (axes,) = panels(explanation.plot.attention(layer=1, head=0, block="self"))
    drawn = cells(axes)
    assert drawn is not None
    seen = ~np.ma.getmaskarray(drawn)
    np.testing.assert_array_equal(drawn.data[seen], weights[0][seen])
    masked = np.triu(np.ones_like(seen), 1) if task == "lm" else np.zeros_like(seen)
    np.testing.assert_array_equal(~seen, masked)
    np.testing.assert_array_equal(hatched(axes), masked)
    assert labels(axes.xaxis) == pieces
    last = explanation.predictions[-1]
    following = [*pieces[1:], (last.actual or last.top[0]).piece.replace("▁", "␣")]
    read_and_predicted = [f"{one} → {other}" for one, other in zip(pieces, following, strict=True)]
    assert labels(axes.yaxis) == (read_and_predicted if task == "lm" else pieces)
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # row 0 on top
    all_heads = panels(explanation.plot.attention(block="self"))
    assert len(all_heads) == 2
    for head, axes in enumerate(all_heads):
        drawn = cells(axes)
        assert drawn is not None
        np.testing.assert_array_equal(drawn.data[seen], weights[head][seen])


def test_attention_selects_block_and_stack(explanations: dict[str, Explanation]) -> None:
    plot, records = explanations["translate"].plot, explanations["translate"].records
    for figure, id in [
        (plot.attention(0, 1, "cross"), "decoder.0.cross.weights"),
        (plot.attention(0, 1), "decoder.0.cross.weights"),
        (plot.attention(0, 1, "self"), "encoder.0.self.weights"),
        (plot.attention(0, 1, stack="encoder"), "encoder.0.self.weights"),
        (plot.attention(0, 1, stack="decoder"), "decoder.0.self.weights"),
    ]:
        drawn = cells(panels(figure)[0])
        assert drawn is not None
        seen = ~np.ma.getmaskarray(drawn)
        np.testing.assert_array_equal(drawn.data[seen], np.asarray(records[id])[1][seen])


@pytest.mark.parametrize("suffix", [".pdf", ".svg", ".png"])
def test_save_escapes_tokens_and_is_deterministic(tmp_path: Path, suffix: str) -> None:
    weights, masked = np.full((1, 7, 7), 1 / 7), np.zeros((1, 7, 7), dtype=bool)
    paths = [tmp_path / f"{i}{suffix}" for i in range(2)]
    tokens = [t.replace("漢字", "ßж") for t in HOSTILE] if suffix == ".pdf" else HOSTILE  # embedding takes seconds
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a glyph that is missing is a warning
        for path in paths:
            with style():
                figure = draw_attention("title", [], weights, [""], masked, (tokens, tokens))
                figure.draw_without_rendering()
            save(figure, path)
    data = paths[0].read_bytes()
    assert data == paths[1].read_bytes()
    if suffix == ".svg":
        text = data.decode()
        assert "&lt;/script&gt;" in text and "</script>" not in text
        assert ">$x^2$<" in text and ">␣the<" in text and ">U+0000U+FFFE<" in text  # text, not outlines
    if suffix == ".pdf":
        assert b"/Subtype /Type0" in data or b"/FontFile2" in data  # fonts inside, so text can be copied


def test_attention_of_a_long_text_keeps_its_values() -> None:
    e = explain(untrained("lm", n_layers=1, n_heads=1, positions="rotary"), TraceRequest("abcdefg" * 14))
    figure = e.plot.attention(0, 0)
    drawn = cells(panels(figure)[0])
    assert drawn is not None
    np.testing.assert_array_equal(drawn.filled(0), np.asarray(e.records["decoder.0.self.weights"])[0])
    assert max(figure.get_size_inches()) < 12


def test_plots_reject_invalid_requests(explanations: dict[str, Explanation], tmp_path: Path) -> None:
    plot = explanations["classify"].plot
    with pytest.raises(UsageError, match="no layer 2: they are counted from 0 to 1"):
        plot.attention(layer=2)
    with pytest.raises(UsageError, match="no head -1"):
        plot.attention(head=-1)
    with pytest.raises(UsageError, match="no cross attention"):
        plot.attention(block="cross")
    with pytest.raises(UsageError, match="no figure called 'attentoin'"):
        save_figure(explanations["classify"], "attentoin", tmp_path / "figure.pdf")
    assert not list(tmp_path.iterdir())


def test_attribution_has_a_bar_for_each_word(explanations: dict[str, Explanation]) -> None:
    """The sign is seen without colour, and the ranking is compared with random ones."""
    streams = explanations["classify"].streams
    test, target = Faithfulness(1.5, 0.2, -0.1, 0.6, True), Candidate(3, "</b>", 1.0, -0.1)
    scores = {"text": [0.5, -2.0, 0.0, 0.0, 1.0]}
    attribution = Attribution(
        "erase", "log p of '</b>'", target, None, -0.1, -2.5, scores, {}, None, test, test, 200, "[MASK]", [], 0.1
    )
    figure = draw_attribution(streams, attribution)
    (axes,) = figure.axes
    assert labels(axes.yaxis) == TEXT["classify"].split()
    assert [bar.get_width() for bar in axes.patches] == scores["text"]
    assert [bool(bar.get_hatch()) for bar in axes.patches] == [score < 0 for score in scores["text"]]
    assert any("Mean of 200 random rankings: +0.2 (95% between −0.1 and +0.6)" in t.get_text() for t in figure.texts)


@pytest.mark.parametrize(
    ("kind", "title"), [("attention", "Decoder layer 1: cross-attention, head 0"), ("attribution", "Attribution of")]
)
def test_figures_are_written(explanations: dict[str, Explanation], kind: str, title: str, tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    save_figure(explanations["translate"], kind, tmp_path / "figure.svg", layer=1, head=0)
    assert dict(matplotlib.rcParams) == before
    assert title in (tmp_path / "figure.svg").read_text(encoding="utf-8")
