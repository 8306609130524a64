"""Running text of one's own: a .txt file, or a folder of them, in three parts.

What each part is for and how it becomes ids is said elsewhere (`splits.py`, `corpus.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from glassformer.config import DataConfig
from glassformer.data.reading import Findings, read_document
from glassformer.data.splits import Split, TextData
from glassformer.errors import DataError

ENOUGH_FILES = 10
"""From so many files on, whole files are set aside; below, the running text is cut."""
TEST_SHARE = 0.1

Documents = list[tuple[str, str]]
"""(name, text) of each."""


def load_documents(data: DataConfig, findings: Findings) -> TextData:
    """A person's own text for a language model.

    A part that has a file of its own is that file. What has none is taken from the training text: from ten
    files on, whole files drawn by seed; otherwise the end of the text, the test part last. A test part is
    taken (a tenth) only when neither validation nor test has a file: 80, 10 and 10 in a hundred as shipped.

    Raises:
        DataError: something is wrong in the files, or too little is in them.
    """
    documents = read_documents(Path(data.files.train_file or ""), findings)
    own = {
        name: read_documents(Path(path), findings)
        for name, path in (("valid", data.files.valid_file), ("test", data.files.test_file))
        if path
    }
    findings.raise_if_any()
    shares = {"valid": 0.0 if "valid" in own else data.valid_fraction, "test": 0.0 if own else TEST_SHARE}
    if data.use_test_as_validation and "test" in own and "valid" not in own:
        own["valid"], shares["valid"] = own["test"], 0.0
        findings.notes.append(
            "validation is the test part (use_test_as_validation): its scores are not held out"
        )
    rest, taken = _set_aside(documents, shares, data.split_seed, str(data.files.train_file), findings)
    valid, test = (own.get(name) or taken[name] for name in ("valid", "test"))
    for name, part in (("training", rest), ("validation", valid)):
        if sum(len(text) for _, text in part) < 2:
            raise DataError(f"{data.files.train_file}: too little text for the {name} part", "give more text")
    train_split, valid_split, test_split = (
        Split([text for _, text in part], source=f"{data.files.train_file} ({name})")
        for part, name in ((rest, "train"), (valid, "valid"), (test, "test"))
    )
    return TextData(train_split, valid_split, test_split if test else None, findings.notes, findings.hashes)


def read_documents(path: Path, findings: Findings) -> Documents:
    """The text of a file, or of every .txt in a folder and below, in the order of their names."""
    if not path.is_dir():
        text = read_document(path, findings)
        if not text and not findings.n_problems:
            findings.error(path, 0, "empty file", "the file is empty")
        return [(path.name, text)]
    files = sorted(
        (p for p in path.rglob("*.txt") if p.is_file()), key=lambda p: p.relative_to(path).as_posix()
    )
    if not files:
        findings.error(path, 0, "missing", "there is no .txt file in this folder")
    documents = []
    for file in files:
        name = file.relative_to(path).as_posix()
        text = read_document(file, findings)
        if text:
            documents.append((name, text))
        else:
            findings.counts["empty files"] += 1
    return documents


def _set_aside(
    documents: Documents, shares: dict[str, float], seed: int, source: str, findings: Findings
) -> tuple[Documents, dict[str, Documents]]:
    """(what is left to train on, the parts taken): whole files by seed, or the end of the text."""
    wanted = {name: share for name, share in shares.items() if share > 0}
    taken: dict[str, Documents] = {name: [] for name in shares}
    if not wanted:
        return documents, taken
    if len(documents) >= ENOUGH_FILES:
        order = np.random.default_rng([seed, len(documents)]).permutation(len(documents))
        counts = {name: max(1, round(share * len(documents))) for name, share in wanted.items()}
        for name, count in counts.items():
            taken[name], order = [documents[i] for i in np.sort(order[:count])], order[count:]
        shown = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        findings.notes.append(f"{source}: of {len(documents):,} files, set aside: {shown} (seed {seed})")
        return [documents[i] for i in np.sort(order)], taken
    n = sum(len(text) for _, text in documents)
    end = n
    for name in ("test", "valid"):  # the test part is the very end
        if name in wanted:
            start = end - max(1, round(wanted[name] * n))
            taken[name], end = _cut(documents, max(0, start), end), max(0, start)
    shown = ", ".join(f"{name} {sum(len(t) for _, t in part):,}" for name, part in taken.items() if part)
    findings.notes.append(f"{source}: of {n:,} characters, set aside at the end: {shown}")
    return _cut(documents, 0, end), taken


def _cut(documents: Sequence[tuple[str, str]], start: int, end: int) -> Documents:
    """Characters start to end of the documents, one after the other."""
    parts, begins = [], 0
    for name, text in documents:
        part = text[max(0, start - begins) : max(0, end - begins)]
        if part:
            parts.append((name, part))
        begins += len(text)
    return parts
