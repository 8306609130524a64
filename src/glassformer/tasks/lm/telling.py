"""How runs of a language model are told."""

from __future__ import annotations

from collections.abc import Sequence

from glassformer.runs.values import Facts
from glassformer.style.words import fenced
from glassformer.tasks.telling import Telling


class LanguageModellingTelling(Telling):
    """Rates of surprise, and text written after a prompt."""

    what = "language model"
    family = "decoder-only"
    unit = "tokens"
    loss_unit = "nats a token"
    running_text = True
    headline = "bits_per_char"
    shown = ("bits_per_char", "nats_per_char", "bits_per_byte", "nats_per_token", "perplexity")
    limits = (
        "It continues text in the manner of its training text. It knows no facts and follows no instructions."
    )
    examples_note = "The model goes on from a prompt."

    def example_table(self, examples: Sequence[Facts]) -> str:
        return "\n\n".join(fenced(f"{e['prompt']}{e['text']}") for e in examples)

    def example_command(self, run: str) -> str:
        return f'glassformer predict {run} --prompt "Once" --max-new-tokens 200 --top-p 0.9 --seed 1'

    def answer_lines(self, answer: Facts) -> list[str]:
        return [answer["prompt"] + answer["text"]]
