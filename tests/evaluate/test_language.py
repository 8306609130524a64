"""The rates of a language model, by hand."""

from __future__ import annotations

import math

import pytest

from glassformer.evaluate.metrics import score


def test_a_uniform_guess_over_256_bytes_costs_eight_bits() -> None:
    n = 1000
    result = score(n * math.log(256), n_tokens=n, n_chars=n, n_bytes=n)
    assert result["bits_per_char"] == pytest.approx(8.0) == result["bits_per_byte"]
    assert result["perplexity"] == pytest.approx(256.0)
    assert result["nats_per_token"] == pytest.approx(math.log(256)) == result["nats_per_char"]
    assert result["n"] == n


def test_tokens_characters_and_bytes_divide_the_same_sum() -> None:
    result = score(600.0, n_tokens=100, n_chars=300, n_bytes=400)
    assert result["nats_per_token"] == 6.0
    assert result["nats_per_char"] == 2.0
    assert result["bits_per_char"] == pytest.approx(2.0 / math.log(2))
    assert result["bits_per_byte"] == pytest.approx(1.5 / math.log(2))


def test_a_hopeless_model_has_no_perplexity_not_an_error() -> None:
    assert score(1e6, 1, 1, 1)["perplexity"] is None
