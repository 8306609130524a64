"""Texts to compare a model on where there is no data of its own: sentences, and tokens at random."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from glassformer.text.tokenizer import Tokenizer

TEXTS = (
    "The film was not good.",
    "An unusually long sentence, with numbers such as 1,234.5 and a name: Zürich!",
    "naïve café 東京 😀",
    "a",
)
RANDOM_TOKENS = 12


def random_ids(t: Tokenizer, n: int) -> Iterator[list[int]]:
    """Yield n rows of ids at random from the vocabulary, the same at every call."""
    words = sorted({*range(t.vocab_size)} - {*t.without_text})
    generator = torch.Generator().manual_seed(0)
    for _ in range(n):
        places = torch.randint(len(words), (RANDOM_TOKENS,), generator=generator)
        yield [words[i] for i in places.tolist()]


def sample_texts(t: Tokenizer, n: int) -> list[str]:
    """Return n texts of which a model can be compared that has no data: sentences, and tokens at random."""
    return [*TEXTS, *map(t.decode, random_ids(t, n - len(TEXTS)))]
