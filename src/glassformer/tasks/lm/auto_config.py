"""What suits a running text, from its length alone: vocabulary, size of the model, passes, dropout."""

from __future__ import annotations

from typing import Any

SIZES = ((5e6, 4, 192), (50e6, 6, 256), (float("inf"), 6, 384))
"""Below so many characters: layers, and width."""
D_HEAD = 64
"""Width of a head, or as little more as divides the model's."""
CHARACTERS = 3
"""Of a token, about, in pieces."""


def suggest(n_characters: int) -> dict[str, Any]:
    """Return the suggested settings by field.

    - Vocabulary: a thousand pieces at least, 1,500 for a million characters, more by the root of the length.
    - Passes: eleven over a million characters, more over fewer, up to 25; validation ends them earlier.
    - Dropout where a text is read often.

    RESULTS.md has what the first 100,000 characters of Shakespeare say of it: a smaller model or fewer pieces are
    worse.
    """
    n = max(1, n_characters)
    millions = n / 1e6
    n_layers, d_model = next((layers, width) for limit, layers, width in SIZES if n < limit)
    return {
        "vocab_size": int(min(16_000, max(1000, round(1500 * millions**0.5, -2)))),
        "epochs": round(min(25.0, max(1.0, 11 / millions**0.45)), 1),
        "n_layers": n_layers,
        "d_model": d_model,
        "dropout": 0.3 if n < 0.2e6 else 0.15 if n < 5e6 else 0.05 if n < 50e6 else 0.0,
    }


def heads_of(d_model: int) -> int:
    """Return the number of heads of about `D_HEAD` that make up this width."""
    return next(n for n in range(max(1, d_model // D_HEAD), 0, -1) if d_model % n == 0)
