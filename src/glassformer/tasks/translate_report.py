"""How runs of a translator are reported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from glassformer.evaluate.translation import paired_bootstrap
from glassformer.runs.records import Evaluation, JsonObject
from glassformer.tasks.reporting import TaskReport
from glassformer.text.answers import translation_lines
from glassformer.utils import plotting as ps
from glassformer.utils.formatting import table

SIGNATURES = ("bleu_signature", "bleu_lc_signature", "chrf_signature")


class TranslateReport(TaskReport):
    """Sentences beside their references; BLEU and chrF come with sacreBLEU's signatures."""

    model_name = "translator"
    pipeline_tag = "translation"
    family = "encoder–decoder"
    unit = "sentences"
    loss_unit = "nats per target token"
    inputs_name = "source sentences"
    headline = "bleu"
    table_metrics = ("bleu", "bleu_lc", "chrf", "exact_match", "length_ratio")
    baselines: ClassVar = {"copy": "copying the source"}
    captions: ClassVar = {"bleu_by_length": "BLEU by length of the reference."}
    limits = "It translates sentences of the kind it was trained on. Others may come out fluent and wrong."
    comparison_keys = ("reference", "translation")

    def details(self, evaluation: Evaluation) -> list[str]:
        scores = evaluation.scores
        signatures = [f"`{scores[key]}`" for key in SIGNATURES if key in scores]
        if not signatures:
            return []
        how = f"Decoded with beam {scores['beam_size']}. " if "beam_size" in scores else ""
        if scores.get("sample"):
            how = f"Sampled at temperature {scores.get('temperature', 1.0):g}, seed {scores.get('decode_seed', 0)}. "
        words = scores.get("bleu_lc_words")
        lower = f" The lowercased references have {words:,} words." if words else ""
        return [f"{how}sacreBLEU signatures: {', '.join(signatures)}.{lower}"]

    def plots(self, evaluation: Evaluation) -> dict[str, bytes]:
        image = bleu_by_length(evaluation)
        return {} if image is None else {"bleu_by_length": image}

    def example_table(self, examples: Sequence[JsonObject]) -> str:
        rows = [[e["text"], e["translation"], e.get("reference", "")] for e in examples]
        return table(["source", "this model", "reference"], rows, left=3)

    def example_command(self, run: str) -> str:
        return f"glassformer predict {run} --beam-size 5 < source.txt > translation.txt"

    def answer_lines(self, answer: JsonObject) -> list[str]:
        return translation_lines(answer)

    def paired_test(
        self, first: Sequence[str], second: Sequence[str], truth: Sequence[str], name: str
    ) -> dict[str, Any]:
        """Compare two systems: BLEU by the paired bootstrap, exact match by the test of proportions."""
        if name == "bleu":
            return paired_bootstrap(first, second, truth)
        return super().paired_test(first, second, truth, name)


def bleu_by_length(evaluation: Evaluation) -> bytes | None:
    """Draw BLEU by length of the reference; PNG bytes, or None where there is nothing to draw."""
    rows = evaluation.scores.get("length_buckets") or []
    overall = evaluation.value("bleu")
    if len(rows) < 2 or overall is None:
        return None
    subtitle = "Test sentences by tokens of the reference, n of each"
    figure, (axes,) = ps.new_figure(3.3, "BLEU by length", subtitle, right=0.95)
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
