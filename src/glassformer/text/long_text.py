"""Long texts encoded in parts at bounded memory, with the ids of the whole; lines of text as they arrive.

The backend takes some 300 bytes for each character. A long text is therefore encoded in windows. A window ends where
the whole text has a border between tokens, and that is proved before it is used:

- before a space between two words, and behind a line break between two: no kind of tokenizer joins these;
- anywhere, in a tokenizer of characters;
- between two characters of a script without spaces, in a tokenizer of words; a word longer than any in the vocabulary
  is read as far as matters;
- within a word, in byte-pair encoding, between tokens that its merges do not join: a sequence of tokens is that of its
  text if each two neighbours are those of theirs, since the first merge across a border is one of the two tokens there.

No border may be within an extra token ("[de_DE]"), which is found before all else.
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
from glassformer.text.backends import SPACE
from glassformer.text.ngrams import MOST_CHARACTERS, UNSPACED, surface_forms

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
TRIED = 16
"""Borders between byte pairs that are tested before a window is made longer."""
AHEAD = 8
"""Characters behind a window that its last surface forms may need."""
SPACES = "\t\n\v\f\r\x85"

_BORDER = re.compile(r"(?<=\w)(?= \w)|(?<=\w\n)(?=\w)")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_WORD = re.compile(rf"[^\W{UNSPACED}]+(?:['’][^\W{UNSPACED}]+)*")


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
        self._long_word = MOST_CHARACTERS + 2
        if tokenizer.kind == "word":
            self._long_word += max(map(len, backend.get_vocab(with_added_tokens=True)), default=0)

    def parts(self, text: str, surfaces: bool = False) -> Iterator[Part]:
        """Yield the ids of a text, window by window, and with `surfaces` the surface forms of its tokens."""
        if self._kind in ("bpe", "byte-bpe"):
            yield from self._merged_parts(text)
            return
        start = 0
        while start < len(text):
            stop, following = self._next_window(text, start)
            yield self._encode(text[:stop] if stop < following else text, start, stop, surfaces)
            start = following

    def _encode(self, text: str, start: int, stop: int, surfaces: bool) -> Part:
        """Encode text[start:stop], whose borders are those of tokens."""
        if not surfaces:
            [encoding] = self._first.encode_batch_fast([text[start:stop]], add_special_tokens=False)
            return Part(encoding.ids, [])
        piece = text[start : stop + AHEAD]
        [encoding] = self._first.encode_batch([piece], add_special_tokens=False)
        words, n = surface_forms(piece, encoding.offsets), sum(end <= stop - start for _, end in encoding.offsets)
        return Part(encoding.ids[:n], [word.lower() for word in words[:n]] if self._lowercases else words[:n])

    def _next_window(self, text: str, start: int) -> tuple[int, int]:
        """Return where the window from `start` on ends, and where the next one begins."""
        size = self.window
        while start + size < len(text):
            stop = start + size
            if (border := self._border(text, start + size // 2, stop)) is not None:
                return border, border
            if self._kind == "word" and (found := self._past_long_word(text, start, stop)) is not None:
                return found
            size *= 2
        return len(text), len(text)

    def _border(self, text: str, first: int, stop: int) -> int | None:
        """Return a place from `first` to `stop` where no token of characters or words continues; None without one."""
        if self._kind == "char":
            return next((place for place in range(stop, first, -1) if self._outside_extra(text, place)), None)
        found = [m.start() for m in _BORDER.finditer(text, first, stop)]
        if self._kind == "word":
            found += [place for place in range(max(first, stop - 256), stop) if self._between_unspaced(text, place)]
        return next((place for place in sorted(found, reverse=True) if self._outside_extra(text, place)), None)

    def _between_unspaced(self, text: str, place: int) -> bool:
        before, behind = text[place - 1], text[place]
        is_letter = unicodedata.category(behind)[0] == "L"  # a mark belongs to the letter before it
        return is_letter and all(_UNSPACED.match(each) is not None for each in (before, behind))

    def _past_long_word(self, text: str, start: int, stop: int) -> tuple[int, int] | None:
        """Return how much of a word at `stop` matters, and its end, where it is longer than any that is known."""
        begins = max((m.start() for m in re.finditer(rf"(?<![\w'’])\w|[{UNSPACED}]", text[start:stop])), default=None)
        if self._extra or begins is None or not (word := _WORD.match(text, start + begins)):
            return None
        follows = text[word.end() : word.end() + 1]
        cut = word.start() + self._long_word
        if word.end() <= cut or unicodedata.category(follows or " ")[0] == "M" or "'" in text[cut - 1 : cut + 1]:
            return None
        return (cut, word.end()) if "’" not in text[cut - 1 : cut + 1] else None

    def _outside_extra(self, text: str, place: int) -> bool:
        """Return whether no extra token begins before a place and ends behind it."""
        return all(text.find(e, max(0, place - len(e) + 1), place + len(e) - 1) < 0 for e in self._extra)

    def _merged_parts(self, text: str) -> Iterator[Part]:
        """Yield the ids of a text whose tokens are merged of bytes or characters."""
        start, size = 0, self.window
        this = self._merged(text, 0, size)
        while start + size < len(text):
            for n, place in self._borders(text, start, this):
                following = self._merged(text, place, self.window)
                if _BORDER.match(text, place) or self._splits(text, (start, place), this, n, following):
                    yield Part(this.ids[:n], [])
                    start, size, this = place, self.window, following
                    break
            else:
                size *= 2
                this = self._merged(text, start, size)
        yield Part(this.ids, [])

    def _merged(self, text: str, start: int, size: int) -> tokenizers.Encoding:
        backend = self._further if start else self._first
        return backend.encode(text[start : start + size], add_special_tokens=False)

    def _borders(self, text: str, start: int, window: tokenizers.Encoding) -> Iterator[tuple[int, int]]:
        """Yield the last places where the tokens of a window may be divided: how many before it, and the place."""
        offsets, tried = window.offsets, 0
        for n in range(len(offsets) - 2, len(offsets) // 2, -1):
            place = start + offsets[n][0]
            if offsets[n - 1][1] > offsets[n][0] or offsets[n - 1][0] == offsets[n][0]:
                continue  # bytes of one character
            safe = _BORDER.match(text, place) or self._class_of(text[place - 1], -1) == self._class_of(text[place], 0)
            if safe and text[place] != "'" and self._outside_extra(text, place):
                yield n, place
                tried += 1
                if tried == TRIED:
                    return

    def _splits(
        self, text: str, ends: tuple[int, int], left: tokenizers.Encoding, n: int, right: tokenizers.Encoding
    ) -> bool:
        """Return whether the tokens on both sides of a place are those of the text that they make up."""
        start, place = ends
        k = n - 1
        while k > 0 and left.offsets[k - 1][1] > left.offsets[k][0]:
            k -= 1
        m = 1
        while m < len(right.offsets) and right.offsets[m][0] < right.offsets[m - 1][1]:
            m += 1
        around = text[start + left.offsets[k][0] : place + right.offsets[m - 1][1]]
        # A contraction of English is a token's border in one text and not in another.
        return "'" not in around and self._merged(f"\n{around}", 1, len(around)).ids == left.ids[k:n] + right.ids[:m]

    def _class_of(self, character: str, at: int) -> str:
        """Return the kind of characters that share tokens with a character: its own, where it is not known."""
        character = character.lower()[at] if self._lowercases else character
        category = unicodedata.category(character)
        if category[0] == "Z" or character in SPACES or (character == SPACE and self._kind == "bpe"):
            is_mark = self._kind == "bpe" and character in (" ", SPACE)
            return "mark" if is_mark else "space"
        if category == "Cn":
            return character
        if category[0] == "M" and self._kind == "bpe":
            return "L"
        return category[0] if category[0] in "LN" else "other"


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
