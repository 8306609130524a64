"""A `tokenizer.json` as Hugging Face's library reads it: what it cannot follow is one kind of error; ids are checked.

Padding and truncation that a file sets by itself are cleared, and so are the tokens that it puts around a text: those
are kept as ids (`special_tokens.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tokenizers

from glassformer.errors import CheckpointError, DataError
from glassformer.text.special_tokens import KEY, SIDES


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


def read_backend(content: Any, where: object) -> tokenizers.Tokenizer:
    """Return the library's tokenizer of the JSON data of a file, without what it does around a text.

    Raises:
        CheckpointError: it is not readable.
    """
    model = content.get("model") if isinstance(content, dict) else None
    if not isinstance(model, dict):
        raise CheckpointError(f"{where}: this is not a readable tokenizer (no model)")
    if model.get("dropout"):
        raise CheckpointError(f"{where}: its model drops merges at random (dropout), which no answer may depend on")
    content = {name: value for name, value in content.items() if name not in (KEY, SIDES)}
    content |= {"padding": None, "truncation": None, "post_processor": None}
    with readable(where):
        return tokenizers.Tokenizer.from_str(json.dumps(content, ensure_ascii=False))


def check_ids(backend: tokenizers.Tokenizer, n_ids: int | None, special: Iterable[int], where: object) -> None:
    """Refuse ids that are not below `n_ids`, by default the number of tokens, or belong to two tokens.

    Raises:
        CheckpointError: that, or one of the `special` ids has no token.
    """
    ids = list(backend.get_vocab(with_added_tokens=True).values())
    n_ids, distinct = len(ids) if n_ids is None else n_ids, {*ids}
    if any(i >= n_ids for i in distinct):
        raise CheckpointError(f"{where}: a token has an id for which the embedding of {n_ids:,} rows has none")
    if len(distinct) != len(ids):
        raise CheckpointError(f"{where}: two tokens have one id")
    if missing := sorted({*special} - distinct):
        raise CheckpointError(f"{where}: the special token with the id {missing[0]} is not in the vocabulary")


def encoded(backend: tokenizers.Tokenizer, texts: Sequence[str], offsets: bool = True) -> list[tokenizers.Encoding]:
    """Return what a backend gives for texts; without `offsets` faster.

    Raises:
        DataError: one of them holds half a surrogate pair.
    """
    encode = backend.encode_batch if offsets else backend.encode_batch_fast
    try:
        with readable("the tokenizer"):
            return encode(texts, add_special_tokens=False)
    except (TypeError, UnicodeEncodeError):
        for number, text in enumerate(texts, start=1):
            if half := re.search("[\ud800-\udfff]", text):
                where = f"text {number}, character {half.start() + 1}"
                message = f"{where}: half a surrogate pair, so this is not Unicode text"
                raise DataError(message, "save the text as UTF-8") from None
        raise
