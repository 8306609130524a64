"""Sentences with a tag for each word: CoNLL columns, and JSON Lines of words and tags, or of texts and spans.

Tags are read as IOB2 (`text/tags.py`). A sentence is kept as its words joined by single spaces, and its tags one a
line. The columns, or fields, that training read are read in every file later.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from glassformer.data.datasets.columns import Columns, ColumnSpec, ColumnSpecs, Rows, plain
from glassformer.data.datasets.labels import normalised_label, note_spellings
from glassformer.data.datasets.tables import read_rows
from glassformer.data.diagnostics import Diagnostics, encoding_issue, numbered_lines
from glassformer.data.sources import format_of, is_columnar
from glassformer.errors import UsageError
from glassformer.text.tags import OUTSIDE, as_iob2
from glassformer.text.words import Span, read_running
from glassformer.utils.formatting import counted

WORDS = ColumnSpec("words", "--text-column", ("tokens", "words", "text", "sentence"))
HEADERS = {"word", "words", "token", "tokens", "form", "text"}
"""How a header calls the column of words."""
TAGS = ColumnSpec("tags", "--label-column", ("tags", "ner_tags", "pos_tags", "labels", "ner", "pos", "upos"))
SPANS = ("spans", "entities", "label", "labels", "ents")
"""Usual names of the field of spans."""
COLUMN_SUFFIXES = (".conll", ".conllu", ".iob", ".iob2", ".bio", ".bioes", ".txt", ".tsv", ".tab", ".col", ".tags")
"""Suffixes of files with a word a line."""
DOCUMENT_START = "-DOCSTART-"
CONLLU_COLUMNS = 2, 4
"""Columns of the form and of the part of speech in CoNLL-U, counted from 1."""


_COMMENT = re.compile(r"#\s?[\w.]+ = ")
"""A line about a sentence, as in CoNLL-U: "# text = …"."""


@dataclass
class _Sentences:
    """Sentences that were read."""

    path: Path
    diagnostics: Diagnostics
    texts: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    written: Counter[str] = field(default_factory=Counter)
    resolved: Columns | None = None
    changed: list[str] = field(default_factory=list)
    cut_otherwise: list[str] = field(default_factory=list)

    def add(self, line: int, words: Sequence[str], tags: Sequence[str]) -> None:
        """Add a sentence, or report what is wrong in it."""
        clean = [normalised_label(tag) for tag in tags]
        if message := _problem(words, clean):
            self.diagnostics.error(self.path, line, "label", message)
            return
        joined = " ".join(words)
        if issue := encoding_issue(joined):
            self.diagnostics.error(self.path, line, *issue)
            return
        self.written.update(tags)
        found = as_iob2(clean)
        differ = [i for i, (a, b) in enumerate(zip(clean, found, strict=True)) if a != b]
        self.diagnostics.counts["tags brought to IOB2"] += len(differ)
        self.changed += [f"line {line}, word {i + 1} ({words[i][:40]!r}): {clean[i]} is {found[i]}" for i in differ[:1]]
        self.cut_otherwise += [word for word in words if _cut(word) != word][:1]
        self.texts.append(joined)
        self.answers.append("\n".join(found))
        self.lines.append(line)

    def rows(self) -> Rows:
        note_spellings(self.path, self.written, self.diagnostics)
        notes, n = self.diagnostics.notes, len(self.cut_otherwise)
        if self.changed:
            notes.append(f"{self.path.name}: tags were brought to IOB2, the first in {self.changed[0]}")
        if n:
            self.diagnostics.counts["sentences whose words running text cuts otherwise"] += n
            word = self.cut_otherwise[0]
            notes.append(
                f"{self.path.name}: in {n:,} of {counted(len(self.texts), 'sentences')} predict would cut words, such "
                f"as {word[:40]!r} into {_cut(word)[:40]!r}; scores are of the words of the file"
            )
        if self.resolved:
            named = zip(("words", "tags"), self.resolved.keys, strict=True)
            shown = ", ".join(f"{what} are {key + 1 if isinstance(key, int) else repr(key)}" for what, key in named)
            first = f"{self.texts[0].split()[0]!r} | {self.answers[0].split()[0]!r}" if self.texts else "none"
            notes.append(f"{self.path.name}: {shown}; first example: {first}")
        headers = self.resolved.headers if self.resolved else (None, None)
        return Rows(self.texts, self.answers, self.lines, self.path, headers, self.resolved)


@lru_cache(maxsize=1 << 16)
def _cut(word: str) -> str:
    """Return the words that running text would be cut into at a word, joined by spaces."""
    return " ".join(read_running(word).words)


def _problem(words: Sequence[str], tags: Sequence[str]) -> str:
    """Return what is wrong with the words and tags of a sentence; empty if nothing is."""
    if len(words) != len(tags):
        return f"{len(words)} words, but {len(tags)} tags; each word has one"
    for number, (word, tag) in enumerate(zip(words, tags, strict=True), start=1):
        if not word or any(character.isspace() for character in word):
            return f"word {number} is {word[:40]!r}: a word is not empty and holds no space"
        if not tag or any(character.isspace() for character in tag):
            return f"word {number} ({word[:40]!r}) has the tag {tag[:40]!r}: a tag is not empty and holds no space"
    return ""


def read_tagged(path: Path, specs: ColumnSpecs, diagnostics: Diagnostics) -> Rows:
    """Read sentences with tags; those with an error are reported and left out.

    In files of columns `specs` may name the numbers of those of the word and of the tag, counted from 1.

    Raises:
        UsageError: the file's name does not show its format.
    """
    sentences = _Sentences(path, diagnostics)
    suffix = format_of(path)
    if suffix in (".jsonl", ".ndjson") or is_columnar(path):
        _read_objects(path, specs, sentences)
    elif suffix in COLUMN_SUFFIXES:
        _read_columns(path, specs, sentences)
    else:
        raise UsageError(
            f"{path}: tagged sentences are in a .conll file, a word and its tag a line, or in .jsonl, not "
            f"{suffix or 'without a suffix'!r}",
            'write a sentence as {"words": […], "tags": […]} on a line of .jsonl, or rename a file of the first kind',
        )
    return sentences.rows()


# --- a word a line --------------------------------------------------------------------------------------------


def _read_columns(path: Path, specs: ColumnSpecs, sentences: _Sentences) -> None:
    """Read lines of columns, separated by tabs or blanks; an empty line, or one of DOCUMENT_START, ends a sentence."""
    of_conllu = path.name.lower().removesuffix(".gz").endswith(".conllu")
    word_at, tag_at = (_column(spec) or (spec.place and spec.place[0] + 1) for spec in specs)
    if of_conllu:
        word_at, tag_at = word_at or CONLLU_COLUMNS[0], tag_at or CONLLU_COLUMNS[1]
    diagnostics, width, n_numbers, n_words = sentences.diagnostics, 0, 0, 0
    words, tags, begins, broken = list[str](), list[str](), 0, False
    for number, fields in _fields(path, of_conllu, diagnostics):
        if not fields or fields[0] == DOCUMENT_START:
            if words and not broken:
                sentences.add(begins, words, tags)
            words, tags, begins, broken = [], [], 0, False
            continue
        if not width and plain(fields[(word_at or 1) - 1]) in HEADERS and plain(fields[-1]) in TAGS.usual:
            diagnostics.counts["headers"] += 1
            continue
        width, begins = width or len(fields), begins or number
        wanted = max(2, word_at or 0, tag_at or 0, width)
        if len(fields) != width or len(fields) < wanted:
            message = f"{wanted} columns are expected, as a word and its tag or more, but there are {len(fields)}"
            diagnostics.error(path, number, "columns", message)
            broken = True
            continue
        if not sentences.resolved:
            keys = ((word_at or 1) - 1, (tag_at or width) - 1)
            sentences.resolved = Columns(keys, (None, None), width)
        n_words, n_numbers = n_words + 1, n_numbers + (fields[0] == str(len(words)) or fields[0] == str(len(words) + 1))
        words.append(fields[(word_at or 1) - 1])
        tags.append(fields[(tag_at or 0) - 1])
    if words and not broken:
        sentences.add(begins, words, tags)
    if not word_at and n_words > 2 and n_numbers == n_words:
        message = "the first column counts the words of each sentence; --text-column names that of the words, as 2"
        diagnostics.error(path, 0, "columns", message)


def _fields(path: Path, of_conllu: bool, diagnostics: Diagnostics) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the columns of each line; none for one that ends a sentence."""
    by_tabs: bool | None = None
    for number, line in numbered_lines(path, diagnostics):
        if not line.strip():
            yield number, []
            continue
        if line.startswith("#") and (of_conllu or _COMMENT.match(line) or (by_tabs and "\t" not in line)):
            diagnostics.counts["comments"] += not of_conllu
            continue
        by_tabs = "\t" in line if by_tabs is None else by_tabs
        fields = [cell.strip() for cell in line.split("\t")] if by_tabs else line.split()
        if of_conllu and not fields[0].isdigit():
            diagnostics.counts["lines of CoNLL-U that are no word"] += 1  # parts of one, or left out of the sentence
            continue
        yield number, fields


def _column(spec: ColumnSpec) -> int | None:
    """Return the number of a column that a flag names; None where none does."""
    if spec.requested is None:
        return None
    if not spec.requested.isdigit() or int(spec.requested) < 1:
        message = f"{spec.flag} {spec.requested!r}: in a file with a word a line, columns have numbers"
        raise UsageError(message, f"count them from 1, as in {spec.flag} 2")
    return int(spec.requested)


# --- JSON Lines -----------------------------------------------------------------------------------------------


def _read_objects(path: Path, specs: ColumnSpecs, sentences: _Sentences) -> None:
    words_spec, tags_spec = specs
    diagnostics = sentences.diagnostics
    for row in read_rows(path, diagnostics):
        fields = row.fields if isinstance(row.fields, dict) else {}
        if not sentences.resolved and fields:
            names = _name(fields, words_spec, ()), _name(fields, tags_spec, SPANS)
            sentences.resolved = Columns(names, names) if all(names) else None
        words, answer = (fields.get(str(key)) for key in (sentences.resolved.keys if sentences.resolved else ("", "")))
        if words is None or answer is None:
            what = "a list of words with one of tags, or a text with a list of spans"
            has = ", ".join(map(repr, fields)) or "no field"
            message = f"{what} is expected ({words_spec.flag} and {tags_spec.flag} name them), but there is {has}"
            diagnostics.error(path, row.line, "columns", message)
        elif isinstance(words, str):
            _add_spans(row.line, words, answer, sentences)
        elif message := _not_strings("words", words) or _not_strings("tags", answer):
            diagnostics.error(path, row.line, "columns", message)
        else:
            sentences.add(row.line, words, answer)


def _name(fields: dict[str, Any], spec: ColumnSpec, also: Sequence[str]) -> str:
    """Return the field that a flag names, or training read, or the first of the usual ones that is there."""
    usual = [name for name in (*spec.usual, *also) if fields.get(name) is not None]
    return spec.requested or spec.trained or next(iter(sorted(usual, key=lambda name: not fields[name])), "")


def _not_strings(what: str, values: Any) -> str:
    """Return why values are no list of strings; empty if they are."""
    if not isinstance(values, list):
        return f"the {what} are a list of strings, not {type(values).__name__}"
    other = next((value for value in values if not isinstance(value, str)), "")
    return "" if other == "" else f"the {what} are strings, and {str(other)[:40]} is of type {type(other).__name__}"


def _add_spans(line: int, text: str, spans: Any, sentences: _Sentences) -> None:
    """Add a text whose spans of characters have labels, as words with tags.

    A span is widened to whole words; white space around it is left out. Both are counted.
    """
    diagnostics = sentences.diagnostics
    read = read_running(text)
    tags = [OUTSIDE] * len(read.words)
    try:
        found = sorted(_span_of(span, text) for span in _listed(spans))
        for start, end, label in found:
            inside = [i for i, (a, b) in enumerate(read.spans) if a < end and b > start]
            if not inside:
                raise ValueError(f"the span {start} to {end} ({label}) holds no word, but {text[start:end][:40]!r}")
            if other := next((tags[i] for i in inside if tags[i] != OUTSIDE), ""):
                raise ValueError(f"the spans of {other[2:]} and {label} overlap at {text[start:end][:40]!r}")
            exact = read.spans[inside[0]][0] == start and read.spans[inside[-1]][1] == end
            diagnostics.counts["spans widened to whole words"] += not exact
            for i in inside:
                tags[i] = f"{'B' if i == inside[0] else 'I'}-{label}"
    except ValueError as error:
        diagnostics.error(sentences.path, line, "label", str(error))
        return
    sentences.add(line, read.words, tags)


def _listed(spans: Any) -> list[Any]:
    if not isinstance(spans, list):
        raise ValueError(f"the spans of a text are a list, not {type(spans).__name__}")
    return spans


def _span_of(span: Any, text: str) -> tuple[int, int, str]:
    """Return start, end and label of [start, end, label], or of an object with these names."""
    if isinstance(span, dict):
        label = next((span[name] for name in ("label", "type") if name in span), None)
        span = [span.get("start"), span.get("end"), label]
    numbers = isinstance(span, list) and len(span) == 3 and all(type(x) is int for x in span[:2])
    if not numbers or not isinstance(span[2], str) or not span[2].strip():
        raise ValueError(f"a span is [start, end, label], or an object with these names, not {str(span)[:60]}")
    start, end, label = span
    if not 0 <= start < end <= len(text):
        raise ValueError(f"the span {start} to {end} ({label}) lies outside of the text's {len(text)} characters")
    start, end = _without_space(text, start, end)
    return start, end, "_".join(label.split())


def _without_space(text: str, start: int, end: int) -> Span:
    """Return a span without the white space at its ends."""
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())
