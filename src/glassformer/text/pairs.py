"""Pairs of texts, such as premise and hypothesis: how a pair is written as one text, and how it becomes tokens.

A pair is written `first [SEP] second`. A text that holds "[SEP]" itself is refused, so a text has one meaning. Each
of the two is encoded as a text of its own; between them stands the separator of the tokenizer, a special token, which
is found in no text: [SEP] in BERT, `</s></s>` in RoBERTa, [EOS] in a tokenizer that was trained here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, TypeAlias

from glassformer.errors import DataError, UsageError
from glassformer.text.long_text import ArrivingLines, truncate
from glassformer.text.tokenizer import PAIRS, Span, Tokenizer

SEPARATOR = "[SEP]"
"""What stands between the two texts of a pair that is written as one text."""
GivenText: TypeAlias = str | tuple[str, str]
"""A text as a caller gives it: to a model that reads pairs, a tuple of two."""
DOUBLED = "</s>"
"""The end of a text that RoBERTa and the models after it write twice between two texts (Liu et al. 2019)."""


def pair_issue(first: str, second: str, may_be_empty: bool = False) -> str:
    """Return what is wrong with the two texts of a pair; "" where nothing is."""
    for name, text in (("first", first), ("second", second)):
        if SEPARATOR in text:
            return f"the {name} text holds {SEPARATOR}, which divides the two texts of a pair"
        if not (may_be_empty or text.strip()):
            return f"the {name} text of the pair is empty"
    return ""


def join_pair(first: str, second: str) -> str:
    """Return two texts as one; raise DataError where one of them holds the separator."""
    if issue := pair_issue(first, second, may_be_empty=True):
        raise DataError(issue, "write it in another way")
    return f"{first} {SEPARATOR} {second}"


def split_pair(text: str) -> tuple[str, str]:
    """Return the two texts of a pair; one space on each side of the separator belongs to it.

    Raises:
        DataError: there is no separator, or there are several.
    """
    parts = text.split(SEPARATOR)
    if len(parts) != 2:
        shown, n = text if len(text) <= 60 else f"{text[:60]}…", len(parts) - 1
        message = f"this model reads two texts, with one {SEPARATOR} between them; {n} are in {shown!r}"
        raise DataError(message, f"write the pair as: first text {SEPARATOR} second text")
    return parts[0].removesuffix(" "), parts[1].removeprefix(" ")


def split_pairs(texts: Iterable[str]) -> list[str]:
    """Return the first and the second text of each pair, one after the other."""
    return [one for text in texts for one in split_pair(text)]


def given_texts(tokenizer: Tokenizer, texts: Any, several: bool = False) -> Any:
    """Return a text, or texts one after another, as a caller gave them, with pairs, tuples of two, as one text each.

    Raises:
        DataError: what came is not a text (of `several` that is refused) and not a list of texts; or, when it is
            reached, one of these is no text.
        UsageError: a pair came, and the model reads one text.
    """
    hint = 'give a text, or a list of texts: predict(["one", "two"])'

    def is_pair(given: Any) -> bool:
        return isinstance(given, tuple) and [*map(type, given)] == [str, str]

    def one(given: Any, number: int = 1) -> str:
        if is_pair(given) and not tokenizer.separator:
            raise UsageError("this model reads one text, and a second one was given", "leave it out")
        if is_pair(given):
            return join_pair(*given)
        if not isinstance(given, str):
            raise DataError(f"text {number} is of type {type(given).__name__}, not a string", hint)
        return given

    if not several and (isinstance(texts, str) or is_pair(texts)):
        return one(texts)
    if isinstance(texts, str | bytes | bytearray | Mapping) or not isinstance(texts, Iterable):
        expected = "texts one after another" if several else "a text or a list of texts"
        raise DataError(f"expected {expected}, not {type(texts).__name__}", hint)
    return texts if isinstance(texts, ArrivingLines) else map(one, texts, count(1))


def text_of(answer: Mapping[str, Any]) -> str:
    """Return the text that an answer is of: of a pair, both as one."""
    text = str(answer["text"])
    return f"{text} {SEPARATOR} {answer['pair']}" if "pair" in answer else text


class PairTokenizer(Tokenizer):
    """A tokenizer of which each text is a pair; made of another one with `of`."""

    @staticmethod
    def of(tokenizer: Tokenizer) -> PairTokenizer:
        """Return the tokenizer that encodes pairs with the tokens of another one.

        Raises:
            UsageError: it has no special token to put between two texts.
        """
        pairs = object.__new__(PairTokenizer)
        pairs.__dict__.update(tokenizer.__dict__)
        pairs.__dict__.pop("sha256", None)
        end = tokenizer.suffix or ([tokenizer.eos_id] if tokenizer.eos_id >= 0 else [])
        if not end:
            raise UsageError("this tokenizer has no token to divide two texts", "train without --pair-column")
        pairs.separator = end * 2 if tokenizer.special and tokenizer.tokens(end) == [DOUBLED] else list(end)
        return pairs

    def encode_with_offsets(self, texts: Sequence[str], offsets: bool = True) -> list[tuple[list[int], list[Span]]]:
        pairs, found = split_pairs(texts), []
        each = super().encode_with_offsets(pairs, offsets)
        for text, second, (ids, spans), (more, after) in zip(texts, pairs[1::2], each[::2], each[1::2], strict=True):
            at, start = text.index(SEPARATOR), len(text) - len(second)
            between = [(at, at + len(SEPARATOR))] * len(self.separator)
            spans = [*spans, *between, *((start + a, start + b) for a, b in after)] if offsets else []
            found.append(([*ids, *self.separator, *more], spans))
        return found

    def truncate(self, ids: list[int], max_len: int, keep: str, values: list[Any] | None = None) -> list[Any]:
        """Cut the longer text of a pair until both fit, as BERT does: neither is cut below half of the room.

        Raises:
            UsageError: there is no room for a token of each.
        """
        values = ids if values is None else values
        if len(ids) <= max_len:
            return values
        n, at = len(self.separator), ids.index(self.separator[0])
        room, n_second = max_len - n, len(ids) - at - n
        if room < 2:
            what = "text.max_len leaves no room for a token of each of two texts"
            raise UsageError(what, f"use --max-len {len(self.framed(self.separator)) + 2} or more")
        n_first = min(at, max(room - n_second, room - room // 2))
        first, second = truncate(values[:at], n_first, keep), truncate(values[at + n :], room - n_first, keep)
        return [*first, *values[at : at + n], *second]

    def text_fields(self, text: str) -> dict[str, str]:
        return dict(zip(("text", "pair"), split_pair(text), strict=True))

    def _content(self) -> dict[str, Any]:
        return super()._content() | {PAIRS: True}
