"""The tokenizer of a translator whose two sides are cut by models of their own, and share one list of ids: Marian's.

A text is cut into pieces by the model of its side, and each piece has the id that the list gives to its string; what
has none is unknown. A language code at the start of a source, ">>fr<<", is a piece.

In `tokenizer.json` the list is a WordLevel model, whose decoder joins pieces to text, and the models of the two sides
are under the key "sides". The library never sees that key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from glassformer.errors import CheckpointError
from glassformer.text.special_tokens import SIDES, SpecialTokens
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.tokenizer_file import check_ids, encoded, read_backend


class PairedTokenizer(Tokenizer):
    """Text to ids and back; texts are sources, unless it is that `of_targets`.

    Args:
        content: a `tokenizer.json` whose key "sides" holds those of source and target.
        special: the special tokens by role.
        where: the file, for messages.
    """

    def __init__(self, content: dict[str, Any], special: SpecialTokens, where: object) -> None:
        sides = content.get(SIDES)
        if not isinstance(sides, list) or len(sides) != 2 or not all(isinstance(side, dict) for side in sides):
            raise CheckpointError(f"{where}: {SIDES} should be two tokenizers, of the source and of the target")
        super().__init__(read_backend(content, where), special)
        check_ids(self._backend, special.n_ids, special.ids, where)
        self._sides, self._side = [read_backend(side, where) for side in sides], 0
        for side in self._sides:
            side.encode_special_tokens = True
        self._ids = self._backend.get_vocab(with_added_tokens=True)

    @property
    def of_targets(self) -> Tokenizer:
        other = object.__new__(PairedTokenizer)
        other.__dict__.update(self.__dict__)
        other._side = 1
        return other

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[self._ids.get(piece, self.unk_id) for piece, _ in pieces] for pieces in self._pieces(texts)]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        [pieces] = self._pieces([text])
        return [span for _, span in pieces]

    def _pieces(self, texts: Sequence[str]) -> Iterator[list[tuple[str, tuple[int, int]]]]:
        """Yield the pieces of each text, and the characters that each covers."""
        # The characters of a language code before each text.
        codes = [text.find("<<") + 2 if text.startswith(">>") and "<<" in text else 0 for text in texts]
        rest = [text[n:] for text, n in zip(texts, codes, strict=True)]
        for text, n, encoding in zip(texts, codes, encoded(self._sides[self._side], rest), strict=True):
            spans = [(start + n, end + n) for start, end in encoding.offsets]
            yield [(text[:n], (0, n))] * bool(n) + list(zip(encoding.tokens, spans, strict=True))

    def _content(self) -> dict[str, Any]:
        return super()._content() | {SIDES: [json.loads(side.to_str()) for side in self._sides]}
