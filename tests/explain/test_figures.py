"""Tests of figures: they draw the recorded values with all labels, and files are vector graphics."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from tests.browser.models import subject_of

from glassformer.errors import UsageError
from glassformer.explain.attribution import Attribution, Faithfulness
from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.explain.figures import ExplanationPlots, save, save_figure
from glassformer.explain.inputs import Candidate

REQUESTS = {
    "classify": TraceRequest("a b good c d"),
    "translate": TraceRequest("abcdefg", target="gfed"),
    "lm": TraceRequest("abc def", decode={"max_new_tokens": 3}),
}
HOSTILE = ["</script>", "$x^2$", "\U0001f600", "漢字", "שלום", "\x00\ufffe", "▁the"]


@pytest.fixture(scope="module")
def explanations() -> dict[str, Explanation]:
    return {name: explain(subject_of((name, {})), request) for name, request in REQUESTS.items()}


def drawn(figure: Any) -> list[tuple[Any, np.ma.MaskedArray]]:
    """Return the axes that hold a matrix of cells, with its values, masked where they are hatched."""
    found = []
    for axes in figure.axes:
        arrays = [one.get_array() for one in axes.collections if isinstance(one, QuadMesh)] or [
            image.get_array() for image in axes.images
        ]
        if arrays and not hasattr(axes, "_colorbar"):
            cells = np.ma.asarray(arrays[0])
            assert axes.patch.get_hatch() or not cells.mask.any()  # through masked cells the background is seen
            found.append((axes, cells))
    return found


def labels(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


@pytest.mark.row("3.8")
@pytest.mark.parametrize("task", list(REQUESTS))
def test_attention_draws_the_recorded_weights(explanations: dict[str, Explanation], task: str) -> None:
    explanation = explanations[task]
    weights = explanation[f"{'decoder' if task == 'lm' else 'encoder'}.1.self.weights"]
    pieces = [p.replace("▁", "␣") for p in explanation.streams[0].pieces]
    masked = np.triu(np.ones_like(weights[0], dtype=bool), 1) if task == "lm" else np.zeros_like(weights[0], dtype=bool)
    of = "decoder.self" if task == "lm" else "encoder.self"
    [(axes, _)] = drawn(explanation.plot.attention(layer=1, head=0, of=of))
    assert labels(axes.xaxis) == pieces
    last = explanation.predictions[-1]
    following = [*pieces[1:], (last.actual or last.top[0]).piece.replace("▁", "␣")]
    read_and_predicted = [f"{one} → {other}" for one, other in zip(pieces, following, strict=True)]
    assert labels(axes.yaxis) == (read_and_predicted if task == "lm" else pieces)
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # row 0 on top
    all_heads = drawn(explanation.plot.attention(of=of))
    assert len(all_heads) == len(weights) == 2
    for (_, cells), expected in zip(all_heads, weights, strict=True):
        np.testing.assert_array_equal(np.ma.getmaskarray(cells), masked)
        np.testing.assert_array_equal(cells.data[~masked], expected[~masked])


def test_attention_selects_stack_and_block(explanations: dict[str, Explanation]) -> None:
    plot, records = explanations["translate"].plot, explanations["translate"].records
    for of in ("encoder.self", "decoder.self", "decoder.cross", None):
        [(_, cells)] = drawn(plot.attention(0, 1, of))
        seen, (stack, block) = ~np.ma.getmaskarray(cells), (of or "decoder.cross").split(".")
        np.testing.assert_array_equal(cells.data[seen], np.asarray(records[f"{stack}.0.{block}.weights"])[1][seen])


def test_attention_of_a_long_text_keeps_its_values() -> None:
    e = explain(subject_of(("lm", {"n_layers": 1, "n_heads": 1, "positions": "rotary"})), TraceRequest("abcdefg" * 14))
    figure = e.plot.attention(0, 0)
    [(_, cells)] = drawn(figure)
    np.testing.assert_array_equal(cells.filled(0), np.asarray(e.records["decoder.0.self.weights"])[0])
    assert max(figure.get_size_inches()) < 12


@pytest.mark.parametrize("suffix", [".pdf", ".svg", ".png"])
def test_files_escape_tokens_and_are_deterministic(tmp_path: Path, suffix: str) -> None:
    e = explain(subject_of(("classify", {"n_layers": 1, "n_heads": 1})), TraceRequest("a b good c d a b"))
    paths = [tmp_path / f"{i}{suffix}" for i in range(2)]
    tokens = [t.replace("漢字", "ßж") for t in HOSTILE] if suffix == ".pdf" else HOSTILE  # embedding takes seconds
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a glyph that is missing is a warning
        for path in paths:
            save(replace(e, streams=[replace(e.streams[0], pieces=tokens)]).plot.attention(), path)
    data = paths[0].read_bytes()
    assert data == paths[1].read_bytes()
    if suffix == ".svg":
        text = data.decode()
        assert "&lt;/script&gt;" in text and "</script>" not in text
        assert ">$x^2$<" in text and ">␣the<" in text and ">U+0000U+FFFE<" in text  # text, not outlines
    if suffix == ".pdf":
        assert b"/Subtype /Type0" in data or b"/FontFile2" in data  # fonts inside, so text can be copied


def test_figures_are_written_or_refused(explanations: dict[str, Explanation], tmp_path: Path) -> None:
    e, plot = explanations["classify"], explanations["classify"].plot
    for figure, message in (
        (lambda: plot.attention(layer=2), "no layer 2: they are counted from 0 to 1"),
        (lambda: plot.attention(head=-1), "no head -1"),
        (lambda: plot.attention(of="decoder.cross"), "no attention 'decoder.cross' here"),
        (lambda: save_figure(e, "attentoin", tmp_path / "figure.pdf"), "no figure called 'attentoin'"),
    ):
        with pytest.raises(UsageError, match=message):
            figure()
    assert not list(tmp_path.iterdir())
    before, path = dict(matplotlib.rcParams), tmp_path / "figure.svg"
    titles = {"attention": "Decoder layer 1: cross-attention, head 0", "attribution": "Attribution of"}
    for kind, title in titles.items():
        save_figure(explanations["translate"], kind, path, layer=1, head=0)
        assert title in path.read_text(encoding="utf-8") and dict(matplotlib.rcParams) == before
        path.unlink()


def test_attribution_has_a_bar_for_each_word(explanations: dict[str, Explanation]) -> None:
    """The sign is seen without colour, and the ranking is compared with random ones."""
    test, target = Faithfulness(1.5, 0.2, -0.1, 0.6, True), Candidate(3, "</b>", 1.0, -0.1)
    scores, words = {"text": [0.5, -2.0, 0.0, 0.0, 1.0]}, {"text": REQUESTS["classify"].text.split()}
    attribution = Attribution(
        "erase", "log p of '</b>'", target, None, -0.1, -2.5, scores, words, None, test, test, 200, "[MASK]", []
    )
    drawn: Any = SimpleNamespace(streams=explanations["classify"].streams, attribute=lambda method: attribution)
    figure = ExplanationPlots(drawn).attribution()
    (axes,) = figure.axes
    assert labels(axes.yaxis) == REQUESTS["classify"].text.split()
    assert [bar.get_width() for bar in axes.patches] == scores["text"]
    assert [bool(bar.get_hatch()) for bar in axes.patches] == [score < 0 for score in scores["text"]]
    assert any("Mean of 200 random rankings: +0.2 (95% between −0.1 and +0.6)" in t.get_text() for t in figure.texts)
