"""The tokenizer of a Marian folder: `source.spm`, `target.spm` and `vocab.json`, whose ids are neither's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.sentencepiece_file import read_spm
from glassformer.interop.source_folder import SourceFolder
from glassformer.text.paired_tokenizer import PairedTokenizer
from glassformer.text.special_tokens import SIDES, SpecialTokens
from glassformer.text.tokenizer import Tokenizer

VOCABULARY, FILES = "vocab.json", ("source.spm", "target.spm")
UNK, EOS, PAD = "<unk>", "</s>", "<pad>"


def has_marian_tokenizer(folder: SourceFolder) -> bool:
    """Return whether a folder has the files of a Marian tokenizer; nothing in them is checked."""
    return all(folder.has(name) for name in (VOCABULARY, *FILES))


def read_marian_tokenizer(folder: SourceFolder, config: Mapping[str, Any], n_ids: int) -> Tokenizer:
    """Return the tokenizer of a folder whose embedding has `n_ids` rows.

    Raises:
        CheckpointError: a file is damaged, or has an id without a row.
        UsageError: source and target have lists of ids of their own, or a rule is not read.
    """
    named = folder.json_if_there("tokenizer_config.json")
    if folder.has("target_vocab.json") or named.get("separate_vocabs") is True:
        raise UsageError("a Marian model with two vocabularies (separate_vocabs) is not read")
    where = folder.path / VOCABULARY
    ids = folder.json(VOCABULARY, "tokenizer")
    if any(type(i) is not int for i in ids.values()):
        raise CheckpointError(f"{where} should give each token a number")
    if missing := [name for name in (UNK, EOS, PAD) if name not in ids]:
        raise CheckpointError(f"{where} lacks the token {missing[0]}")
    start = config.get("decoder_start_token_id", ids[PAD])
    if start not in ids.values():
        raise CheckpointError(f"config.json: decoder_start_token_id {str(start)[:40]} is no token of {VOCABULARY}")
    special = SpecialTokens(n_ids, ids[PAD], ids[UNK], start, ids[EOS], suffix=(ids[EOS],))
    sides = [read_spm(folder.bytes(name, "tokenizer"), folder.path / name) for name in FILES]
    content = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False},
        "model": {"type": "WordLevel", "vocab": ids, "unk_token": UNK},
        SIDES: sides,
    }
    return PairedTokenizer(content, special, where)
