"""Special tokens by their role, and the tokens put around each text, of a tokenizer of another library."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from glassformer.errors import CheckpointError
from glassformer.utils.safe_read import from_json

KEY = "glassformer"
"""The key of the special tokens in the `tokenizer.json` of an imported model; the library never sees it."""
SIDES = "sides"
"""The key of the tokenizers of source and target in the `tokenizer.json` of a translator that has two."""
PAIRS = "pairs"
"""The key that says, in the `tokenizer.json` of a run, that each text is a pair of texts."""
SPELLING = "spelling"
"""The key of n-grams and pairs of words in the model of a `tokenizer.json` that has some; the library ignores it."""
NONE = -1
"""The id of a role that no token has; it is never the id of a token."""
MOST_IDS = 10_000_000
Around = Annotated[tuple[int, ...], Meta(max_length=8)]
"""Ids before or after a text."""
ROLES = ("pad", "unk", "bos", "eos", "mask")


@dataclass(frozen=True)
class SpecialTokens:
    """The ids of special tokens by role; two roles may share one.

    Attributes:
        n_ids: number of ids, which is the number of rows of the embedding; some may have no token.
        pad: fills a batch. Without one some other token does, since what fills is masked.
        unk: stands for what has no token; `NONE` where there is nothing unknown.
        bos: begins a text, or a translation.
        eos: ends a text, a document or a translation.
        mask: stands for a token to predict.
        prefix: ids before each text, such as [CLS] in BERT.
        suffix: ids after each text, such as [SEP] in BERT.
    """

    n_ids: Annotated[int, Meta(ge=1, le=MOST_IDS)]
    pad: int = NONE
    unk: int = NONE
    bos: int = NONE
    eos: int = NONE
    mask: int = NONE
    prefix: Around = ()
    suffix: Around = ()

    @property
    def ids(self) -> frozenset[int]:
        """Return the ids of all of them."""
        roles = {getattr(self, role) for role in ROLES}
        return frozenset(roles | {*self.prefix, *self.suffix}) - {NONE}

    @staticmethod
    def from_json(value: Any, where: object) -> SpecialTokens:
        """Return the value of which `asdict` gave the JSON data.

        Raises:
            CheckpointError: a field is missing, of another type, or no id.
        """
        special = from_json(SpecialTokens, value, f"{where}: special tokens")
        for name in (*ROLES, "prefix", "suffix"):
            ids = getattr(special, name)
            if wrong := [one for one in (ids if isinstance(ids, tuple) else [ids]) if not NONE <= one < special.n_ids]:
                raise CheckpointError(f"{where}: {name} holds {wrong[0]}, which is none of the {special.n_ids:,} ids")
        return special


@dataclass(frozen=True)
class Spelling:
    """The character n-grams of a word tokenizer, and its pairs of words as ids, most frequent first."""

    ngrams: list[Annotated[str, Meta(min_length=1)]] = field(default_factory=list)
    bigrams: list[tuple[int, int]] = field(default_factory=list)

    @staticmethod
    def from_json(value: Any, n_ids: int, where: object) -> Spelling:
        """Return the value of the key SPELLING; raise CheckpointError where it is none, or a pair is not of ids."""
        spelling = from_json(Spelling, value, f"{where}: {SPELLING}")
        if any(not 0 <= i < n_ids for pair in spelling.bigrams for i in pair):
            raise CheckpointError(f"{where}: the bigrams of a tokenizer should be pairs of its words")
        return spelling
