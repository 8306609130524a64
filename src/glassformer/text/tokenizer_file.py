"""A `tokenizer.json` before the library reads it: which parts of the library it may use, and which ids it may have.

The library runs whatever a file says: patterns that take exponential time, replacements that make a text longer at each
step. So the parts of a tokenizer that was trained here are compared with what training writes, and those of pretrained
models with lists of types and patterns that are known. Padding and truncation that a file sets by itself are cleared,
and so are the tokens that it puts around a text: those are kept as ids (`special_tokens.py`).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tokenizers

from glassformer.errors import CheckpointError
from glassformer.text.backends import written_backends
from glassformer.text.special_tokens import KEY, SIDES

NORMALIZERS = {
    "BertNormalizer",
    "Lowercase",
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Precompiled",
    "StripAccents",
    "Strip",
    "Prepend",
    "Replace",
}
PRE_TOKENIZERS = {
    "BertPreTokenizer",
    "ByteLevel",
    "Digits",
    "Metaspace",
    "Punctuation",
    "Split",
    "Whitespace",
    "WhitespaceSplit",
}
MODELS = {"BPE", "Unigram", "WordLevel", "WordPiece"}
DECODERS = {"BPEDecoder", "ByteFallback", "ByteLevel", "Fuse", "Metaspace", "Replace", "Strip", "WordPiece"}
PATTERNS = {
    "",  # each character
    r"[\s\S]",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    *(
        rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
        for digits in (r"\p{N}{1,3}", r"\p{N}")
    ),
}
"""Patterns that texts are split by, which take linear time: of GPT-2, Llama 3 and Qwen, and one for characters."""
REPLACEMENTS = ((" {2,}", " "), (" {2,}", "▁"))
"""Regular expressions of replacements, and what they are replaced by: several spaces become one."""
LEARNED = ("vocab", "merges")
"""Keys of a model that are no setting."""
FLAGS = ("single_word", "lstrip", "rstrip", "normalized")
"""What changes where an added token is found in a text."""
MOST_STEPS = 8
"""Most steps of a sequence; none is in itself a sequence."""
MOST_CHARACTERS_OF_A_WORD = 1000
"""Of WordPiece, whose time grows with the square of a word."""
MOST_BYTES, MOST_OF_A_CHARACTER = 4 << 20, 128
"""Of a table of characters (that of XLM-RoBERTa has 240,000 bytes), and of a text in it: the longest of Unicode's NFKC
has 18 characters."""


@contextmanager
def readable(where: object) -> Iterator[None]:
    """Raise CheckpointError for what the library cannot read or follow: it raises a bare Exception, or panics."""
    try:
        yield
    except BaseException as error:  # a panic is not even an Exception
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        message = f"{where}: this is not a readable tokenizer ({str(error)[:200]})"
        raise CheckpointError(message, "restore it from a copy, or train or import again") from error


def read_backend(content: Any, where: object, pretrained: bool = True) -> tokenizers.Tokenizer:
    """Return the library's tokenizer of the JSON data of a file, without what it does around a text.

    Raises:
        CheckpointError: it is not readable, or has a part that is on no list, or that training here does not write.
    """
    with readable(where):
        (check_parts if pretrained else _check_own_parts)(content, where)
        content = {name: value for name, value in content.items() if name not in (KEY, SIDES)}
        content |= {"padding": None, "truncation": None, "post_processor": None}
        return tokenizers.Tokenizer.from_str(json.dumps(content, ensure_ascii=False))


def _check_own_parts(content: Any, where: object) -> None:
    """Refuse a part, or a setting, that training here does not write."""
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise CheckpointError(f"{where}: this is not a readable tokenizer (no model)")
    if _parts_of(content) not in [_parts_of(json.loads(backend.to_str())) for backend in written_backends()]:
        raise CheckpointError(f"{where}: its model, normalizer, pre_tokenizer or decoder is none that training writes")
    added = content.get("added_tokens")
    for token in added if isinstance(added, list) else []:
        if isinstance(token, dict) and any(token.get(flag, False) is not False for flag in FLAGS):
            name = str(token.get("content"))[:40]
            raise CheckpointError(f"{where}: the added token {name!r} is found in another way")


def _parts_of(content: dict[str, Any]) -> list[Any]:
    model = {key: value for key, value in content["model"].items() if key not in LEARNED}
    return [model, *(content.get(name) for name in ("normalizer", "pre_tokenizer", "decoder"))]


def check_parts(content: Any, where: object) -> None:
    """Refuse a part of the library that is on no list, or a setting of it that takes unbounded time.

    Raises:
        CheckpointError: the part is named.
    """
    model = content.get("model") if isinstance(content, dict) else None
    if not isinstance(model, dict):
        raise CheckpointError(f"{where}: this is not a readable tokenizer (no model)")
    if model.get("type") not in MODELS:
        raise _odd(where, "model", model)
    if model.get("dropout"):
        raise CheckpointError(f"{where}: its model drops merges at random (dropout), which no answer may depend on")
    longest = model.get("max_input_chars_per_word", 0)
    if type(longest) is not int or longest > MOST_CHARACTERS_OF_A_WORD:
        message = f"{where}: max_input_chars_per_word should be at most {MOST_CHARACTERS_OF_A_WORD}"
        raise CheckpointError(f"{message}, not {str(longest)[:40]}")
    for name, known in (("normalizer", NORMALIZERS), ("pre_tokenizer", PRE_TOKENIZERS), ("decoder", DECODERS)):
        for step in _steps(content.get(name), name, where):
            kind = step.get("type") if isinstance(step, dict) else None
            if kind not in known:
                raise _odd(where, name, step)
            if kind in ("Replace", "Split"):
                _check_pattern(step, where)
            if kind == "Precompiled":
                _check_charsmap(step.get("precompiled_charsmap"), where)


def _steps(part: Any, name: str, where: object) -> Iterator[Any]:
    """Yield the steps of a part: itself, or those of a sequence."""
    if part is None:
        return
    if not isinstance(part, dict) or part.get("type") != "Sequence":
        yield part
        return
    steps = part.get({"pre_tokenizer": "pretokenizers"}.get(name, f"{name}s"))
    if not isinstance(steps, list) or len(steps) > MOST_STEPS:
        raise CheckpointError(f"{where}: its {name} should be a sequence of at most {MOST_STEPS} steps")
    yield from steps


def _check_pattern(step: dict[str, Any], where: object) -> None:
    """Refuse an unknown regular expression, and a replacement that makes a text longer."""
    pattern, content = step.get("pattern"), step.get("content", "")
    found = pattern if isinstance(pattern, dict) and len(pattern) == 1 else {}
    literal, expression = found.get("String"), found.get("Regex")
    if isinstance(expression, str) and step["type"] == "Split" and expression in PATTERNS:
        return
    if isinstance(expression, str) and step["type"] == "Replace" and (expression, content) in REPLACEMENTS:
        return
    if isinstance(literal, str) and isinstance(content, str) and len(content) <= max(1, len(literal)):
        return
    shown = json.dumps(pattern)[:120]
    raise CheckpointError(f"{where}: the pattern {shown} of its {step['type']} is none that is known")


def _check_charsmap(encoded: Any, where: object) -> None:
    """Refuse a table of characters of SentencePiece that could make a text much longer; `encoded` is in base64.

    4 bytes with the size of a trie, the trie, and texts that each end with a zero byte: one stands for a character.
    """
    try:
        data = base64.b64decode(encoded if isinstance(encoded, str) else "?", validate=True)
    except (binascii.Error, ValueError):
        data = b""
    texts = data[4 + int.from_bytes(data[:4], "little") :]
    if len(data) > MOST_BYTES or not texts.endswith(b"\0") or max(map(len, texts.split(b"\0"))) > MOST_OF_A_CHARACTER:
        raise CheckpointError(f"{where}: its table of characters (Precompiled) is damaged, or makes a text much longer")


def check_ids(content: dict[str, Any], n_ids: int | None, special: frozenset[int], where: object) -> None:
    """Refuse ids that are not numbers below `n_ids`, by default the number of tokens, or belong to two tokens.

    Raises:
        CheckpointError: with the token, or if one of the `special` ids has no token.
    """
    vocabulary, added = content["model"].get("vocab"), content.get("added_tokens", [])
    if isinstance(vocabulary, list):  # of Unigram: [piece, score] by id
        if not all(isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) for one in vocabulary):
            raise CheckpointError(f"{where}: its vocabulary should be a list of pieces with scores")
        vocabulary = {piece: i for i, (piece, _) in enumerate(vocabulary)}
    if not isinstance(vocabulary, dict) or not isinstance(added, list):
        raise CheckpointError(f"{where}: this is not a readable tokenizer (no vocabulary)")
    ids: dict[str, Any] = dict(vocabulary)
    for token in added:
        name = token.get("content") if isinstance(token, dict) else None
        if not isinstance(name, str) or not name:
            raise CheckpointError(f"{where}: an added token has no text")
        if ids.setdefault(name, token.get("id")) != token.get("id"):
            raise CheckpointError(f"{where}: the token {name[:40]!r} has two ids")
    n_ids = len(ids) if n_ids is None else n_ids
    if any(type(i) is not int or not 0 <= i < n_ids for i in ids.values()):
        raise CheckpointError(f"{where}: a token has an id for which the embedding of {n_ids:,} rows has none")
    if len({*ids.values()}) != len(ids):
        raise CheckpointError(f"{where}: two tokens have one id")
    if missing := sorted(special - {*ids.values()}):
        raise CheckpointError(f"{where}: the special token with the id {missing[0]} is not in the vocabulary")


def _odd(where: object, name: str, part: Any) -> CheckpointError:
    kind = part.get("type") if isinstance(part, dict) else part
    return CheckpointError(f"{where}: its {name} is of the type {str(kind)[:40]!r}, which is not known here")
