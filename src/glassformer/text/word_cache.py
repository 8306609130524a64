"""Encoding long text by its words: each is tokenized once, and looked up from there on.

Words repeat, so on running text this takes a fraction of the time and gives the same ids. Only byte-level BPE is
encoded so: its splitting rule joins a single space to the word behind it, and to nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

import numpy as np

from glassformer.text.backends import split_text
from glassformer.text.tokenizer import LONG, Tokenizer

MOST_WORDS = 1 << 17
"""Words remembered (about 20 MB); when there are more, remembering begins again."""
_MORE_THAN_A_SPACE = re.compile(r"\s | \s")
_BETWEEN_WORDS = re.compile(r"(?<=\S) (?=\S)")


class WordCache:
    """Encodes as its tokenizer does, to the bytes of the ids.

    Args:
        tokenizer: whose ids these are. dtype: of an id.
    """

    def __init__(self, tokenizer: Tokenizer, dtype: str) -> None:
        self.tokenizer, self.dtype = tokenizer, dtype
        self.known: dict[str, bytes] = {}  # word → ids of a space and the word

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        """Return the ids of each text; errors as in `Tokenizer.encode_batch`."""
        if long := [i for i, text in enumerate(texts) if len(text) > LONG]:
            found = self.encode(["" if len(text) > LONG else text for text in texts])
            for i in long:
                found[i] = self._long(texts[i])
            return found
        if self.tokenizer.kind != "byte-bpe":
            return self._tokenized(texts)
        words = [self._words(text) for text in texts]
        if len(self.known) > MOST_WORDS:
            self.known = {}
        if new := list(set(chain.from_iterable(words)) - self.known.keys()):
            self.known |= zip(new, self._tokenized([f" {word}" for word in new]), strict=True)
        known, firsts = self.known, self._tokenized([some[0] for some in words])  # no space before these
        return [first + b"".join([known[w] for w in some[1:]]) for first, some in zip(firsts, words, strict=True)]

    def _long(self, text: str) -> bytes:
        """Return the ids of a long text, encoded in parts at bounded memory."""
        if self.tokenizer.kind == "byte-bpe" and len(pieces := split_text(text, LONG // 2)) > 1:
            return b"".join(ids for piece in pieces for ids in self.encode([piece]))
        return b"".join(np.array(part.ids, self.dtype).tobytes() for part in self.tokenizer.parts(text))

    def _words(self, text: str) -> list[str]:
        """Split a text at single spaces between other characters."""
        return (_BETWEEN_WORDS.split if _MORE_THAN_A_SPACE.search(text) else _at_spaces)(text)

    def _tokenized(self, texts: Sequence[str]) -> list[bytes]:
        return [np.array(ids, self.dtype).tobytes() for ids in self.tokenizer.encode_batch(texts)]


def _at_spaces(text: str) -> list[str]:
    return text.split(" ")
