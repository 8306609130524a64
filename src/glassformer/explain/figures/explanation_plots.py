"""Plot an explanation: its forward pass with tokens as labels, and attributions of words."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.errors import UsageError
from glassformer.explain.attribution.alignment import readings
from glassformer.explain.attribution.attribute import Attribution, attribute_fields
from glassformer.explain.attribution.value_function import Method
from glassformer.explain.explanation import Explanation
from glassformer.explain.figures import style as fs
from glassformer.explain.figures.attribution_figure import draw_attribution
from glassformer.explain.figures.effect_figure import draw_effect
from glassformer.explain.figures.trace_plots import TracePlots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAMILIES = ("attention", "positions", "alignment", "attribution", "effect")


class ExplanationPlots(TracePlots):
    """Figures of an explanation, as `explanation.plot`: with tokens as labels, and attributions."""

    def __init__(self, explanation: Explanation) -> None:
        super().__init__(explanation.records, {stream.name: stream.pieces for stream in explanation.streams})
        self._explanation = explanation

    def _following(self, texts: list[str]) -> list[str]:
        last = self._explanation.predictions[-1]
        return [*texts[1:], (last.actual or last.top[0]).piece]

    def _reading(self, layer: int | None, shifted: bool | None) -> tuple[int | None, bool, str]:
        if not self._has_cross or None not in (layer, shifted):
            return super()._reading(layer, shifted)
        # Words are erased in the model without edits.
        found = readings(self._explanation.base or self._explanation)
        fits = [r for r in found if layer in (None, r.layer + 1) and shifted in (None, r.shifted)]
        # There is no such layer.
        if not fits:
            return super()._reading(layer, shifted)
        best = fits[0]
        if best.agreement is None or best.chance is None:
            return best.layer + 1, best.shifted, ""
        score = f"{best.agreement:.2f}, by chance {best.chance:.2f}"
        return best.layer + 1, best.shifted, f" (of {len(fits)} readings this agrees best with erasing: {score})"

    def attribution(self, method: Method = "erase", *, attribution: Attribution | None = None) -> Figure:
        """Return a figure of the attribution of a prediction to the words, and of its faithfulness.

        Args:
            method: the method of attribution.
            attribution: an existing attribution, for instance of another token, class or foil.
        """
        attribution = attribution or attribute_fields(self._explanation, method=method)
        return draw_attribution(self._explanation.streams, asdict(attribution))

    def effect(self) -> Figure:
        """Return a figure of what the edits of this explanation change at each position."""
        if self._explanation.edited is None:
            hint = "as in: explain(run, TraceRequest(text, edits=…))"
            raise UsageError("this explanation has no edits whose effect could be drawn", hint)
        return draw_effect(self._explanation.edited)


def save_figure(
    explanation: Explanation,
    kind: str,
    path: Path,
    *,
    layer: int | None = None,
    head: int | None = None,
    method: Method = "erase",
) -> None:
    """Write a figure of an explanation: attention, positions, alignment, attribution or effect."""
    fs.check_suffix(path)
    if kind not in FAMILIES:
        raise UsageError(f"there is no figure called {kind!r}", f"one of: {', '.join(FAMILIES)}")
    arguments = {"attention": (layer, head), "alignment": (layer, head), "attribution": (method,)}.get(kind, ())
    fs.save(getattr(ExplanationPlots(explanation), kind)(*arguments), path)
