"""The `tokenizer.json` of a pretrained model: which parts of the library it may use, before the library reads it.

The library runs whatever a file says: patterns that take exponential time, replacements that make a text longer at
each step. So every part is compared with lists of types and patterns that are known. Padding and truncation that a
file sets by itself are cleared, and so are the tokens that it puts around a text: those are kept as ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import tokenizers

from glassformer.errors import CheckpointError
from glassformer.text.charsmap import check_charsmap
from glassformer.text.special_tokens import KEY, SIDES, SpecialTokens

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
SPACES = ((" {2,}", " "), (" {2,}", "▁"))
"""Regular expressions of replacements, and what they are replaced by: several spaces become one."""
MOST_STEPS = 8
"""Most steps of a sequence; none is in itself a sequence."""
MOST_CHARACTERS_OF_A_WORD = 1000
"""Of WordPiece, whose time grows with the square of a word."""


def imported_backend(text: str, special: SpecialTokens, where: object) -> tokenizers.Tokenizer:
    """Return the library's tokenizer of the JSON of a pretrained model, without what it does around a text.

    Raises:
        CheckpointError: it is not readable, has a part that is on no list, or an id that the model has no row for.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where}: this is not a readable tokenizer ({error})") from error
    return backend_of(content, special, where)


def backend_of(content: Any, special: SpecialTokens, where: object) -> tokenizers.Tokenizer:
    """Do what `imported_backend` does, of parsed JSON."""
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise CheckpointError(f"{where}: this is not a readable tokenizer (no model)")
    check_parts(content, where)
    _check_ids(content, special, where)
    content = {**content, "padding": None, "truncation": None, "post_processor": None}
    content = {name: value for name, value in content.items() if name not in (KEY, SIDES)}
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(content))
    except BaseException as error:  # a bare Exception for what cannot be parsed; a panic is not even an Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise CheckpointError(f"{where}: this is not a readable tokenizer ({str(error)[:200]})") from error


def check_parts(content: dict[str, Any], where: object) -> None:
    """Refuse a part of the library that is on no list, or a setting of it that takes unbounded time.

    Raises:
        CheckpointError: the part is named.
    """
    model = content["model"]
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
                check_charsmap(step.get("precompiled_charsmap"), where)


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
    if isinstance(expression, str) and step["type"] == "Replace" and (expression, content) in SPACES:
        return
    if isinstance(literal, str) and isinstance(content, str) and len(content) <= max(1, len(literal)):
        return
    shown = json.dumps(pattern)[:120]
    raise CheckpointError(f"{where}: the pattern {shown} of its {step['type']} is none that is known")


def _check_ids(content: dict[str, Any], special: SpecialTokens, where: object) -> None:
    """Refuse ids that are not numbers below `n_ids`, or belong to two tokens."""
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
    if any(type(i) is not int or not 0 <= i < special.n_ids for i in ids.values()):
        raise CheckpointError(f"{where}: a token has an id for which the embedding of {special.n_ids:,} rows has none")
    if len({*ids.values()}) != len(ids):
        raise CheckpointError(f"{where}: two tokens have one id")
    if missing := sorted(special.ids - {*ids.values()}):
        raise CheckpointError(f"{where}: the special token with the id {missing[0]} is not in the vocabulary")


def _odd(where: object, name: str, part: Any) -> CheckpointError:
    kind = part.get("type") if isinstance(part, dict) else part
    return CheckpointError(f"{where}: its {name} is of the type {str(kind)[:40]!r}, which is not known here")
