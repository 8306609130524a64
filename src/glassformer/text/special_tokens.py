"""Special tokens by their role, and the tokens put around each text, of a tokenizer of another library."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from glassformer.errors import CheckpointError

KEY = "glassformer"
"""The key of the special tokens in the `tokenizer.json` of an imported model; the library never sees it."""
SIDES = "sides"
"""The key of the tokenizers of source and target in the `tokenizer.json` of a translator that has two."""
PAIRS = "pairs"
"""The key that says, in the `tokenizer.json` of a run, that each text is a pair of texts."""
NONE = -1
"""The id of a role that no token has; it is never the id of a token."""
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

    n_ids: int
    pad: int = NONE
    unk: int = NONE
    bos: int = NONE
    eos: int = NONE
    mask: int = NONE
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()

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
            CheckpointError: a field is missing, unknown, or no id.
        """
        names = {f.name for f in fields(SpecialTokens)}
        if not isinstance(value, dict) or value.keys() != names:
            raise CheckpointError(f"{where}: its special tokens should have the fields {', '.join(sorted(names))}")
        n_ids = value["n_ids"]
        if type(n_ids) is not int or not 1 <= n_ids <= MOST_IDS:
            raise CheckpointError(f"{where}: n_ids should be a number of ids, not {str(n_ids)[:40]}")
        for role in ROLES:
            if type(value[role]) is not int or not NONE <= value[role] < n_ids:
                raise CheckpointError(f"{where}: {role} should be one of {n_ids:,} ids, not {str(value[role])[:40]}")
        for name in ("prefix", "suffix"):
            ids = value[name]
            if not isinstance(ids, list) or len(ids) > MOST_AROUND or not all(type(i) is int for i in ids):
                raise CheckpointError(f"{where}: {name} should be a list of at most {MOST_AROUND} ids")
            if not all(0 <= i < n_ids for i in ids):
                raise CheckpointError(f"{where}: {name} holds an id that is none of the {n_ids:,}")
        around: dict[str, Any] = {name: tuple(value[name]) for name in ("prefix", "suffix")}
        return SpecialTokens(**value | around)


MOST_IDS = 10_000_000
MOST_AROUND = 8
"""Most ids before or after a text."""
