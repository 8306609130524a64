"""What decoding returns, and how its scores compare. Search and sampling are elsewhere."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    """One text a model wrote."""

    ids: list[int]
    """Its tokens, without BOS and EOS; a forced prefix is part of them, a language model's prompt is not."""
    score: float
    """log_prob / length ** length_penalty, where length counts the EOS: what n-best lists are sorted by."""
    log_prob: float
    """Natural logarithm of its probability under the model, EOS included (nats)."""
    finished: bool
    """It ended with EOS; False when the length limit cut it."""


def length_norms(longest: int, penalty: float) -> list[float]:
    """length ** penalty for the lengths 0 … longest: what a log-probability is divided by.

    A penalty of 0 compares log-probabilities as they are, which favours short texts; 1 compares their
    means over the tokens. (Wu et al. 2016, section 7, divide by ((5 + length) / 6) ** penalty instead.)
    """
    return [1.0] + [float(length) ** penalty for length in range(1, longest + 1)]
