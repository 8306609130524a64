"""The figures of an explanation: those of its forward pass with tokens written beside them, and what words weigh."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

from glassformer.errors import UsageError
from glassformer.explain.attribution.alignment import readings
from glassformer.explain.attribution.attribute import Attribution, attribute_fields
from glassformer.explain.explanation_data import ExplanationData
from glassformer.explain.figures import style as fs
from glassformer.explain.figures.attribution_figure import draw_attribution
from glassformer.explain.figures.trace_plots import TracePlots
from glassformer.explain.request import MAX_LAYERED_TOKENS

KINDS = ("attention", "positions", "alignment", "attribution")


class ExplanationPlots(TracePlots):
    """`explanation.plot`: the same, with tokens written beside rows and columns, and what each word weighs."""

    def __init__(self, explanation: ExplanationData) -> None:
        start, end = explanation.window or (0, None)
        pieces = {stream.name: stream.pieces for stream in explanation.streams}
        cut = {name: p[start:end] if len(p) > MAX_LAYERED_TOKENS else p for name, p in pieces.items()}
        super().__init__(explanation.records, cut)
        self._explanation = explanation

    def _reading(self, layer: int | None, shifted: bool | None) -> tuple[int | None, bool, str]:
        if self._explanation.window is not None or not self._has_cross or None not in (layer, shifted):
            return super()._reading(layer, shifted)
        found = readings(self._explanation)
        fits = [r for r in found if layer in (None, r.layer + 1) and shifted in (None, r.shifted)]
        if not fits:  # there is no such layer
            return super()._reading(layer, shifted)
        best = fits[0]
        why = f" (of {len(fits)} readings this agrees best with erasing: {best.agreement:.2f}, by chance {best.chance:.2f})"
        return best.layer + 1, best.shifted, "" if math.isnan(best.agreement) else why

    def attribution(
        self, method: Literal["erase", "integrated_gradients"] = "erase", *, of: Attribution | None = None
    ) -> Any:
        """How much each word speaks for what the model said, and how faithful that ranking is.

        Args:
            method: how words are weighed.
            of: an attribution that exists already, for another token, class or foil.
        """
        found = of if of is not None else attribute_fields(self._explanation, method=method)
        return draw_attribution(self._explanation.streams, found.to_json())


def save_figure(
    explanation: ExplanationData,
    kind: str,
    path: Path,
    *,
    layer: int | None = None,
    head: int | None = None,
    method: Literal["erase", "integrated_gradients"] = "erase",
) -> None:
    """Write a figure of an explanation: attention, positions, alignment or attribution.

    Raises:
        UsageError: another kind or suffix, or the model has no such thing.
        ResourceError: the file cannot be written.
    """
    fs.check_suffix(path)
    plots = ExplanationPlots(explanation)
    match kind:
        case "attention":
            figure = plots.attention(layer, head)
        case "positions":
            figure = plots.positions()
        case "alignment":
            figure = plots.alignment(layer, head)
        case "attribution":
            figure = plots.attribution(method)
        case _:
            raise UsageError(f"there is no figure called {kind!r}", f"one of: {', '.join(KINDS)}")
    fs.save(figure, path)
