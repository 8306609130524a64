"""Decides whether a table's first line is a header, and which later lines repeat it; ranks columns by their values.

A usual name, such as "label" or "to", can also be the first value of a table without a header: then it recurs below.
"""

from __future__ import annotations

import re
import statistics
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from glassformer.data.datasets.labels import without_zero_width
from glassformer.data.datasets.quotes import JoinedRows
from glassformer.data.datasets.tables import Row
from glassformer.data.diagnostics import Diagnostics
from glassformer.data.sources import is_columnar

SENTENCE_WORDS = 4
"""Median number of words from which a column holds sentences, among which a single word is no example."""
LARGEST_SHARE = 0.25
"""Of the rows of files put together, no more are headers whose names are unusual."""
EXTRA_CHARACTERS = 8
"""A header's cell may have so many spaces and invisible characters around its name."""

FirstRow: TypeAlias = Literal["header", "doubtful", "example"]
"""What the first row is; a header is doubtful where it has no usual name and texts stand alone."""
Examples: TypeAlias = tuple[array, list[str], list[str]]
"""Lines, texts and labels."""

_LANGUAGE_NAMES = "english|german|french|spanish|italian|portuguese|dutch|russian|chinese|japanese"
_LANGUAGE = re.compile(rf"[a-z]{{2,3}}([-_][a-z]{{2,4}})?|{_LANGUAGE_NAMES}")
_OTHER_NAMES = frozenset(
    """id index label lang language sentence text phrase word term question answer prompt response completion summary
    reference hypothesis original translated translation""".split()
) | frozenset(_LANGUAGE_NAMES.split("|"))
_NUMBERED = re.compile(r"([A-Za-z_:.#-]{0,12})\d+")
_RANDOM_ID = re.compile(r"[0-9a-fA-F]{8,}(-[0-9a-fA-F]{4,}){0,4}")


def plain(name: str) -> str:
    """Return a header's cell as it is compared: lower case, without spaces around it and invisible characters."""
    return without_zero_width(name).strip().lower()


def has_header(
    names: Sequence[str], body: list[list[str]], usual: Sequence[tuple[str, ...]], of_label: bool = False
) -> bool:
    """Return whether the first line is a header: it has usual names, or differs from the lines below.

    `usual` are the usual names of each column that is looked for, the last of which is a label if `of_label`. The rows
    of `body` have as many cells as the line.
    """
    lowered = [plain(name) for name in names]
    below = [row for row in body if [plain(cell) for cell in row] != lowered]  # without repeated headers
    recurs = len(below) < len(body) and not _has_usual(lowered, usual)
    if recurs and (len(usual) == 1 or (of_label and not _heads_files(lowered, body, below))):
        return False
    if len(usual) == 1:
        words = len(names) == 1 and not any(" " in row[0].strip() for row in body)  # a word may recur as an example
        return _heads_texts(names, lowered, body if words else below, usual[0])
    if of_label:
        return _heads_labels(names, lowered, below, usual)
    return _heads_pairs(lowered, below, usual)


def first_row(header: bool, names: Sequence[str], usual: Sequence[tuple[str, ...]], named: bool) -> FirstRow:
    """Return what the first row is; `named` says that a flag names a column of the header."""
    if not header:
        return "example"
    doubtful = len(usual) == 1 and not named and not _has_usual([plain(name) for name in names], usual)
    return "doubtful" if doubtful else "header"


def _has_usual(lowered: Sequence[str], usual: Sequence[tuple[str, ...]]) -> bool:
    return any(name in names for names in usual for name in lowered)


def _heads_files(lowered: list[str], body: list[list[str]], below: list[list[str]]) -> bool:
    """Return whether a first row of unusual names, which recurs, heads files put together.

    Then it is rare, its label stands in no other row, and the others have at least two classes.
    """
    n_equal = len(body) - len(below) + 1
    if n_equal > LARGEST_SHARE * (len(body) + 1):
        return False
    rows = [lowered, *([plain(cell) for cell in row] for row in body)]
    label = min(range(len(lowered)), key=lambda i: label_rank([row[i] for row in rows]))
    others = {plain(row[label]) for row in below}
    return len(others) > 1 and lowered[label] not in others


def _heads_texts(names: Sequence[str], lowered: list[str], below: list[list[str]], usual: tuple[str, ...]) -> bool:
    """Return whether the line is a header: texts have spaces, and what they are called has none."""
    longest = longest_column(range(len(names)), below) if below else 0
    spaced = any(" " in row[longest].strip() for row in below)
    named = {i for i, name in enumerate(lowered) if name in usual}
    if longest not in named and _is_sentence(names[longest]):
        return False
    if any(lowered[i] not in {plain(row[i]) for row in below} for i in named):
        return True
    return spaced and " " not in names[longest].strip()


def _heads_labels(
    names: Sequence[str], lowered: list[str], below: list[list[str]], usual: Sequence[tuple[str, ...]]
) -> bool:
    """Return whether the line is a header: the first label of a table without one recurs below."""
    of_texts, of_labels = usual[0], usual[-1]
    named = {i for i, name in enumerate(lowered) if name in of_labels}
    if not below:
        return bool(named) or any(name in of_texts for name in lowered)
    label = min(range(len(names)), key=lambda i: label_rank([row[i] for row in below]))
    text = longest_column([i for i in range(len(names)) if i != label], below)
    if lowered[text] in of_texts and _are_sentences([row[text] for row in below]):
        return True  # as in "text,y" above labels of y and n
    labels = {plain(row[label]) for row in below}
    if len(labels) == len(below) and _is_sentence(names[text]):
        return False  # no label recurs, and a header's cell is no sentence
    candidates = named | ({label} if names[label].strip() else set())
    return bool(candidates) and all(lowered[i] not in {plain(row[i]) for row in below} for i in candidates)


def _heads_pairs(lowered: list[str], below: list[list[str]], usual: Sequence[tuple[str, ...]]) -> bool:
    """Return whether the line is a header: a dictionary may begin with "to" or "source", so one name is not enough."""
    names = {name for names in usual for name in names}
    named = [i for i, name in enumerate(lowered) if name in names and name not in {plain(row[i]) for row in below}]
    others = [i for i in range(len(lowered)) if i not in named]
    if len({lowered[i] for i in named}) > 1:
        return True
    if named and any(lowered[i] in _OTHER_NAMES or "_" in lowered[i] for i in others):
        return True
    words = [re.split(r"[\s_-]+", name) for name in lowered]
    if any(len(each) > 1 for each in words) and all({*each} <= names | _OTHER_NAMES for each in words):
        return len({*lowered}) > 1  # as "original text" above sentences
    numbers = [i for i in range(len(lowered)) if below and all(row[i].strip().isdigit() for row in below)]
    if len(below) > 2 and any(not lowered[i].isdigit() for i in numbers):
        return True  # as "id" above numbers
    first = sentence_columns(below, len(lowered)) if below else [0, 1]
    if named and below and not any(" " in lowered[i] for i in first):
        return all(_are_sentences([row[i] for row in below]) for i in first)
    languages = [all(_LANGUAGE.fullmatch(plain(row[i])) for i in first) for row in [lowered, *below]]
    return bool(below) and languages[0] and not any(languages[1:])


def repeats_header(fields: Sequence[str], header: Sequence[str]) -> bool:
    """Return whether a row is the header again, perhaps in other case; `header` is `plain`."""
    near = all(len(field) <= len(name) + EXTRA_CHARACTERS for field, name in zip(fields, header, strict=True))
    return near and all(plain(field) == name for field, name in zip(fields, header, strict=True))


def names_itself(fields: Mapping[str, object]) -> bool:
    """Return whether each of a JSON object's fields holds its own name: the header of a table that was converted."""
    return len(fields) > 1 and all(isinstance(value, str) and plain(value) == plain(k) for k, value in fields.items())


def reorders_header(fields: Sequence[str], header: Sequence[str]) -> bool:
    """Return whether a row is the header with its columns in another order."""
    longest = max(map(len, header)) + EXTRA_CHARACTERS
    if len(header) < 2 or any(len(field) > longest for field in fields):
        return False
    found = [plain(field) for field in fields]
    return found != list(header) and sorted(found) == sorted(header)


def without_headers(
    path: Path, rows: Iterable[Row], first: FirstRow, joined: JoinedRows, diagnostics: Diagnostics
) -> Iterator[Row]:
    """Yield the rows below the header without its repetitions, which are counted; those over several lines are noted.

    A table that was put together from several files has the header of each. A `doubtful` one that recurs is an example.
    """
    header: list[str] | None = None
    held: Row | None = None
    repeated = array("q")
    for i, row in enumerate(rows):
        if row.alone:
            joined.add(row.line, row.alone)
        if isinstance(row.fields, dict) and names_itself(row.fields):
            repeated.append(row.line)
        elif i == 0 and first != "example" and isinstance(row.fields, list):
            held = row if first == "doubtful" else None
            header = [plain(name) for name in row.fields]
        elif header is None or not isinstance(row.fields, list) or len(row.fields) != len(header):
            yield row
        elif held is not None and repeats_header(row.fields, header):
            yield from (held, row)
            held, header = None, None
        elif repeats_header(row.fields, header):
            repeated.append(row.line)
        elif reorders_header(row.fields, header):
            order = f"a second header has the columns in another order ({', '.join(row.fields)})"
            diagnostics.error(path, row.line, "columns", f"{order}; read the files apart or bring them to one order")
        else:
            yield row
    _note_headers(path, repeated, diagnostics)


def without_named_rows(
    path: Path, examples: Examples, usual: Sequence[tuple[str, ...]], diagnostics: Diagnostics
) -> Examples:
    """Leave out rows such as "review,sentiment": headers of other names, of classes that no other row has."""
    (lines, texts, labels), (of_texts, of_labels) = examples, usual
    found = [i for i, name in enumerate(labels) if plain(name) in of_labels]
    found = [i for i in found if plain(texts[i]) in of_texts]
    if not found:
        return examples
    counts, named = Counter(labels), Counter(labels[i] for i in found)
    left_out = {i for i in found if counts[labels[i]] == named[labels[i]]}
    _note_headers(path, array("q", (lines[i] for i in sorted(left_out))), diagnostics)
    kept = [i for i in range(len(labels)) if i not in left_out]
    return array("q", (lines[i] for i in kept)), [texts[i] for i in kept], [labels[i] for i in kept]


def _note_headers(path: Path, lines: array[int], diagnostics: Diagnostics) -> None:
    if lines:
        diagnostics.counts["repeated headers left out"] += len(lines)
        rows = "1 row is a header" if len(lines) == 1 else f"{len(lines):,} rows are headers"
        unit = "row" if is_columnar(path) else "line"
        where = ", ".join(f"{line:,}" for line in lines[:5]) + (", …" if len(lines) > 5 else "")
        diagnostics.notes.append(f"{path.name}: {rows} again and left out ({unit} {where})")


def longest_column(columns: Sequence[int], body: list[list[str]]) -> int:
    """Return the column with the most characters."""
    return max(columns, key=lambda i: sum(len(row[i]) for row in body))


def label_rank(values: list[str]) -> tuple[bool, int, int]:
    """Rank a column, smallest for the likeliest labels: several values, but few, and short."""
    distinct = set(values)
    return len(distinct) < 2, len(distinct), sum(map(len, distinct))


def sentence_columns(body: list[list[str]], n_columns: int) -> list[int]:
    """Return the first two columns of pairs: those of numbers, identifiers or one value stand after the others."""
    rows = body[1:] if len(body) > 3 else body  # the first may be a header
    others = [_is_identifier([row[i].strip() for row in rows]) for i in range(n_columns)]
    return sorted(sorted(range(n_columns), key=lambda i: (others[i], i))[:2])


def _is_identifier(values: list[str]) -> bool:
    """Return whether values are numbers behind one prefix, random identifiers, language codes, or all the same."""
    if len(values) < 2:
        return bool(values) and values[0].isdigit()
    prefixes = {match.group(1) if (match := _NUMBERED.fullmatch(value)) else None for value in values}
    if len(prefixes) == 1 and None not in prefixes:
        return True
    if len(set(values)) == 1 and " " not in values[0]:
        return True
    return all(_RANDOM_ID.fullmatch(each) for each in values) or all(_LANGUAGE.fullmatch(each) for each in values)


def _are_sentences(texts: list[str]) -> bool:
    return statistics.median(map(_n_words, texts)) >= SENTENCE_WORDS


def _is_sentence(text: str) -> bool:
    return _n_words(text) >= SENTENCE_WORDS


def _n_words(text: str) -> int:
    """Return the number of words, or an estimate for scripts without spaces."""
    return max(len(text.split()), len(text) // 12)


Wanted = Sequence[tuple[str | None, tuple[str, ...]]]
"""For each column the name that was asked for, and the usual ones."""


def unnested_rows(rows: Iterable[Row], wanted: Wanted) -> Iterator[Row]:
    """Yield rows with the fields of an inner object "translation", unless the fields that are read stand outside."""
    for row in rows:
        fields = row.fields
        inner = fields.get("translation") if isinstance(fields, dict) else None
        if isinstance(fields, dict) and isinstance(inner, dict):
            yield replace(row, fields=_unnested(fields, inner, wanted))
        else:
            yield row


def _unnested(fields: dict[str, Any], inner: dict[str, Any], wanted: Wanted) -> dict[str, Any]:
    outer = {key: value for key, value in fields.items() if key != "translation"}
    names = {plain(key) for key in outer}
    outside = [plain(name) in names if name else not names.isdisjoint(usual) for name, usual in wanted]
    if all(outside):
        return fields
    some_requested = any(found and name for found, (name, _) in zip(outside, wanted, strict=True))
    return {**inner, **outer} if some_requested else inner
