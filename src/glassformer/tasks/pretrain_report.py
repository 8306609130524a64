"""How runs of pretraining are reported."""

from __future__ import annotations

from glassformer.evaluate.metrics import Metric
from glassformer.runs.records import JsonObject
from glassformer.tasks.reporting import TaskReport
from glassformer.text.answers import masked_lines
from glassformer.utils.formatting import number, percent


class PretrainReport(TaskReport):
    """How well hidden words are guessed, and what is guessed for some."""

    model_name = "masked language model"
    pipeline_tag = "fill-mask"
    family = "encoder"
    unit = "masked tokens"
    loss_unit = "nats per masked token"
    metrics = (
        Metric("nats_per_masked_token", "Nats per masked token", "lower is better", number, False),
        Metric("masked_accuracy", "Masked-token accuracy", "share of masked tokens predicted right", percent),
    )
    headline = "nats_per_masked_token"
    limits = (
        "It fills in words in the manner of its training texts. It is meant to be fine-tuned: "
        "glassformer train classify --init-from with the folder of its run."
    )
    examples_note = "Beginnings of the first texts, one token of each hidden."

    def example_command(self, run: str) -> str:
        return f'glassformer predict {run} "I [MASK] this film."'

    def answer_lines(self, answer: JsonObject) -> list[str]:
        return masked_lines(answer)
