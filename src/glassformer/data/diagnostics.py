r"""Files of text as lines or whole documents, with everything that is wrong in them and where, and what stands out.

Lines end at "\n" and nowhere else: `str.splitlines` also breaks at U+2028 and U+0085 and so misaligns
parallel files. Problems are collected, not raised, so that one pass reports all. Tables are in `tables.py`.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

from glassformer.config import FilesConfig
from glassformer.errors import DataError, UsageError
from glassformer.utils.atomic_io import sha256_file
from glassformer.utils.formatting import counted

Grade = Literal["stop", "look", "know"]
Result = TypeVar("Result")


class NotMade(Exception):
    """A check could not be made; the message is the reason."""


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


RETURNS_ALONE = "line ends", "lines end in carriage returns alone; save it with line feeds"
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a surrogate pair; Python also reads bytes that it cannot decode as such."""
MOST_OF_A_KIND = 10
"""Problems of a kind that are kept of a file, with their messages; the rest are only counted."""


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

    def __str__(self) -> str:
        place = f", row {self.line:,}" if is_columnar(Path(self.path)) else f":{self.line}"
        return f"{self.path}{place if self.line else ''}: {self.message}"


@dataclass
class Diagnostics:
    """What came up while files were read.

    Args:
        form: how they are written, where flags say it.
        issues: the first MOST_OF_A_KIND errors of each kind in each file, in the order they were met.
        n_of: all of them, by file and kind.
        cut: files of which an error ended the reading.
        counts: harmless things by name, such as "CRLF line ends".
        notes: what a person should know, such as which columns were chosen.
        hashes: path as given → sha256 of its bytes, as they are stored.
    """

    form: FilesConfig = field(default_factory=FilesConfig)
    issues: list[DataIssue] = field(default_factory=list)
    n_of: Counter[tuple[str, str]] = field(default_factory=Counter)
    cut: set[Path] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    hashes: dict[str, str] = field(default_factory=dict)

    @property
    def n_issues(self) -> int:
        """Return the number of all errors."""
        return self.n_of.total()

    @property
    def more(self) -> dict[str, int]:
        """Return how many errors are not kept, by file and kind."""
        kept = Counter((issue.path, issue.kind) for issue in self.issues)
        return {f"{path} ({kind})": n for (path, kind), n in (self.n_of - kept).items()}

    def error(self, path: Path, line: int, kind: str, message: str) -> None:
        """Note an error."""
        self.n_of[str(path), kind] += 1
        if self.n_of[str(path), kind] <= MOST_OF_A_KIND:
            self.issues.append(DataIssue(str(path), line, kind, message))

    def stop(self, path: Path, line: int, kind: str, message: str) -> None:
        """Note an error behind which nothing of the file is read."""
        self.error(path, line, kind, message)
        self.cut.add(path)

    def noted(self, check: Callable[[Any, str], Result], part: Any) -> Result | None:
        """Return what a function of all answers of a part gives; None where it raises a DataError, which is noted."""
        try:
            return check(part.answers, part.source)
        except DataError as error:
            advice = f"; {error.hint}" if error.hint else ""
            self.error(Path(part.source), 0, "label", f"{error.message.removeprefix(f'{part.source}: ')}{advice}")
            return None

    def raise_if_any(self, hint: str = "") -> None:
        """Raise a DataError of the first error's file and line, if there was one, with the number of others."""
        if self.issues:
            more = self.n_issues - 1
            also = f" (and {counted(more, 'more problems')})" if more else ""
            check = "`glassformer data check`, with all files that are named here, lists more" if more else ""
            raise DataError(f"{self.issues[0]}{also}", hint or check)


def numbered_lines(path: Path, diagnostics: Diagnostics) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, line) without its end; a byte order mark and carriage returns are removed and counted."""
    number, before = 0, diagnostics.n_issues
    for number, line in _lines(path, diagnostics):
        yield number, line.removesuffix("\n")
    if number == 0 and diagnostics.n_issues == before:
        diagnostics.stop(path, 0, "empty file", "the file is empty")


def read_document(path: Path, diagnostics: Diagnostics) -> str:
    r"""Read a whole text file with line ends "\n"; "" if it cannot be read."""
    before = diagnostics.n_issues
    text = "".join(line for _, line in _lines(path, diagnostics))
    return text if diagnostics.n_issues == before else ""


def _lines(path: Path, diagnostics: Diagnostics) -> Iterator[tuple[int, str]]:
    r"""Yield (number from 1, line), with "\n" where the file has it, up to one that cannot be read."""
    if message := unreadable(path):
        diagnostics.stop(path, 0, "missing", message)
        return
    number, encoding, counts = 0, diagnostics.form.encoding, diagnostics.counts
    try:
        with open_source(path) as file:
            text = io.TextIOWrapper(file, encoding, errors="surrogateescape", newline="\n")
            for number, line in enumerate(text, start=1):
                end = "\n" * line.endswith("\n")
                line = line.removesuffix("\n")
                while line.startswith("\ufeff"):  # further down where files were put together
                    line = line[1:]
                    counts["byte order marks"] += 1
                if issue := _why_no_text(line, encoding) or (number == 1 and line.count("\r") > 2 and RETURNS_ALONE):
                    diagnostics.stop(path, number, *issue)
                    return
                counts["CRLF line ends"] += line.endswith("\r")
                yield number, line.removesuffix("\r") + end
    except DAMAGED as error:
        diagnostics.stop(path, number + 1, "gzip", f"the gzip file is damaged or cut short ({error})")
    except UnicodeError as error:
        diagnostics.stop(path, number + 1, "encoding", f"the file is not in {encoding} ({error})")
    except LookupError:  # or an encoding of Python's that is none of text, such as rot13
        message = f"{path}: there is no encoding {encoding!r}"
        raise UsageError(message, "name one of Python's, such as cp1252, utf-16, shift_jis") from None
    else:
        diagnostics.hashes[path.as_posix()] = sha256_file(path)


def _why_no_text(line: str, encoding: str) -> tuple[str, str] | None:
    """Return the issue of a line that holds NUL, or bytes that are not in the encoding of the file."""
    if found := _SURROGATE.search(line):
        at, byte = len(line[: found.start()].encode(encoding)) + 1, ord(found[0]) & 0xFF
        other = "utf-16" if byte in (0xFE, 0xFF) else "cp1252"
        where = f"byte {at} of the line (0x{byte:02X}) is not {encoding.upper()}"
        return "encoding", f"{where}; --encoding names another, such as {other}"
    if "\0" in line:
        where = f"byte {line.index(chr(0)) + 1} of the line is NUL"
        return "nul", f"{where}, which no text holds; take it out (in UTF-16: --encoding utf-16-le; in UTF-32: utf-32)"
    return None


def encoding_issue(text: str) -> tuple[str, str] | None:
    """Return the issue of a string that JSON can escape but no text file can hold."""
    if "\0" in text:
        return "nul", "the text holds NUL (\\u0000)"
    if _SURROGATE.search(text):
        return "encoding", "the text holds half a surrogate pair (\\ud800 to \\udfff), which is not Unicode text"
    return None


# --- files as streams of bytes --------------------------------------------------------------------------------------


MAX_UNPACKED_BYTES = 1 << 30
"""Size of a compressed file when unpacked; a larger one may have been made to fill the memory."""
GZIP_MAGIC = b"\x1f\x8b"
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)
"""What reading a damaged gzip file raises."""
TABLES = (".csv", ".tsv", ".jsonl")
COLUMN_FILES = (".parquet", ".arrow", ".feather")
"""Files of columns, which pyarrow reads."""


def suffix_of(path: Path) -> str:
    """Return the suffix of a file's name in lower case, without a final .gz: ".csv" of a.CSV.gz."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def is_columnar(path: Path) -> bool:
    """Return whether rows are stored by columns, so that they have numbers and no lines."""
    return suffix_of(path) in COLUMN_FILES


def unreadable(path: Path) -> str:
    """Return why a path is no file; empty if it is one."""
    if path.is_file():
        return ""
    if path.is_dir():
        return "this is a folder, not a file"
    return "this is a pipe or a device; write what it gives to a file" if path.exists() else "there is no such file"


@contextlib.contextmanager
def open_source(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading; one that begins as gzip does is unpacked, in memory.

    Raises:
        DataError: it unpacks to more than MAX_UNPACKED_BYTES, or is a Parquet file, an archive or a workbook of Excel.
    """
    with open(path, "rb") as file:
        if file.peek(4)[:4] in (b"PAR1", b"PK\x03\x04"):
            raise DataError(f"{path} is no text: Parquet, or a workbook", "name it .parquet, or save it as CSV")
        if file.peek(2)[:2] != GZIP_MAGIC:
            yield file
            return
        content = gzip.GzipFile(fileobj=file).read(MAX_UNPACKED_BYTES + 1)
    if len(content) > MAX_UNPACKED_BYTES:
        message = f"{path}: unpacks to more than {MAX_UNPACKED_BYTES:,} bytes"
        raise DataError(message, "unpack it, and give the plain file")
    yield io.BytesIO(content)
