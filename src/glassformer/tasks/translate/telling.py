"""How runs of a translator are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from glassformer.evaluate.translation import paired_bootstrap
from glassformer.runs.values import Evaluation, Facts
from glassformer.style.words import table
from glassformer.tasks.telling import Telling
from glassformer.tasks.translate.plots import bleu_by_length


class TranslateTelling(Telling):
    """Sentences beside their references; BLEU and chrF come with sacreBLEU's signatures."""

    what = "translator"
    family = "encoder–decoder"
    unit = "sentences"
    loss_unit = "nats a target token"
    lengths_of = "source sentences"
    headline = "bleu"
    shown = ("bleu", "chrf", "exact_match", "length_ratio")
    baselines: ClassVar = {"copy": "copying the source"}
    captions: ClassVar = {"bleu_by_length": "BLEU by length of the reference."}
    limits = "It translates sentences of the kind it was trained on. Others may come out fluent and wrong."
    compared = ("reference", "translation")

    def details(self, evaluation: Evaluation) -> list[str]:
        scores = evaluation.scores
        signatures = [f"`{scores[key]}`" for key in ("bleu_signature", "chrf_signature") if key in scores]
        if not signatures:
            return []
        beam = f"Decoded with beam {scores['beam_size']}. " if "beam_size" in scores else ""
        return [f"{beam}sacreBLEU signatures: {', '.join(signatures)}."]

    def plots(self, evaluation: Evaluation) -> dict[str, bytes]:
        image = bleu_by_length(evaluation)
        return {} if image is None else {"bleu_by_length": image}

    def example_table(self, examples: Sequence[Facts]) -> str:
        rows = [[e["text"], e["translation"], e.get("reference", "")] for e in examples]
        return table(["source", "this model", "reference"], rows, left=3)

    def example_command(self, run: str) -> str:
        return f"glassformer predict {run} --beam-size 5 < source.txt > translation.txt"

    def answer_lines(self, answer: Facts) -> list[str]:
        if "n_best" not in answer:
            return [answer["translation"]]
        return [f"{i}\t{h['score']:.4f}\t{h['translation']}" for i, h in enumerate(answer["n_best"], start=1)]

    def paired_test(
        self, first: Sequence[str], second: Sequence[str], truth: Sequence[str], name: str
    ) -> dict[str, Any]:
        """BLEU by the paired bootstrap, for it is no share; exact match as shares are."""
        if name == "bleu":
            return paired_bootstrap(first, second, truth)
        return super().paired_test(first, second, truth, name)
