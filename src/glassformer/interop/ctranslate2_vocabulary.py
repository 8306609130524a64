"""Read the vocabularies of a CTranslate2 folder, and join those of a translator into one.

A translator here has one vocabulary. Where source and target have two, the joint one begins with our special tokens,
and each token has the row of its own side. A token that one side lacks is unknown to that side: as an input it has the
row of the unknown token, and it is never written, since its logit is far below the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from glassformer.errors import CheckpointError
from glassformer.utils.safe_read import LIMITS, read_json, read_text

MAX_TOKENS = 1 << 22
"""Most tokens of a vocabulary; larger ones have no model."""
_HINT = "copy the folder whole, or convert the model again"


@dataclass(frozen=True)
class Roles:
    """The tokens with a role in a vocabulary, by their names there.

    Attributes:
        unk: stands for a token that is not in it.
        bos: begins a translation.
        eos: ends one.
        prefix: tokens before a source.
        suffix: tokens after a source.
    """

    unk: str
    bos: str
    eos: str
    prefix: tuple[str, ...] = ()
    suffix: tuple[str, ...] = ()


def read_vocabulary(folder: Path, name: str, unk: str) -> list[str] | None:
    """Return the tokens of `NAME.json` or `NAME.txt` by id, or None without either.

    The unknown token is added at the end where it is missing, as CTranslate2 does.

    Raises:
        CheckpointError: it is no list of tokens, or has one twice.
    """
    for path in (folder / f"{name}.json", folder / f"{name}.txt"):
        if not path.is_symlink() and not path.exists():
            continue
        if path.suffix == ".json":
            tokens = read_json(path, LIMITS["tokenizer"])
        else:
            tokens = read_text(path, LIMITS["tokenizer"]).split("\n")
            tokens = tokens[:-1] if tokens[-1] == "" else tokens
            if all(token.endswith("\r") for token in tokens):
                tokens = [token[:-1] for token in tokens]
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise CheckpointError(f"{path} should hold a list of tokens", _HINT)
        if len(tokens) > MAX_TOKENS:
            raise CheckpointError(f"{path} has {len(tokens):,} tokens, and {MAX_TOKENS:,} is the limit", _HINT)
        if unk not in tokens:
            tokens = [*tokens, unk]
        seen = set[str]()
        for number, token in enumerate(tokens):
            if token in seen:
                raise CheckpointError(
                    f"{path}: the token {token[:40]!r} is in it twice, the second time as {number:,}", _HINT
                )
            seen.add(token)
        return tokens
    return None
