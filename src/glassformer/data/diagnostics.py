r"""Files of text as lines or whole documents, with everything that is wrong in them and where, and what stands out.

Lines end at "\n" and nowhere else: `str.splitlines` also breaks at U+2028 and U+0085 and so misaligns
parallel files. Problems are collected, not raised, so that one pass tells all. Tables are in `tables.py`.
"""

from __future__ import annotations

import codecs
import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

from glassformer.data.sources import DAMAGED, is_columnar, is_pipe, open_source, unreadable
from glassformer.errors import DataError, UsageError

Grade = Literal["stop", "look", "know"]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Finding:
    """What is the matter, and what to do about it.

    Attributes:
        matter: a sentence without a full stop. remedy: likewise; empty where nothing is known to help.
        place: what it is about, such as "few examples" or "validation loss".
        numbers: what it rests on, by name.
        grade: "stop": the result means nothing; "look": it is probably worse than it could be; "know": good to know.
        at: where in the model or among its parameters, as ids of `explain` or names of weights.
    """

    matter: str
    remedy: str = ""
    place: str = ""
    numbers: dict[str, float] = field(default_factory=dict)
    grade: Grade = "look"
    at: str = ""

    def __str__(self) -> str:
        return f"{self.matter}; {self.remedy}" if self.remedy else self.matter


RETURNS_ALONE = "lines end in carriage returns alone, as in files of the classic Mac OS; save it with line feeds"
MAX_KEPT = 1000
"""Problems kept with their message; the rest are only counted."""
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class DataIssue:
    """A problem that must be corrected before training.

    Attributes:
        line: from 1; 0 is the file as a whole. A file of columns has no lines: its rows are counted.
        kind: a word or two for programs: missing, encoding, nul, gzip, format, quote, columns, line ends,
            json, label, pair, line counts, empty file, too little.
    """

    path: str
    line: int
    kind: str
    message: str
    unit: Literal["line", "row"] = "line"

    def __str__(self) -> str:
        place = f", row {self.line:,}" if self.unit == "row" else f":{self.line}"
        return f"{self.path}{place if self.line else ''}: {self.message}"


@dataclass(frozen=True)
class TableForm:
    """How files are written, where flags say it: `FilesConfig` describes each."""

    header: str | None = None
    delimiter: str | None = None
    quotes: str | None = None
    encoding: str = "utf-8"


@dataclass
class Diagnostics:
    """What came up while files were read.

    Args:
        form: how they are written.
        issues: the first MAX_KEPT errors, in the order they were met.
        n_issues: all of them.
        n_unreadable: lines of which nothing could be decoded.
        counts: harmless things by name, such as "CRLF line ends".
        notes: what a person should be told, such as which columns were chosen.
        hashes: path as given → sha256 of its bytes, as they are stored.
        pipes: paths whose bytes could be read once.
    """

    form: TableForm = TableForm()
    issues: list[DataIssue] = field(default_factory=list)
    n_issues: int = 0
    n_unreadable: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    hashes: dict[str, str] = field(default_factory=dict)
    pipes: list[str] = field(default_factory=list)

    def read(self, path: Path, sha256: str) -> None:
        """Note that a file was read to its end."""
        self.hashes[path.as_posix()] = sha256
        if is_pipe(path) and path.as_posix() not in self.pipes:
            self.pipes.append(path.as_posix())

    def error(self, path: Path, line: int, kind: str, message: str) -> None:
        """Note an error."""
        self.n_issues += 1
        if len(self.issues) < MAX_KEPT:
            self.issues.append(DataIssue(str(path), line, kind, message, "row" if is_columnar(path) else "line"))

    def noted(self, check: Callable[[Any, Path], Result], answers: Any, path: Path) -> Result | None:
        """Return what a function of all answers of a file gives; None where it raises a DataError, which is noted."""
        try:
            return check(answers, path)
        except DataError as error:
            advice = f"; {error.hint}" if error.hint else ""
            self.error(path, 0, "label", f"{error.message.removeprefix(f'{path}: ')}{advice}")
            return None

    def raise_if_any(self) -> None:
        """Raise a DataError of the first error's file and line, if there was one, with the number of others."""
        if self.issues:
            more = self.n_issues - 1
            also = f" (and {more:,} more {'problem' if more == 1 else 'issues'})" if more else ""
            hint = "`glassformer data check` with the same flags lists everything" if more else ""
            raise DataError(f"{self.issues[0]}{also}", hint)


def read_lines(path: Path, diagnostics: Diagnostics) -> list[str]:
    """Read all lines of a file without their ends. A byte order mark and carriage returns are removed and counted.

    A line that cannot be read is empty in the list, so that the others keep their numbers.
    """
    return [line for _, line in numbered_lines(path, diagnostics)]


def numbered_lines(path: Path, diagnostics: Diagnostics) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, line) as `read_lines`, with one line in memory at a time."""
    number, before = 0, diagnostics.n_issues
    for number, line in _lines(path, diagnostics):
        yield number, line.removesuffix("\n")
    if number == 0 and diagnostics.n_issues == before:
        diagnostics.error(path, 0, "empty file", "the file is empty")


def read_document(path: Path, diagnostics: Diagnostics) -> str:
    r"""Read a whole text file with line ends "\n"; "" if it cannot be read."""
    before = diagnostics.n_issues
    text = "".join(line for _, line in _lines(path, diagnostics))
    return text if diagnostics.n_issues == before else ""


def _lines(path: Path, diagnostics: Diagnostics) -> Iterator[tuple[int, str]]:
    r"""Yield (number from 1, line), with "\n" where the file has it."""
    if message := unreadable(path):
        diagnostics.error(path, 0, "missing", message)
        return
    digest, number = hashlib.sha256(), 0
    with open_source(path, digest) as source:
        try:
            lines = _as_utf8(path, source, diagnostics.form.encoding)
            for number, (line, following) in enumerate(pairwise(chain(lines, [b""])), start=1):
                raw = line.removesuffix(b"\n")
                if number == 1 and raw.startswith(UTF16_MARKS):
                    diagnostics.error(path, 1, "encoding", "the file is UTF-16: --encoding utf-16")
                    return
                if number == 1 and not following and b"\r" in raw[:-1] and b"\0" not in raw:
                    diagnostics.error(path, 1, "line ends", RETURNS_ALONE)
                    return
                while raw.startswith(codecs.BOM_UTF8):  # further down where files were put together
                    raw = raw[len(codecs.BOM_UTF8) :]
                    diagnostics.counts["byte order marks"] += 1
                if raw.endswith(b"\r"):
                    raw = raw[:-1]
                    diagnostics.counts["CRLF line ends"] += 1
                yield number, _decoded(raw, path, number, diagnostics) + "\n" * line.endswith(b"\n")
        except DAMAGED as error:
            diagnostics.error(path, number + 1, "gzip", f"the gzip file is damaged or cut short here ({error})")
            return
        except UnicodeError as error:
            what = f"the file is not in {diagnostics.form.encoding} ({error})"
            diagnostics.error(path, number + 1, "encoding", what)
            return
    diagnostics.read(path, digest.hexdigest())


def _as_utf8(path: Path, file: BinaryIO, encoding: str) -> Iterable[bytes]:
    """Return the lines of a file in UTF-8, whatever it is in; raise UsageError for an encoding that does not exist."""
    try:
        is_utf8 = codecs.lookup(encoding).name == "utf-8"
        text = file if is_utf8 else io.TextIOWrapper(file, encoding, newline="\n")
    except LookupError:  # or one of Python's that is no encoding of text, such as rot13
        message = f"{path}: there is no encoding {encoding!r}"
        raise UsageError(message, "name one of Python's, such as cp1252, utf-16, shift_jis") from None
    return (line.encode() if isinstance(line, str) else line for line in text)


def _decoded(raw: bytes, path: Path, number: int, diagnostics: Diagnostics) -> str:
    """Return the line as text; "" after recording why it cannot be decoded."""
    if b"\0" in raw:
        where = f"byte {raw.index(0) + 1} of the line is NUL"
        kind, what = "nul", f"{where}, which no text holds (in UTF-16: --encoding utf-16-le)"
    else:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            found = f"byte {error.start + 1} of the line (0x{raw[error.start]:02X}) is not UTF-8"
            kind, what = "encoding", f"{found}; --encoding names another, such as cp1252"
    diagnostics.n_unreadable += 1
    if kind != "encoding" or not any(each.kind == kind and each.path == str(path) for each in diagnostics.issues):
        diagnostics.error(path, number, kind, what)  # of other bytes one line for the file
    return ""


def encoding_issue(text: str) -> tuple[str, str] | None:
    """Return the issue of a string that JSON can escape but no text file can hold."""
    if "\0" in text:
        return "nul", "the text holds NUL (\\u0000)"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "encoding", "the text holds half a surrogate pair (\\ud800 to \\udfff), which is not Unicode text"
    return None
