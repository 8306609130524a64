"""Settings of pretokenizing; each is a flag of `glassformer data encode`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class PretokenizeConfig:
    """Settings that, with the text and a given tokenizer, determine every byte of the shards."""

    kind: Literal["word", "char", "byte-bpe", "bpe"] = "byte-bpe"
    """Which kind of tokenizer to train."""
    vocab_size: int = 8000
    """Its largest vocabulary; from 65,537 on ids take four bytes."""
    lowercase: bool = False
    """Lower-case the text first."""
    column: str = "text"
    """The field of a .jsonl that holds the text."""
    valid_fraction: float | None = None
    """Share held out for validation, whole documents (of a .txt, parts of 8 kB); a tenth, or about 4 MB, when
    absent."""
    seed: int = 0
    """Of what is held out, and of the sample that the tokenizer is trained on."""
    shard_mb: int = 64
    """Text in a shard, in millions (2^20) of characters."""
