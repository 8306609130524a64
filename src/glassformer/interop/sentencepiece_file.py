"""Read a SentencePiece model (`.spm`) as a tokenizer of the library `tokenizers`, as far as that computes the same.

The file is a small protobuf (https://github.com/google/sentencepiece, `src/sentencepiece_model.proto`): a list of
fields, each a number, a kind and a value, of which some hold such lists themselves. It is read here in a few lines,
since no library that this package needs reads it.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator
from typing import Any

from glassformer.errors import CheckpointError, UsageError

MOST_PIECES = 1_000_000
UNKNOWN = "unknown "
"""The name of the unknown piece: with a space in it, it is in no text, whose spaces are replaced before."""
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3
_TYPES = {4: "user-defined", 5: "unused", 6: "byte"}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_DIGITS = 10
"""Bytes of a number of 64 bits, seven of which are in each byte."""


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
        for number, value in _fields(data):
            if number == 1:
                piece = _message(value)
                kind, text, score = piece.get(3, _NORMAL), piece.get(1, b"").decode("utf-8"), piece.get(2, 0.0)
                if kind in _TYPES:
                    raise UsageError(f"{where} has the {_TYPES[kind]} piece {text[:40]!r}, and such are not read")
                if kind not in (_UNKNOWN, _CONTROL):
                    if not text or kind != _NORMAL or not isinstance(score, float) or not math.isfinite(score):
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
        charsmap = bytes(normalizer.get(2, b""))
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
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": marks,
        "post_processor": None,
        "decoder": marks,
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [list(piece) for piece in pieces], "byte_fallback": False},
    }


def _message(value: Any) -> dict[int, Any]:
    """Return the fields of a message by number; of a repeated one the last."""
    if not isinstance(value, bytes):
        raise ValueError("a number where a message is expected")
    return dict(_fields(value))


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field: whole numbers, bytes, and floats of 32 bits."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind not in (_BYTES, _FIXED32, _FIXED64):
            raise ValueError(f"a field of the kind {kind}")
        size, at = _varint(data, at) if kind == _BYTES else (4 if kind == _FIXED32 else 8, at)
        if at + size > len(data):
            raise ValueError("it ends within a field")
        content, at = data[at : at + size], at + size
        yield number, struct.unpack("<f", content)[0] if kind == _FIXED32 else content


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a whole number of seven bits in each byte, the lowest first, and where it ends."""
    value = 0
    for i in range(_MOST_DIGITS):
        byte = data[at + i]
        value |= (byte & 127) << (7 * i)
        if byte < 128:
            return value, at + i + 1
    raise ValueError("a number without an end")
