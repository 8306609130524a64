"""Sentences with a tag for each word: CoNLL columns, and JSON Lines of words and tags, or of texts and spans.

A sentence is kept as its words joined by single spaces, and its tags one a line. Tags that mark spans are IOB2 (B-PER
begins a span, I-PER continues it, O is outside); other spellings are refused. The columns, or fields, that training
read are read in every file later.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassformer.data.datasets.columns import Columns, ColumnSpec, ColumnSpecs, few_values, plain, why_rejected
from glassformer.data.datasets.labels import MAX_SHOWN, is_number, normalised_label, note_spellings
from glassformer.data.datasets.tables import read_rows
from glassformer.data.diagnostics import Diagnostics, encoding_issue, is_columnar, numbered_lines, suffix_of
from glassformer.data.splits import Split
from glassformer.errors import UsageError
from glassformer.text.words import OUTSIDE, read_running

WORDS = ColumnSpec("words", "--text-column", ("tokens", "words", "text", "sentence"))
TAGS = ColumnSpec(
    "tags", "--label-column", ("tags", "ner_tags", "pos_tags", "labels", "ner", "pos", "upos"), doubt=few_values
)
SPANS = "spans"
HEADERS = {"word", "words", "token", "tokens", "form", "text"}
"""How a header calls the column of words."""
COLUMN_SUFFIXES = (".conll", ".conllu", ".iob", ".iob2", ".bio", ".bioes", ".txt", ".tsv")
"""Suffixes of files with a word a line."""
DOCUMENT_START = "-DOCSTART-"
CONLLU_COLUMNS = 1, 3
"""Columns of the form and of the part of speech in CoNLL-U."""
JUDGED_WORDS = 50
"""Words from which a last column of many values is no column of tags."""
GUIDE = 'the guide "Tag each word of a text" converts other forms'

_IOB2 = re.compile(r"O|[BI]-.+")
_OTHER_FORM = re.compile(r"(\w+=)?([BIESLUM]|[BIESLUM][-–—_:/.|<(].+|.+[-–—_:/.|(][BIESLU]\)?)", re.IGNORECASE)
"""Tags of spans in another spelling: S-PER, B_PER, b-per, PER-B, name=B-PER, or a bare B."""


@dataclass
class _Sentences:
    """Sentences that were read, each with the number of its line, or of its object."""

    path: Path
    diagnostics: Diagnostics
    texts: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    written: Counter[str] = field(default_factory=Counter)
    resolved: Columns | None = None

    def add(self, line: int, words: Sequence[str], tags: Sequence[str]) -> None:
        """Add a sentence, or report what is wrong in it."""
        parts, clean = [word.split() for word in words], [normalised_label(tag) for tag in tags]
        joined, wrong = " ".join(map("_".join, parts)), [i for i, tag in enumerate(clean) if len(tag.split()) != 1]
        issue = encoding_issue(joined)
        if len(words) != len(tags):
            issue = "label", f"{len(words)} words, but {len(tags)} tags; each word has one"
        elif wrong:
            which = f"word {wrong[0] + 1} ({words[wrong[0]][:40]!r})"
            issue = "label", f"{which} has the tag {tags[wrong[0]][:40]!r}, which is no tag"
        elif [] in parts:
            issue = "label", f"word {parts.index([]) + 1} is {words[parts.index([])]!r}: a word is not empty"
        if issue:
            self.diagnostics.error(self.path, line, *issue)
            return
        self.written.update(tags)
        self.diagnostics.counts["words with spaces, written with _"] += sum(len(part) > 1 for part in parts)
        self.texts.append(joined)
        self.answers.append("\n".join(clean))
        self.lines.append(line)

    def rows(self) -> Split:
        note_spellings(self.path, self.written, self.diagnostics)
        self._refuse_other_forms()
        if self.resolved:
            named = zip(("words", "tags"), self.resolved.keys, strict=True)
            shown = ", ".join(f"{what} are {key + 1 if isinstance(key, int) else repr(key)}" for what, key in named)
            first = f"{self.texts[0].split()[0]!r} | {self.answers[0].split()[0]!r}" if self.texts else "none"
            self.diagnostics.notes.append(f"{self.path.name}: {shown}; first example: {first}")
        return Split(self.texts, self.answers, str(self.path), self.lines, self.resolved)

    def _refuse_other_forms(self) -> None:
        """Report the first tag that is of spans and no IOB2: one in another spelling, or one that continues no span."""
        names = {*map(normalised_label, self.written)} - {OUTSIDE, OUTSIDE.lower()}
        spelled = {name for name in names if _OTHER_FORM.fullmatch(name)}
        iob2 = any(name[:2] in ("B-", "I-") for name in names)
        if not iob2 and len(spelled) <= len(names - spelled):
            return  # plain tags, as parts of speech
        for line, text, answer in zip(self.lines, self.texts, self.answers, strict=True):
            tags = answer.split("\n")
            for before, tag, word in zip([OUTSIDE, *tags], tags, text.split(), strict=False):
                begun = tag[:2] != "I-" or before[2:] == tag[2:]
                if not begun or not _IOB2.fullmatch(tag):
                    why = f"{tag!r} {'is no IOB2' if begun else 'continues no span'}, at the word {word[:40]!r}"
                    form = "write B-X at its first word, I-X at the others, O outside"
                    self.diagnostics.error(self.path, line, "label", f"{why}; {form}: {GUIDE}")
                    return


def read_tagged(path: Path, specs: ColumnSpecs, diagnostics: Diagnostics) -> Split:
    """Read sentences with tags; those with an error are reported and left out.

    In files of columns `specs` may name the numbers of those of the word and of the tag, counted from 1.

    Raises:
        UsageError: the file's name does not show its format, or fields compete.
    """
    sentences = _Sentences(path, diagnostics)
    suffix = suffix_of(path)
    if suffix == ".jsonl" or is_columnar(path):
        _read_objects(path, specs, sentences)
    elif suffix in COLUMN_SUFFIXES:
        _read_columns(path, specs, sentences)
    else:
        what = f"tagged sentences are in .conll, a word and its tag a line, or in .jsonl, not {suffix or 'nothing'!r}"
        hint = 'write a sentence as {"words": […], "tags": […]} on a line of .jsonl, or rename a file of the first kind'
        raise UsageError(f"{path}: {what}", hint)
    return sentences.rows()


# --- a word a line --------------------------------------------------------------------------------------------


def _read_columns(path: Path, specs: ColumnSpecs, sentences: _Sentences) -> None:
    """Read lines of columns, separated by tabs or blanks; an empty line, or one of DOCUMENT_START, ends a sentence."""
    of_conllu, diagnostics = path.name.lower().removesuffix(".gz").endswith(".conllu"), sentences.diagnostics
    named, usual = [*map(_column, specs)], CONLLU_COLUMNS if of_conllu else (0, -1)
    word, tag = (usual[i] if at is None else at for i, at in enumerate(named))
    width, every, sentence, begins = 0, list[list[str]](), list[list[str]](), 0
    for number, fields in [*_lines_of_words(path, of_conllu, word, tag, diagnostics), (0, [])]:
        if fields:
            begins, width = begins or number, width or max(2, word + 1, tag + 1, len(fields))
            if len(fields) != width:
                message = f"{width} columns are expected, as a word and its tag or more, but there are {len(fields)}"
                diagnostics.error(path, number, "columns", message)
            sentence.append(fields)
            continue
        if sentence and all(len(of_word) == width for of_word in sentence):
            every += sentence
            sentences.add(begins, [of_word[word] for of_word in sentence], [of_word[tag] for of_word in sentence])
        begins, sentence = 0, []
    if not every:
        return
    sentences.resolved = Columns((word, tag % width), ("", ""), width)
    words, doubt = [of_word[word] for of_word in every], few_values([of_word[tag] for of_word in every])
    counts = all(map(is_number, words)) or 2 * sum(map(str.__eq__, words, words[1:])) > len(words)
    first = "the first column counts the words, or repeats" if counts and named[0] is None else ""
    last = f"the last column is none of tags, with {doubt}" if len(every) >= JUDGED_WORDS and doubt else ""
    for what, spec in ((first, specs[0]), (last if named[1] is None else "", specs[1])):
        if what and not of_conllu:
            diagnostics.error(path, 0, "columns", f"{what}; {spec.flag} names that of the {spec.name}, as 2")


def _column(spec: ColumnSpec) -> int | None:
    """Return the position of the column that a flag or training names; None where neither does."""
    if spec.requested and (spec.position is None or spec.position < 0):
        message = f"{spec.flag} {spec.requested!r}: in a file with a word a line, columns have numbers"
        raise UsageError(message, f"count them from 1, as in {spec.flag} 2")
    return spec.place[0] if spec.place and not spec.requested else spec.position


def _lines_of_words(
    path: Path, of_conllu: bool, word: int, tag: int, diagnostics: Diagnostics
) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the columns of each line with a word; none for one that ends a sentence.

    -DOCSTART- ends one. At its start a line that begins with #, and the first other line of the file where it has a
    usual name of the words' column, are words only if another line has their tag. Others are counted and shown.
    """
    lines = [(number, line.strip()) for number, line in numbered_lines(path, diagnostics)]
    lines = [(number, "" if line.startswith(DOCUMENT_START) else line) for number, line in lines]
    first = next((i for i, (_, line) in enumerate(lines) if line and line[0] != "#"), 0)
    by_tabs = any("\t" in line for _, line in lines[first : first + 1])
    rows = [[*map(str.strip, line.split("\t"))] if by_tabs else line.split() for _, line in lines]
    tags = Counter(row[tag] for row in rows if len(row) > max(tag, 1) and row[0][:1] != "#")
    at_start, left_out = True, dict[str, bool]()
    for i, ((number, line), row) in enumerate(zip(lines, rows, strict=True)):
        heads = i == first and len(row) > word and plain(row[word]) in HEADERS
        is_row = len(row) == len(rows[first]) > max(tag, 1) and not of_conllu
        is_word = is_row and (tags[row[tag]] > heads or _IOB2.fullmatch(row[tag]))
        if not line:
            at_start = True
            yield number, []
        elif at_start and (heads or line[0] == "#") and not is_word:
            left_out[line] = is_row
            diagnostics.counts["headers and comments"] += 1
        elif of_conllu and not row[0].isdigit():
            diagnostics.counts["lines of CoNLL-U that are no word"] += 1  # parts of one, or left out of the sentence
        else:
            at_start = False
            yield number, row
    if left_out:
        shown = ", ".join(repr(line[:60]) for line in sorted(left_out, key=lambda line: not left_out[line])[:MAX_SHOWN])
        diagnostics.notes.append(f"{path.name}: headers and comments, which are no words: {shown}")


# --- JSON Lines -----------------------------------------------------------------------------------------------


def _read_objects(path: Path, specs: ColumnSpecs, sentences: _Sentences) -> None:
    """Read an object a line; where not even the first is of the form, nothing behind it is read."""
    diagnostics, keys = sentences.diagnostics, ("", "")
    for row in read_rows(path, diagnostics):
        fields = row.fields if isinstance(row.fields, dict) else {}
        if not sentences.resolved and all(keys := _names(path, fields, specs)):
            sentences.resolved = Columns(keys, keys)
        words, answer = (fields.get(key) for key in keys)
        if rejected := why_rejected(fields, keys):
            diagnostics.error(path, row.line, "label", rejected)
            continue
        try:
            other = "" if answer else next((name for name, value in fields.items() if _may_be_spans(value)), "")
            if words is None or answer is None or other:
                what = "tokens with tags, or a text with spans, are expected, but there is"
                named = f"{specs[1].flag} {other}" if other else f"{specs[0].flag} … {specs[1].flag} …"
                raise ValueError(f"{what} {', '.join(map(repr, fields)) or 'no field'}; name them ({named}); {GUIDE}")
            words, tags = _of_spans(words, answer) if isinstance(words, str) else (words, answer)
            for what, values in (("words", words), ("tags", tags)):
                wrong = [v for v in values if not isinstance(v, str)] if isinstance(values, list) else [values]
                if wrong:
                    of = f"{str(wrong[0])[:40]} is of type {type(wrong[0]).__name__}"
                    raise ValueError(f"the {what} are a list of strings, and {of}; {GUIDE}")
        except ValueError as error:
            diagnostics.error(path, row.line, "label", str(error))
            if not sentences.texts:
                return
        else:
            sentences.add(row.line, words, tags)


def _may_be_spans(value: Any) -> bool:
    """Return whether a field holds spans in some form: lists, or objects with a label."""
    return isinstance(value, list) and any(
        isinstance(each, list) or (isinstance(each, dict) and "label" in each) for each in value
    )


def _names(path: Path, fields: dict[str, Any], specs: ColumnSpecs) -> tuple[str, str]:
    """Return the fields of words and tags that flags name, or training read, or the usual ones that are there.

    Raises:
        UsageError: several may hold the tags.
    """
    words, tags = (spec.requested or spec.trained or "" for spec in specs)
    usual = [name for name in (SPANS, *TAGS.usual) if fields.get(name) and not isinstance(fields[name], str)]
    if not tags and len(usual) > 1:
        message = f"{path}: {' and '.join(map(repr, usual))} may both be the tags"
        raise UsageError(message, f"name one: {specs[1].flag} {usual[0]}")
    tags = tags or next(iter(usual), SPANS if SPANS in fields else "")
    of_text = tags == SPANS or _may_be_spans(fields.get(tags))
    there = [name for name in specs[0].usual if name in fields]
    there.sort(key=lambda name: isinstance(fields[name], str) != of_text)
    return words or next(iter(there), ""), tags


def _of_spans(text: str, spans: Any) -> tuple[list[str], list[str]]:
    """Return the words and tags of a text whose spans have labels; raise ValueError for what is no span of words."""
    read, tags = read_running(text), list[str]()
    begins, ends = ({span[side]: i for i, span in enumerate(read.spans)} for side in (0, 1))
    tags = [OUTSIDE] * len(read.words)
    for span in spans if isinstance(spans, list) else [spans]:
        start, end, label = (span.get(key) if isinstance(span, dict) else None for key in ("start", "end", "label"))
        if type(start) is not int or type(end) is not int or not isinstance(label, str) or not label.strip():
            form = '{"start": 0, "end": 4, "label": "PER"}'
            raise ValueError(f"a span is {form}, not {str(span)[:60]}; {GUIDE}")
        named = f"the span {start} to {end} ({label})"
        if not 0 <= start < end <= len(text):
            raise ValueError(f"{named} lies outside of the text's {len(text)} characters")
        if span.get("text", text[start:end]) != text[start:end]:
            where = "count characters from 0, not bytes, words or UTF-16, to before the end"
            raise ValueError(f"{named} is {text[start:end][:40]!r}, and its text is {span['text'][:40]!r}; {where}")
        if start not in begins or end not in ends:
            raise ValueError(f"{named} begins or ends within a word, or at a space: {text[start:end][:40]!r}")
        inside = range(begins[start], ends[end] + 1)
        if other := next((tags[i] for i in inside if tags[i] != OUTSIDE), ""):
            raise ValueError(f"the spans of {other[2:]} and {label} overlap at {text[start:end][:40]!r}")
        for i in inside:
            tags[i] = f"{'B' if i == inside[0] else 'I'}-{'_'.join(label.split())}"
    return read.words, tags
