"""A picture of a translator's scores. It takes an evaluation and returns PNG bytes, or None without numbers."""

from __future__ import annotations

import numpy as np

from glassformer.runs.values import Evaluation
from glassformer.style import plots as ps


def bleu_by_length(evaluation: Evaluation) -> bytes | None:
    """Draw BLEU by length of the reference."""
    rows = evaluation.scores.get("by_length") or []
    overall = evaluation.value("bleu")
    if len(rows) < 2 or overall is None:
        return None
    told = "Test sentences by tokens of the reference, n of each"
    figure, (axes,) = ps.new_figure(3.3, "BLEU by length", told)
    ps.room_for_labels(figure, 0.95)
    x, bleu = np.arange(len(rows)), [row["bleu"] for row in rows]
    axes.bar(x, bleu, 0.62, color=ps.SOFT)
    for at, value in zip(x, bleu, strict=True):
        axes.annotate(f"{value:.1f}", (at, 0), (0, 6), textcoords="offset points", ha="center", color=ps.INK)
    axes.axhline(overall, color=ps.ACCENT, linewidth=1.2)
    axes.set_xticks(x, [f"{row['min']}–{row['max']}\nn = {row['n']:,}" for row in rows])
    axes.tick_params(length=0)
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.set_ylim(0, max([*bleu, overall, 1e-9]) * 1.08)
    ps.end_labels(axes, [(len(rows) - 0.4, overall, f"all {overall:.1f}", ps.ACCENT)])
    return ps.png(figure)
