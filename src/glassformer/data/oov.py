"""Tokens a vocabulary lacks: counted in texts of any part, and when they are worth a warning.

The training texts made the vocabulary, so what they lack says nothing; validation and test texts are like those to
come. Counting encodes texts and never looks at their answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from glassformer.config import TextConfig
from glassformer.data.corpus import RaggedArray, split_document
from glassformer.data.diagnostics import Finding
from glassformer.text.limits import truncate
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils.formatting import percent

MANY_TOKENS = 0.05
"""Share of unknown tokens above which a model does not read what it is given."""
SOME_TOKENS, MANY_TEXTS = 0.02, 0.2
"""Fewer matter too where they are spread over so many texts; in long texts a rare name is no harm."""
REMEDY = "--text.tokenizer byte-bpe knows every character; a larger --text.vocab-size knows more words"
CHUNK = 1000
"""Texts encoded at a time."""


def n_texts_with_unknown(columns: Iterable[RaggedArray], unk_id: int) -> int:
    """Count the examples with at least one unknown token in any of their columns."""
    hits = [np.searchsorted(c.offsets, np.flatnonzero(c.flat == unk_id), side="right") for c in columns]
    return len(np.unique(np.concatenate(hits)))


def count_unknown_tokens(
    tokenizer: Tokenizer, texts: Sequence[str], text: TextConfig, running: bool
) -> tuple[int, int, int, int]:
    """Encode texts as a task would, and count.

    Args:
        tokenizer: the model's tokenizer.
        texts: texts of a split; their targets are not read.
        text: maximum length, and which end is truncated.
        running: the texts are running text, which is not truncated.

    Returns:
        Tokens kept, texts truncated, unknown tokens, and texts with at least one.
    """
    n_tokens = n_cut = n_unknown = n_texts = 0
    parts = [p for t in texts for p in chain.from_iterable(split_document(t, tokenizer.kind))] if running else texts
    for start in range(0, len(parts), CHUNK):
        for ids in tokenizer.encode_batch(parts[start : start + CHUNK]):
            kept = ids if running else truncate(ids, text.max_len, text.truncate)
            unknown = kept.count(tokenizer.unk_id)
            n_tokens, n_cut = n_tokens + len(kept), n_cut + (len(kept) < len(ids))
            n_unknown, n_texts = n_unknown + unknown, n_texts + (unknown > 0)
    return n_tokens, n_cut, n_unknown, n_texts


def unknown_finding(where: str, rate: float | None, n_texts: int | None, n: int) -> Finding | None:
    """Return a finding if too many tokens are unknown.

    Args:
        where: the split, "validation".
        rate: unknown tokens divided by tokens.
        n_texts: texts with at least one; None for running text.
        n: number of texts.
    """
    share = (n_texts or 0) / max(1, n)
    if not rate or not (rate > MANY_TOKENS or (rate > SOME_TOKENS and share > MANY_TEXTS)):
        return None
    among = f", in {n_texts:,} of {n:,} texts" if n_texts is not None else ""
    matter = f"{percent(rate)} of the {where} tokens are unknown to the model{among}"
    return Finding(matter, REMEDY, "unknown tokens", {"rate": rate})
