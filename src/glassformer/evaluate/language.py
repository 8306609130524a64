"""Scores of a language model, from the summed surprise of a held-out text.

Nats per token depend on the tokenizer; per character and per byte they do not, so those compare models.
Running the model over the text, each token predicted once, is the caller's work.
"""

from __future__ import annotations

import math

from glassformer.errors import DataError


def score(nats: float | int, n_tokens: int, n_chars: int, n_bytes: int) -> dict[str, float | int | None]:
    """Turn the summed negative log-likelihood of a text into the usual rates.

    Args:
        nats: −Σ log p(token | what precedes) over all predicted tokens, natural logarithm.
        n_tokens: tokens predicted.
        n_chars: characters (Unicode code points) those tokens spell.
        n_bytes: bytes of the same text in UTF-8.

    Returns:
        n (= n_tokens), n_chars, n_bytes, nats, nats_per_token, perplexity (per token; None beyond the range
        of a float, since JSON has no infinity), nats_per_char, bits_per_char, bits_per_byte.

    Raises:
        DataError: no tokens, characters or bytes to divide by.
    """
    if min(n_tokens, n_chars, n_bytes) <= 0:
        got = f"{n_tokens} tokens, {n_chars} characters and {n_bytes} bytes"
        hint = "The held-out part must hold at least two tokens."
        raise DataError(f"A language model needs text to be scored on; got {got}.", hint)
    per_token = nats / n_tokens
    return {
        "n": n_tokens,
        "n_chars": n_chars,
        "n_bytes": n_bytes,
        "nats": nats,
        "nats_per_token": per_token,
        "perplexity": math.exp(per_token) if per_token < 700 else None,
        "nats_per_char": nats / n_chars,
        "bits_per_char": nats / n_chars / math.log(2),
        "bits_per_byte": nats / n_bytes / math.log(2),
    }
