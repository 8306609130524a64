"""Summarize a model's output in one line: the class or the generated text, with its probability.

Of an ensemble one model is explained; the answer of all of them goes with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypedDict

from glassformer.explain.decode_log import DecodeLog
from glassformer.explain.predictions import Prediction
from glassformer.utils.formatting import shortened

MAX_HEADLINE_CHARS = 80


class Answer(TypedDict):
    """The model's output in one line, with its probability."""

    headline: str
    """A class, a translation, a continuation."""
    detail: str
    """Its probability in percent, or its log-probability."""


@dataclass(frozen=True)
class EnsembleMember:
    """The model of an ensemble that is traced."""

    size: int
    """Number of models in the ensemble."""
    member: int
    """Which of them is traced, counted from 1."""
    answer: Answer
    """Answer of all models together; the answer of an explanation is that of this member."""

    def warning(self, own: Answer) -> str:
        """Return a sentence that compares this model's answer with the ensemble's."""
        member_text, ensemble_text = (
            f"{shortened(answer['headline'], MAX_HEADLINE_CHARS)} ({answer['detail']})" for answer in (own, self.answer)
        )
        return (
            f"an ensemble of {self.size} models: this is member {self.member}, which predicts {member_text}; "
            f"the ensemble predicts {ensemble_text}"
        )


def class_answer(prediction: Prediction) -> Answer:
    """Return the answer of a classifier: its most probable class."""
    best = prediction.top[0]
    percent = 100 * math.exp(best.log_prob)
    return {"headline": best.piece, "detail": ">99.9%" if percent > 99.9 else f"{percent:.1f}%"}


def text_answer(text: str, decode: DecodeLog) -> Answer:
    """Return the answer of a translator or language model: its best text, with the log-probability of that."""
    best = decode.hypotheses[0]
    log_prob = f"{best.log_prob:.3g}".replace("-", "−")
    n = len(best.ids) + best.finished
    tokens = "1 token" if n == 1 else f"{n} tokens"
    truncated = "" if best.finished else ", truncated before its end"
    return {"headline": text, "detail": f"log-probability {log_prob} over {tokens}{truncated}"}
