"""Summarize a model's output in one line: the class or the generated text, with its probability."""

from __future__ import annotations

import math
from typing import TypedDict

from glassformer.explain.decode_log import DecodeLog
from glassformer.explain.predictions import Prediction


class Answer(TypedDict):
    """The model's output in one line, with its probability."""

    headline: str
    """A class, a translation, a continuation."""
    detail: str
    """Its probability in percent, or its log-probability."""


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
