"""The answer in a line: what a model said of a text, and how sure of it it is."""

from __future__ import annotations

import math
from typing import TypedDict

from glassformer.explain.decode_log import DecodeLog
from glassformer.explain.predictions import Prediction


class Answer(TypedDict):
    """In a line, and how sure of it the model is."""

    headline: str
    """A class, a translation, a continuation."""
    detail: str
    """Its probability in per cent, or its log-probability."""


def decided(prediction: Prediction) -> Answer:
    """The answer of a model that decides for a class."""
    best = prediction.top[0]
    percent = 100 * math.exp(best.log_prob)
    return {"headline": best.piece, "detail": ">99.9%" if percent > 99.9 else f"{percent:.1f}%"}


def written(text: str, decode: DecodeLog) -> Answer:
    """The answer of a model that wrote this text, best of what it wrote."""
    best = decode.hypotheses[0]
    sure = f"{best.log_prob:.3g}".replace("-", "−")
    ending = "" if best.finished else ", cut before its end"
    n = len(best.ids) + best.finished
    tokens = "1 token" if n == 1 else f"{n} tokens"
    return {"headline": text, "detail": f"log-probability {sure} over {tokens}{ending}"}
