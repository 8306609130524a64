"""Long texts encoded in windows at bounded memory, with the ids of the whole; lines of text as they arrive.

The backend takes some 300 bytes for each character. A long text is therefore encoded in windows. A window ends where
no kind of tokenizer joins what is before and behind: before a space between two words, and behind a line break between
two; in a tokenizer of characters anywhere; in a tokenizer of words also between two characters of a script without
spaces. A text without such a border is encoded as a whole. No border may be within an extra token ("[de_DE]"), which
is found before all else.
"""

from __future__ import annotations

import io
import itertools
import json
import re
import select
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, Protocol

import tokenizers

from glassformer.errors import DataError, UsageError
from glassformer.text.ngrams import UNSPACED, surface_forms

LENGTH_RATIO, LENGTH_MARGIN = 2, 20
"""A translation has at most LENGTH_RATIO · source + LENGTH_MARGIN tokens: a longer one is a loop."""


def length_limit(n_source: int, max_len: int, max_new_tokens: int) -> int:
    """Return the maximum tokens, EOS included, of a translation of `n_source` tokens."""
    return max(1, min(max_len, max_new_tokens, LENGTH_RATIO * n_source + LENGTH_MARGIN))


def window_start(n_tokens: int, max_len: int) -> int:
    """Return the index of the first of `n_tokens` tokens that the model still sees when it predicts the next one.

    Up to max_len that is 0. Beyond, the window jumps ahead by half of max_len and is read again: the model sees between
    half of max_len and max_len tokens, and most tokens cost one cached step. (Moving it by one would shift every
    position, and invalidate the cache, at each token.) It depends only on the number of tokens, never on the batch.
    """
    jump = max_len - max_len // 2
    return jump * -(-max(0, n_tokens - max_len) // jump)


def truncate(ids: list[Any], max_len: int, keep: str) -> list[Any]:
    """Return the first `max_len` ids, the last, or half of each (the odd one from the head)."""
    if len(ids) <= max_len:
        return ids
    n_tail = {"head": 0, "tail": max_len, "head+tail": max_len // 2}[keep]
    return ids[: max_len - n_tail] + ids[len(ids) - n_tail :]


READ_BYTES = 1 << 16


class ArrivingLines:
    """The lines of a stream, split at line feeds only (U+2028 and similar characters belong to the text).

    Who writes a line and waits for the answer gets it: a chunk is what has arrived, and is never waited for. `stream`
    is a pipe, a terminal or a file, read at its beginning; None for one that is closed.
    """

    def __init__(self, stream: BinaryIO | None, name: str = "stdin") -> None:
        self._stream, self._name = stream, name

    def __iter__(self) -> Iterator[str]:
        return itertools.chain.from_iterable(self.chunks(READ_BYTES))

    def chunks(self, most: int) -> Iterator[list[str]]:
        """Yield lists of lines that have arrived, of at most so many.

        Raises:
            DataError: a line is not UTF-8, after the lines before it were yielded.
            UsageError: the stream cannot be read.
        """
        rest, number, lines = list[bytes](), 0, list[str]()
        for data in self._arrived():
            first, *others = data.split(b"\n")
            rest.append(first)
            for raw in others:
                number += 1
                try:
                    lines.append(self._line(b"".join(rest), number))
                except DataError:
                    yield from _at_most(lines, most)
                    raise
                rest = [raw]
            # More may have arrived meanwhile: together they are answered faster.
            if lines and (len(lines) >= most or not self._ready(0.0)):
                yield from _at_most(lines, most)
                lines = []
        try:
            if last := b"".join(rest):
                lines.append(self._line(last, number + 1))
        finally:
            yield from _at_most(lines, most)

    def _arrived(self) -> Iterator[bytes]:
        """Yield bytes as they arrive, to the end of the stream."""
        try:
            while self._stream is not None and not self._stream.closed:
                self._ready(None)
                if not (data := self._stream.read1(READ_BYTES)):  # type: ignore[attr-defined]
                    return
                yield data
        except OSError as error:
            message = f"{self._name} cannot be read: {error.strerror or error}"
            raise UsageError(message, "give the text as arguments, or through a pipe") from error

    def _ready(self, seconds: float | None) -> bool:
        """Wait until there is something to read, at most so long; False where that cannot be known."""
        try:
            return bool(self._stream and select.select([self._stream], [], [], seconds)[0])
        except (OSError, ValueError, io.UnsupportedOperation):  # no file, or Windows, where only sockets can be asked
            return False

    def _line(self, raw: bytes, number: int) -> str:
        raw = raw.removesuffix(b"\r")
        try:
            return (raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw).decode("utf-8")
        except UnicodeDecodeError as error:
            where = f"{self._name}:{number}: expected UTF-8, found byte 0x{raw[error.start]:02x}"
            raise DataError(where, "convert the file to UTF-8 first, for instance with iconv") from error


def chunks_of(lines: Iterable[str], most: int) -> Iterator[list[str]]:
    """Yield the lines in lists of at most so many: those that have arrived, where they arrive one after another."""
    if isinstance(lines, ArrivingLines):
        yield from lines.chunks(most)
        return
    rest = iter(lines)
    while chunk := list(itertools.islice(rest, most)):
        yield chunk


def _at_most(lines: list[str], most: int) -> Iterator[list[str]]:
    return (lines[i : i + most] for i in range(0, len(lines), most))


WINDOW = 1 << 15
"""Characters encoded at a time."""
AHEAD = 8
"""Characters behind a window that its last surface forms may need."""
_BORDER = re.compile(r"(?<=\w)(?= \w)|(?<=\w\n)(?=\w)")
_UNSPACED = re.compile(f"[{UNSPACED}]")


class Part(NamedTuple):
    """Ids of a part of a text, and the surface form of each token where they were asked for."""

    ids: list[int]
    surfaces: list[str]


class TokenizerKind(Protocol):
    """What decides where a text can be cut: the kind of a tokenizer, and whether it lowercases."""

    @property
    def kind(self) -> str: ...

    @property
    def lowercases(self) -> Any: ...


class CutText(NamedTuple):
    """What is kept of a text, and whether there was more; surface forms where the tokenizer has n-grams.

    `n_unknown` counts the kept tokens that the vocabulary lacks.
    """

    ids: list[int]
    surfaces: list[str]
    was_cut: bool
    n_unknown: int = 0

    @property
    def mark(self) -> dict[str, bool | int]:
        """Return what an answer says of a text that was cut, or that holds unknown tokens."""
        cut: dict[str, bool | int] = {"truncated": True} if self.was_cut else {}
        return cut | ({"unknown": self.n_unknown} if self.n_unknown else {})


class LongTextEncoder:
    """Encodes a text in windows.

    A window has `window` characters, and more where the text has no border.
    """

    def __init__(self, tokenizer: TokenizerKind, backend: tokenizers.Tokenizer, window: int = WINDOW) -> None:
        self._kind, self._lowercases, self._first, self.window = tokenizer.kind, tokenizer.lowercases, backend, window
        self._further = _without_start_mark(backend) if tokenizer.kind == "bpe" else backend
        added = backend.get_added_tokens_decoder().values()
        self._extra = [token.content for token in added if not token.special]

    def parts(self, text: str, surfaces: bool = False) -> Iterator[Part]:
        """Yield the ids of a text, window by window, and with `surfaces` the surface forms of its tokens."""
        start = 0
        while start < len(text):
            stop = self._end_of_window(text, start)
            backend = self._further if start else self._first
            if surfaces:
                yield self._with_surfaces(text[start : stop + AHEAD], stop - start)
            else:
                yield Part(backend.encode(text[start:stop], add_special_tokens=False).ids, [])
            start = stop

    def _with_surfaces(self, text: str, n_characters: int) -> Part:
        """Return the tokens of the first characters of a text, of which the rest is only looked at."""
        encoding = self._first.encode(text, add_special_tokens=False)
        n = sum(end <= n_characters for _, end in encoding.offsets)
        words = surface_forms(text, encoding.offsets)[:n]
        return Part(encoding.ids[:n], [word.lower() for word in words] if self._lowercases else words)

    def _end_of_window(self, text: str, start: int) -> int:
        """Return where the window from `start` on ends: at a border of its second half, or one twice as long."""
        size = self.window
        while start + size < len(text):
            places = reversed(range(start + size // 2, start + size))
            if (border := next((place for place in places if self._is_border(text, place)), None)) is not None:
                return border
            size *= 2
        return len(text)

    def _is_border(self, text: str, place: int) -> bool:
        """Return whether no token has characters on both sides of a place, which is not the first."""
        if self._kind == "char":
            found = True
        elif self._kind == "word" and _UNSPACED.match(text, place):
            letter = unicodedata.category(text[place])[0] == "L"  # a mark belongs to the letter before it
            found = letter and _UNSPACED.match(text, place - 1) is not None
        else:
            found = _BORDER.match(text, place) is not None
        # No extra token may begin before the place and end behind it.
        return found and all(text.find(e, max(0, place - len(e) + 1), place + len(e) - 1) < 0 for e in self._extra)


def cut_long(parts: Iterable[Part], max_len: int, keep: str) -> CutText:
    """Return what `limits.truncate` keeps of a text that is given in parts, of which only the needed ones are read."""
    n_tail = {"head": 0, "tail": max_len, "head+tail": max_len // 2}[keep]
    kept, n = Part([], []), 0
    for part in parts:
        n += len(part.ids)
        kept = Part(kept.ids + part.ids, kept.surfaces + part.surfaces)
        if n > max_len and not n_tail:
            break
        if len(kept.ids) > 2 * max_len:  # the middle
            ids, words = kept.ids, kept.surfaces
            kept = Part(
                ids[:max_len] + ids[len(ids) - max_len :], words[:max_len] + words[max(0, len(words) - max_len) :]
            )
    return CutText(truncate(kept.ids, max_len, keep), truncate(kept.surfaces, max_len, keep), n > max_len)


def _without_start_mark(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Return a backend that puts no mark before a text, for what is not its beginning."""
    data = json.loads(backend.to_str())
    steps = data["normalizer"]["normalizers"]
    data["normalizer"]["normalizers"] = [step for step in steps if step["type"] != "Prepend"]
    further = tokenizers.Tokenizer.from_str(json.dumps(data))
    further.encode_special_tokens = True
    return further


def not_text(texts: Sequence[str]) -> DataError:
    """Name the text that is to blame for a conversion error of the backend."""
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            return DataError(f"text {number} is a {type(text).__name__}, not a string")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            where = f"text {number}, character {error.start + 1}"
            hint = "save the text as UTF-8"
            return DataError(f"{where}: half a surrogate pair, so this is not Unicode text", hint)
    return DataError("a text cannot be encoded")
