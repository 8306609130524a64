"""How runs of a language model are reported."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.evaluate.significance import paired_bootstrap
from glassformer.runs.records import JsonObject
from glassformer.tasks.reporting import TaskReport
from glassformer.text.answers import continuation_lines
from glassformer.utils.formatting import fenced


class LanguageModellingReport(TaskReport):
    """Rates of surprise, and text written after a prompt."""

    model_name = "language model"
    pipeline_tag = "text-generation"
    family = "decoder-only"
    unit = "tokens"
    loss_unit = "nats per token"
    headline = "bits_per_char"
    table_metrics = ("bits_per_char", "nats_per_char", "bits_per_byte", "nats_per_token", "perplexity")
    limits = "It continues text in the manner of its training text. It knows no facts and follows no instructions."
    examples_note = "The model goes on from a prompt."
    comparison_keys = ("chars", "nats")

    def example_table(self, examples: Sequence[JsonObject]) -> str:
        return "\n\n".join(fenced(f"{e['prompt']}{e['text']}") for e in examples)

    def example_command(self, run: str) -> str:
        return f'glassformer predict {run} --prompt "Once" --max-new-tokens 200 --top-p 0.9 --seed 1'

    def answer_lines(self, answer: JsonObject) -> list[str]:
        return continuation_lines(answer)

    def paired_test(
        self, first: Sequence[str], second: Sequence[str], truth: Sequence[str], name: str
    ) -> dict[str, Any]:
        """Run the paired bootstrap over blocks of the text, of nats per character.

        In bits where those are the metric.
        """
        unit = math.log(2) if name == "bits_per_char" else 1.0
        chars = np.array(truth, float)
        one, two = (np.stack([np.array(nats, float) / unit, chars], axis=1) for nats in (first, second))
        test = paired_bootstrap(one, two, lambda sums: float(sums[0] / sums[1]))
        metric = "bits_per_char" if name == "bits_per_char" else "nats_per_char"
        return test | {"metric": metric, "unit": "blocks of the text"}
