"""The n-grams of a tokenizer as a file, so that a program without Glassformer can spell words."""

from __future__ import annotations

import json

from glassformer.text.ngrams import LENGTHS, MOST
from glassformer.text.tokenizer import Tokenizer

SPELLING = "spelling.json"


def spelling_json(tokenizer: Tokenizer) -> bytes:
    """Return the content of `spelling.json`.

    `ngrams` are in the order of their numbers, of which the first is `first`; numbers 1 to 256 are the bytes of a word
    without a listed n-gram, and 0 is padding. `lengths` are those of n-grams, and a word has at most `most`.
    """
    assert tokenizer.ngrams is not None
    ngrams = tokenizer.ngrams.ngrams
    data = {"first": len(tokenizer.ngrams) - len(ngrams), "lengths": LENGTHS, "most": MOST}
    data |= {"lowercase": tokenizer.lowercases, "ngrams": ngrams}
    return (json.dumps(data, ensure_ascii=False) + "\n").encode("utf-8")
