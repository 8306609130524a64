"""Plot an explanation: its forward pass with tokens as labels, attributions of words, the effect of edits."""

from __future__ import annotations

from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.errors import UsageError
from glassformer.explain.attribution.alignment import readings
from glassformer.explain.attribution.attribute import Attribution, attribute_fields
from glassformer.explain.attribution.value_function import Method
from glassformer.explain.edits.what_if import WhatIf
from glassformer.explain.explanation import Explanation
from glassformer.explain.figures import style as fs
from glassformer.explain.figures.attribution_figure import draw_attribution
from glassformer.explain.figures.trace_plots import TracePlots
from glassformer.utils.formatting import shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure


WIDTH, LINE, TOP, BOTTOM = 6.6, 0.24, 0.75, 0.62
MAX_ROWS = 60
"""Maximum positions drawn, those where the logit difference changes most."""


def draw_effect(result: WhatIf) -> Figure:
    """Return the figure of what edits change."""
    by_size = sorted(result.effects, key=lambda e: -abs(e.difference_after - e.difference_before))
    effects = sorted(by_size[:MAX_ROWS], key=lambda e: e.position or 0)
    after = result.why_not if result.answer_after is None else result.answer_after
    title = shortened(f"{result.answer_before} → {after}", 70)
    height = TOP + LINE * len(effects) + BOTTOM
    with fs.style():
        figure = fs.new_figure(WIDTH, height, title, shortened("; ".join(result.edits), 100))
        labels = [_label(effect.position, effect.target, effect.contrast) for effect in effects]
        left = min(3.0, 0.25 + max(fs.text_width(figure, labels, 9.5)))
        axes = fs.inset(figure, left, TOP, WIDTH - left - 0.25, LINE * len(effects))
        axes.axvline(0, color=fs.RULE, linewidth=1)
        for row, effect in enumerate(effects):
            before, now = effect.difference_before, effect.difference_after
            colour = fs.NEGATIVE if effect.before != effect.after else fs.POSITIVE
            axes.plot([before, now], [row, row], color=colour, linewidth=1.6, solid_capstyle="round")
            axes.plot(before, row, "o", markerfacecolor=fs.PAPER, markeredgecolor=fs.QUIET, markersize=5)
            axes.plot(now, row, "o", color=colour, markersize=5)
        axes.set_ylim(len(effects) - 0.5, -0.5)
        axes.set_yticks(range(len(effects)), [fs.printable(label) for label in labels], fontsize=9.5)
        axes.tick_params(axis="y", length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("logit of the token minus logit of its contrast; ring: without edits, point: with them")
        return fs.finish(figure)


def _label(position: int | None, target: str, contrast: str) -> str:
    place = "" if position is None else f"{position}: "
    return f"{place}{shortened(target, 20)} against {shortened(contrast, 20)}"


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


def attention_png(explanation: Explanation) -> bytes:
    """Return a PNG of the cross-attention of a translation, or of the self-attention of other models."""
    crosses = any(step.block == "cross" for step in explanation.records.steps.values())
    figure = ExplanationPlots(explanation).attention(block="cross" if crosses else "self")
    buffer = BytesIO()
    with fs.style():
        figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()
