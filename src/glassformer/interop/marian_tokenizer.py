"""The tokenizer of a Marian folder: `source.spm`, `target.spm` and `vocab.json`, whose ids are neither's."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping
from typing import Any

from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.protobuf import fields
from glassformer.interop.source_folder import SourceFolder
from glassformer.text.tokenizer import SIDES, PairedTokenizer, SpecialTokens, Tokenizer

MARIAN_FILES = VOCABULARY, *SIDE_FILES = "vocab.json", "source.spm", "target.spm"
UNK, EOS, PAD = "<unk>", "</s>", "<pad>"


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
    sides = [read_spm(folder.bytes(name, "tokenizer"), folder.path / name) for name in SIDE_FILES]
    content = {
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False},
        "model": {"type": "WordLevel", "vocab": ids, "unk_token": UNK},
        SIDES: sides,
    }
    return PairedTokenizer(content, special, where)


MOST_PIECES = 1_000_000
UNKNOWN = "unknown "
"""The name of the unknown piece: with a space in it, it is in no text, whose spaces are replaced before."""
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3
_TYPES = {4: "user-defined", 5: "unused", 6: "byte"}


def read_spm(data: bytes, where: object) -> dict[str, Any]:
    """Return the content of a `tokenizer.json` that cuts a text as a Unigram model of SentencePiece does.

    Tokens have their strings alone: their ids are the order here, in which control pieces have no place.

    Raises:
        CheckpointError: the file is damaged.
        UsageError: it is of another kind than Unigram, or has rules that `tokenizers` does not compute.
    """
    pieces: list[tuple[str, float]] = [(UNKNOWN, 0.0)]
    trainer, normalizer = dict[int, Any](), dict[int, Any]()
    try:
        for number, value in fields(memoryview(data)):
            if number == 1:
                piece = _message(value)
                kind, text = piece.get(3, _NORMAL), bytes(memoryview(piece.get(1, b""))).decode("utf-8")
                if kind in _TYPES:
                    raise UsageError(f"{where} has the {_TYPES[kind]} piece {text[:40]!r}, and such are not read")
                if kind not in (_UNKNOWN, _CONTROL):
                    [score] = struct.unpack("<f", piece.get(2, bytes(4)))
                    if not text or kind != _NORMAL or not math.isfinite(score):
                        raise ValueError(f"the piece {text[:40]!r}")
                    pieces.append((text, score))
            elif number == 2:
                trainer |= _message(value)
            elif number == 3:
                normalizer |= _message(value)
            elif number == 5 and _message(value).get(2):
                raise UsageError(f"{where} changes texts after decoding (denormalizer_spec), which is not read")
            if len(pieces) > MOST_PIECES:
                raise ValueError(f"more than {MOST_PIECES:,} pieces")
        charsmap = bytes(memoryview(normalizer.get(2, b"")))
    except (ValueError, TypeError, AttributeError, IndexError, struct.error) as error:
        message = f"{where} is not a readable model of SentencePiece ({str(error)[:100]})"
        raise CheckpointError(message, "use another copy of the model") from error
    if len(pieces) == 1 or len(dict(pieces)) != len(pieces):
        raise CheckpointError(f"{where} has no pieces, or one twice", "use another copy of the model")
    for name, values, number, expected in (
        ("model_type", trainer, 3, 1),
        ("treat_whitespace_as_suffix", trainer, 24, 0),
        ("byte_fallback", trainer, 35, 0),
        ("add_dummy_prefix", normalizer, 3, 1),
        ("remove_extra_whitespaces", normalizer, 4, 1),
        ("escape_whitespaces", normalizer, 5, 1),
    ):
        if values.get(number, expected) != expected:
            raise UsageError(f"{where} has {name} {str(values[number])[:40]}, and only {expected} is read")
    return _tokenizer(pieces, charsmap)


def _tokenizer(pieces: list[tuple[str, float]], charsmap: bytes) -> dict[str, Any]:
    """Return the content of a `tokenizer.json` of these pieces."""
    steps: list[dict[str, Any]] = [
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    ]
    if charsmap:
        encoded = base64.b64encode(charsmap).decode("ascii")
        steps.insert(0, {"type": "Precompiled", "precompiled_charsmap": encoded})
    marks = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False}
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": marks,
        "decoder": marks,
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [list(piece) for piece in pieces], "byte_fallback": False},
    }


def _message(value: Any) -> dict[int, Any]:
    """Return the fields of a message by number; of a repeated one the last."""
    if not isinstance(value, memoryview):
        raise ValueError("a number where a message is expected")
    return dict(fields(value))
