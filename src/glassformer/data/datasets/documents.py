"""Plain text of one's own, a .txt file or a folder of them: running text in three parts, or a text a line."""

from __future__ import annotations

import itertools
import os
import re
from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from glassformer.config import DataConfig
from glassformer.data.diagnostics import Diagnostics, numbered_lines, read_document
from glassformer.data.sources import suffix_of
from glassformer.data.splits import Split
from glassformer.errors import DataError
from glassformer.utils.formatting import counted

ENOUGH_FILES = 10
"""From so many files on, whole files are set aside; below, the running text is cut."""
TEST_SHARE = 0.1
N_NAMED = 3
"""Files that are not read and are named."""

SNIFFED_CHARS, SNIFFED_LINES = 1 << 16, 100
"""What is looked at of a text, the first of a folder, to say whether it is JSON or has markup."""

_MARKUP = re.compile(r"<[A-Za-z/!?][^<>]*>")


def read_documents(path: Path, diagnostics: Diagnostics) -> list[str]:
    """Read the text of a file, or of every .txt in a folder and its subfolders, in the order of their names."""
    if path.is_file() and suffix_of(path) != ".txt":
        what = f"running text is in .txt files, not {suffix_of(path) or 'without a suffix'}; save the text as one"
        diagnostics.error(path, 0, "format", what)
        return [""]
    files = _files_in(path, diagnostics) if path.is_dir() else [path]
    texts = [read_document(file, diagnostics) for file in files]
    for file, text in [*zip(files, texts, strict=True)][:1]:
        note_markup(file, text[:SNIFFED_CHARS].split("\n"), diagnostics)
    if path.is_dir():
        diagnostics.counts["empty files"] += texts.count("")
        return [*filter(None, texts)]
    if not texts[0] and not diagnostics.n_issues:
        diagnostics.error(path, 0, "empty file", "the file is empty")
    return texts


def read_texts(path: Path, diagnostics: Diagnostics) -> Split:
    """Read independent texts, one per line, from a .txt or every .txt in a folder; blank lines are skipped."""
    texts, lines, files = list[str](), array("q"), _files_in(path, diagnostics) if path.is_dir() else [path]
    for file in files:
        for number, line in numbered_lines(file, diagnostics):
            if line.strip():
                texts.append(line)
                lines.append(number)
            else:
                diagnostics.counts["empty lines"] += 1
    note_markup(next(iter(files), path), texts, diagnostics)
    return Split(texts, None, str(path), lines)


def _files_in(folder: Path, diagnostics: Diagnostics) -> list[Path]:
    """Return every .txt or .txt.gz in a folder and its subfolders, in the order of their names; note what is not.

    That is a file of another name, a link that leads to a folder or nowhere, or a folder that cannot be read.
    """
    texts, others = list[Path](), list[str]()
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
        if path.is_file() and suffix_of(path) == ".txt":
            texts.append(path)
        elif not path.is_dir() or path.is_symlink() or not os.access(path, os.R_OK | os.X_OK):
            others.append(path.relative_to(folder).as_posix())
    shown = ", ".join(others[:N_NAMED]) + ", …" * (len(others) > N_NAMED)
    not_read = f"{counted(len(others), 'other files')} not read ({shown})" if others else ""
    if not texts:
        also = f"; {not_read}" if others else ""
        diagnostics.error(folder, 0, "missing", f"there is no .txt file in this folder{also}")
    elif others:
        diagnostics.counts["other files not read"] += len(others)
        diagnostics.notes.append(f"{folder}: {not_read}")
    return texts


def note_markup(path: Path, lines: Sequence[str], diagnostics: Diagnostics) -> None:
    """Note a text whose first lines are JSON objects or hold markup, which a model would learn to write."""
    lines = [line for line in lines[:SNIFFED_LINES] if line.strip()]
    of_json = len(lines) > 2 and all(line.strip()[0] + line.strip()[-1] == "{}" for line in lines[:3])
    if of_json or 2 * sum(_MARKUP.search(line) is not None for line in lines) > len(lines) > 2:
        what = "its lines are JSON objects" if of_json else "most of its lines hold markup"
        advice = "to read a column of a table, name it .csv, .tsv or .jsonl"
        diagnostics.notes.append(f"{path}: {what}, read as they are written; {advice}")


def cut_running_text(train: Split, data: DataConfig, has_test: bool, diagnostics: Diagnostics) -> dict[str, Split]:
    """Split off a share for validation, without a test part also TEST_SHARE for that, and the rest for training.

    Of at least ten documents whole ones are chosen by seed; else the end of the text is taken, test last.

    Raises:
        DataError: too little text is in a part.
    """
    documents, source = train.text, train.source
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
