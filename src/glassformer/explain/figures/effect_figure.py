"""Draw the effect of edits: at each position, the logit of the text's own token against its contrast.

A grey ring is without edits, a filled point with them: blue where another class or token wins, else orange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glassformer.explain.edits.what_if import WhatIf
from glassformer.explain.figures import style as fs
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
