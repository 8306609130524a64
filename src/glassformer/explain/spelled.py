"""How the tokens of a text are spelled: in numbers for the model, in n-grams for a person."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from glassformer.models.spelling import Spelling
from glassformer.text.spelling import FIRST
from glassformer.text.tokenizer import Tokenizer


def spelling_of(t: Tokenizer, text: str, kept: Sequence[int], n_pad: int) -> tuple[Spelling, list[list[str]]]:
    """The spelling of a batch of this one text, and the n-grams of each of its tokens.

    Args:
        t: a tokenizer with n-grams. text: what is read.
        kept: places of the tokens that are left of it. n_pad: tokens of padding behind, which nothing spells.
    """
    assert t.spelling is not None
    [(_, words)] = t.encode_spelled([text])
    numbers = [[], *(t.spelling.numbers(words[place]) for place in kept)]
    width = max(1, *map(len, numbers))
    ngrams = torch.tensor([row + [0] * (width - len(row)) for row in numbers])
    which = torch.tensor([[*range(1, len(numbers)), *[0] * n_pad]])
    names = [[_name(n, t.spelling.ngrams) for n in row] for row in numbers[1:]]
    return Spelling(which, ngrams), names + [[] for _ in range(n_pad)]


def _name(number: int, ngrams: Sequence[str]) -> str:
    """An n-gram as it is written, a byte as "0xE2"."""
    return ngrams[number - FIRST] if number >= FIRST else f"0x{number - 1:02X}"
