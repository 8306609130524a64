"""Plain text of one's own, a .txt file or a folder of them: running text in three parts, or a text a line."""

from __future__ import annotations

import itertools
import re
from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from glassformer.config import DataConfig
from glassformer.data.datasets.columns import LABEL, SOURCE, TARGET, TEXT, Rows, plain
from glassformer.data.diagnostics import Diagnostics, numbered_lines, read_document
from glassformer.data.sources import (
    TABLES,
    format_of,
    is_json_object,
    is_pipe,
    not_read,
    other_format,
    read_folder,
    suffix_of,
    unreadable,
)
from glassformer.data.splits import Split
from glassformer.errors import DataError
from glassformer.utils.formatting import glassformer_command

ENOUGH_FILES = 10
"""From so many files on, whole files are set aside; below, the running text is cut."""
TEST_SHARE = 0.1

SNIFFED_CHARS, SNIFFED_LINES = 1 << 16, 100
"""What is looked at of a text to say whether it is a table, or has markup."""
USUAL = frozenset(name for spec in (TEXT, LABEL, SOURCE, TARGET) for name in spec.usual)
LARGE_CHARS = 256 << 20
"""Text of so many characters had better be encoded ahead than held in memory."""

_MARKUP = re.compile(r"<[A-Za-z/!?][^<>]*>")


def read_documents(path: Path, diagnostics: Diagnostics) -> list[str]:
    """Read the text of a file, or of every .txt in a folder and its subfolders, in the order of their names."""
    if not path.is_dir() and not unreadable(path) and refuse_other_formats(path, diagnostics):
        return [""]
    files = _files_in(path, diagnostics) if path.is_dir() else [path]
    texts = [read_document(file, diagnostics) for file in files]
    heads = (text[:SNIFFED_CHARS].split("\n")[:-1] for text in texts)
    note_tables([*zip(files, heads, strict=True)], diagnostics)
    if (size := sum(map(len, texts))) > LARGE_CHARS:
        advice = f"{glassformer_command('data', 'encode', path)} --out shards, once, then --train-file shards"
        diagnostics.notes.append(f"{path}: {size:,} characters are held in memory; to train from the disk: {advice}")
    if path.is_dir():
        diagnostics.counts["empty files"] += texts.count("")
        return [*filter(None, texts)]
    if not texts[0] and not diagnostics.n_issues:
        diagnostics.error(path, 0, "empty file", "the file is empty")
    return texts


def read_texts(path: Path, diagnostics: Diagnostics) -> Rows:
    """Read independent texts, one per line, from a .txt or every .txt in a folder; blank lines are skipped."""
    texts, lines, heads = list[str](), array("q"), list[tuple[Path, list[str]]]()
    for file in _files_in(path, diagnostics) if path.is_dir() else [path]:
        before = len(texts)
        for number, line in numbered_lines(file, diagnostics):
            if line.strip():
                texts.append(line)
                lines.append(number)
            else:
                diagnostics.counts["empty lines"] += 1
        heads.append((file, texts[before : before + SNIFFED_LINES]))
    note_tables(heads, diagnostics)
    return Rows(texts, [], lines, path, (None,))


def _files_in(folder: Path, diagnostics: Diagnostics) -> list[Path]:
    """Return every .txt or .txt.gz in a folder and its subfolders, in the order of their names; note what is not."""
    found = read_folder(folder, (".txt",))
    if not found.texts:
        also = f"; {not_read(found.others)}" if found.others else ""
        diagnostics.error(folder, 0, "missing", f"there is no .txt file in this folder{also}")
    elif found.others:
        diagnostics.counts["other files not read"] += len(found.others)
        diagnostics.notes.append(f"{folder}: {not_read(found.others)}")
    return found.texts


def note_tables(heads: Sequence[tuple[Path, Sequence[str]]], diagnostics: Diagnostics) -> None:
    """Note files whose first lines are of a table or hold markup, which a model would learn to write."""
    found: dict[str, list[Path]] = {}
    for path, head in heads:
        lines = [line for line in head[:SNIFFED_LINES] if line.strip()]
        if len(lines) > 2 and (what := _looks_like(lines)):
            found.setdefault(what, []).append(path)
    for what, paths in found.items():
        also = f" (so it is in {len(paths):,} files of this folder)" if len(paths) > 1 else ""
        advice = "to read a column of a table, name it .csv, .tsv or .jsonl (running text: glassformer data encode)"
        diagnostics.counts["files of text that look like tables or markup"] += len(paths)
        diagnostics.notes.append(f"{paths[0]}: {what}, read as they are written{also}; {advice}")


def _looks_like(lines: Sequence[str]) -> str:
    """Return what lines of text look like; "" where that is text."""
    if all(is_json_object(line.encode("utf-8", "replace")) for line in lines[:3]):
        return "its lines are JSON objects"
    if 2 * sum(_MARKUP.search(line) is not None for line in lines) > len(lines):
        return "most of its lines hold markup"
    for delimiter in "\t;,":  # the header of a table has usual names of two columns, and the others as many fields
        names = [plain(cell.strip().strip('"')) for cell in lines[0].split(delimiter)]
        alike = all(line.count(delimiter) >= len(names) - 1 for line in lines[1:3])
        if len(USUAL.intersection(names)) > 1 and alike and not any(" " in name or not name for name in names):
            return "its first line is the header of a table"
    return ""


def refuse_other_formats(path: Path, diagnostics: Diagnostics) -> bool:
    """Note an error if a file is a table or of a format that is not plain text; return whether it is.

    A file is judged by its name and its first bytes, a pipe also by its first line, which may be JSON.
    """
    of_json = is_pipe(path) and format_of(path) == ".jsonl"  # running text has commas and tabs too
    name = f"a table ({suffix_of(path)})" if suffix_of(path) in TABLES or of_json else other_format(path)
    if name:
        how = "save the text as .txt, or read a field of JSON Lines with: glassformer data encode"
        diagnostics.error(path, 0, "format", f"this is {name}, and running text is expected; {how}")
    return bool(name)


def cut_running_text(
    documents: list[str], data: DataConfig, source: str, has_test: bool, diagnostics: Diagnostics
) -> dict[str, Split]:
    """Split off a share for validation, without a test part also TEST_SHARE for that, and the rest for training.

    Of at least ten documents whole ones are chosen by seed; else the end of the text is taken, test last.

    Raises:
        DataError: too little text is in a part.
    """
    shares, taken = {"valid": data.valid_fraction} | ({} if has_test else {"test": TEST_SHARE}), dict[str, list[str]]()
    if len(documents) >= ENOUGH_FILES:
        order = np.random.default_rng([data.split_seed, len(documents)]).permutation(len(documents))
        for name, share in shares.items():
            count = max(1, round(share * len(documents)))
            taken[name], order = [documents[i] for i in np.sort(order[:count])], order[count:]
        taken["train"] = [documents[i] for i in np.sort(order)]
        shown = ", ".join(f"{name} {len(taken[name]):,}" for name in shares)
        notes = f"of {len(documents):,} files, set aside: {shown} (seed {data.split_seed})"
    else:
        end = n = sum(map(len, documents))
        for name in reversed(shares):  # the test part is the very end
            start = max(0, end - max(1, round(shares[name] * n)))
            taken[name], end = _cut(documents, start, end), start
        taken["train"] = _cut(documents, 0, end)
        shown = ", ".join(f"{name} {sum(map(len, taken[name])):,}" for name in shares if taken[name])
        notes = f"of {n:,} characters, set aside at the end: {shown}"
    diagnostics.notes.append(f"{source}: {notes}")
    for name, part in (("training", "train"), ("validation", "valid")):
        if sum(map(len, taken[part])) < 2:
            raise DataError(f"{source}: too little text for the {name} part", "give more text")
    sources = {name: f"{source} ({name}, set aside)" for name in shares} | {"train": source}
    return {name: Split(texts, source=sources[name]) for name, texts in taken.items() if texts}


def _cut(documents: Sequence[str], start: int, end: int) -> list[str]:
    """Return characters `start` to `end` of the concatenated documents."""
    begins = itertools.accumulate(map(len, documents), initial=0)
    parts = (text[max(0, start - n) : max(0, end - n)] for text, n in zip(documents, begins, strict=False))
    return [*filter(None, parts)]
