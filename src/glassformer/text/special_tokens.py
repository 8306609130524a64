"""Special tokens by their role, and the tokens put around each text, of a tokenizer of another library."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from msgspec import Meta

from glassformer.errors import CheckpointError
from glassformer.utils.safe_read import dataclass_from_json

KEY = "glassformer"
"""The key of the special tokens in the `tokenizer.json` of an imported model; the library never sees it."""
SIDES = "sides"
"""The key of the tokenizers of source and target in the `tokenizer.json` of a translator that has two."""
PAIRS = "pairs"
"""The key that says, in the `tokenizer.json` of a run, that each text is a pair of texts."""
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

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON data."""
        return asdict(self) | {"prefix": list(self.prefix), "suffix": list(self.suffix)}

    @staticmethod
    def from_json(value: Any, where: object) -> SpecialTokens:
        """Return the value that `to_json` gave.

        Raises:
            CheckpointError: a field is missing, of another type, or no id.
        """
        special = dataclass_from_json(SpecialTokens, value, f"{where}: special tokens")
        for name in (*ROLES, "prefix", "suffix"):
            ids = getattr(special, name)
            if wrong := [one for one in (ids if isinstance(ids, tuple) else [ids]) if not NONE <= one < special.n_ids]:
                raise CheckpointError(f"{where}: {name} holds {wrong[0]}, which is none of the {special.n_ids:,} ids")
        return special
