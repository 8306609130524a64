"""A person's own files as training, validation and test texts.

CSV, TSV or JSON Lines to classify; parallel files or a table of pairs to translate; a .txt or a folder of
them for a language model. What is guessed or set aside is announced in the notes; what is wrong is raised
with file and line. The same functions, given `Findings`, serve `check.py`, which tells everything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from glassformer.config import DataConfig, TaskName
from glassformer.data.columns import LABEL, SOURCE, TARGET, TEXT, Roles, read_table
from glassformer.data.documents import load_documents, read_documents
from glassformer.data.reading import Findings, read_lines
from glassformer.data.splits import Split, TextData, random_group_split
from glassformer.errors import DataError, UsageError

WHOLE_NUMBER = re.compile(r"-?\d{1,18}")
"""A label that is sorted as a number: "--5" is a name, and so is a number too long to be meant as one."""


@dataclass(frozen=True)
class Part:
    """Which files hold one part of the data: a table, or two parallel files."""

    table: Path | None = None
    src: Path | None = None
    tgt: Path | None = None

    def __bool__(self) -> bool:
        return any((self.table, self.src, self.tgt))


@dataclass(frozen=True)
class Rows:
    """Texts with what belongs to each, as read: target sentences, or labels as strings."""

    text: list[str]
    other: list[str]
    lines: Sequence[int]
    path: Path
    columns: tuple[str | None, str | None] = (None, None)


def load(task: TaskName, data: DataConfig) -> TextData:
    """All parts of a person's own data.

    Without a validation file a seeded share of the training data is set aside, equal texts always on the
    same side. Without a test file there is no test part, except for a language model (see `documents.py`).

    Raises:
        UsageError: files are not named, or named in a form the task has no use for.
        DataError: something is wrong in them; with file and line.
    """
    findings = Findings()
    parts = data_parts(task, data)
    if task == "lm":
        return load_documents(data, findings)
    rows = read_parts(task, parts, data, findings)
    findings.raise_if_any()
    for part in rows.values():
        if not part.text:
            raise DataError(f"{part.path}: there is no example in this file")
    label_names = names_of(rows["train"]) if task == "classify" else None
    splits = {name: as_split(task, r, label_names, findings) for name, r in rows.items()}
    findings.raise_if_any()
    train, valid = splits["train"], splits.get("valid")
    if valid is None:
        if data.use_test_as_validation and "test" in splits:
            valid = splits["test"]
            findings.notes.append(
                "validation is the test part (use_test_as_validation): its scores are not held out"
            )
        else:
            train, valid = set_aside(train, data, findings)
    train = limit_training(train, data, findings)
    return TextData(train, valid, splits.get("test"), label_names, findings.notes, findings.hashes)


def load_test(task: TaskName, data: DataConfig, label_names: Sequence[str] | None = None) -> Split:
    """The test part alone, for scoring a trained model.

    Args:
        task: what the model does.
        data: names test_file, or test_src_file and test_tgt_file (or src_file and tgt_file).
        label_names: the classes the model knows, in its order.

    Raises:
        UsageError, DataError: as `load`; also for a label the model does not know.
    """
    findings = Findings()
    if task == "lm":
        if not data.test_file:
            raise UsageError("there is no text to score", "name one: --test-file book.txt")
        documents = read_documents(Path(data.test_file), findings)
        findings.raise_if_any()
        return Split([text for _, text in documents], source=str(data.test_file))
    part = data_parts(task, data, need_train=False)["test"]
    if not part and task == "translate":
        part = _part(None, data.src_file, data.tgt_file, "")
    if not part:
        files = "--test-file" if task == "classify" else "--test-file, or --src-file and --ref-file"
        raise UsageError("there is nothing to score", f"name the files: {files}")
    rows = read_part(part, roles_of(task, data), findings)
    findings.raise_if_any()
    split = as_split(task, rows, list(label_names or []), findings)
    findings.raise_if_any()
    if not len(split):
        raise DataError(f"{rows.path}: there is no example")
    return split


def data_parts(task: TaskName, data: DataConfig, need_train: bool = True) -> dict[str, Part]:
    """The files of the parts "train", "valid" and "test", as the flags name them."""
    parts = {
        "train": _part(data.train_file, data.src_file, data.tgt_file, ""),
        "valid": _part(data.valid_file, data.valid_src_file, data.valid_tgt_file, "valid-"),
        "test": _part(data.test_file, data.test_src_file, data.test_tgt_file, "test-"),
    }
    if need_train and not parts["train"]:
        also = ", or --src-file and --tgt-file" if task == "translate" else ""
        raise UsageError(
            "no training data is named", f"give --train-file{also}, or a built-in data set as recipe"
        )
    for name, part in parts.items():
        if task != "translate" and (part.src or part.tgt):
            raise UsageError(f"parallel files ({name}) are for translating", f"to {task}, give --train-file")
    return parts


def read_parts(
    task: TaskName, parts: dict[str, Part], data: DataConfig, findings: Findings
) -> dict[str, Rows]:
    """The rows of every part that has files; columns are sought under the training part's names first."""
    rows: dict[str, Rows] = {}
    roles = roles_of(task, data)
    for name, part in parts.items():
        if part:
            rows[name] = read_part(part, roles, findings)
            first, second = rows[name].columns
            roles = roles[0].preferring(first), roles[1].preferring(second)
    return rows


def roles_of(task: TaskName, data: DataConfig) -> Roles:
    """What the two columns of a table are for, and the names flags give them."""
    if task == "classify":
        return TEXT.asking(data.text_column), LABEL.asking(data.label_column)
    return SOURCE.asking(data.src_column), TARGET.asking(data.tgt_column)


def read_part(part: Part, roles: Roles, findings: Findings) -> Rows:
    """The rows of one part. Problems go to `findings`, and the rows they are in are left out."""
    if part.src and part.tgt:
        src, tgt = read_lines(part.src, findings), read_lines(part.tgt, findings)
        n = min(len(src), len(tgt))
        if len(src) != len(tgt) and n:
            message = (
                f"{len(src):,} lines, but {part.tgt} has {len(tgt):,}; parallel files pair them line by line"
            )
            findings.error(part.src, n + 1, "line counts", message)
        return Rows(src[:n], tgt[:n], range(1, n + 1), part.src)
    if part.table is None:
        raise UsageError("a table, or two parallel files, must be named")
    table = read_table(part.table, roles, findings)
    if roles[1].is_label:
        table.second = [label.strip() for label in table.second]
        for line, label in zip(table.lines, table.second, strict=True):
            if not label:
                findings.error(part.table, line, "label", "the label is empty")
    return Rows(table.first, table.second, table.lines, part.table, table.names)


def names_of(rows: Rows) -> list[str]:
    """The classes, sorted; as numbers if all of them are.

    Raises:
        DataError: fewer than two, or so many that the column can hardly be one of labels.
    """
    names = sorted(set(rows.other))
    if all(WHOLE_NUMBER.fullmatch(name) for name in names):
        names.sort(key=int)
    hint = "choose the column with --label-column"
    if len(names) < 2:
        raise DataError(f"{rows.path}: two or more labels are needed, found {names}", hint)
    if len(names) > 20 and len(names) > len(rows.text) / 2:
        shown = f"{len(names):,} different labels in {len(rows.text):,} rows"
        raise DataError(f"{rows.path}: {shown}: this can hardly be the column of labels", hint)
    return names


def as_split(task: TaskName, rows: Rows, label_names: list[str] | None, findings: Findings) -> Split:
    """Rows as a split; a label that is not among `label_names` is noted as an error."""
    source = str(rows.path)
    if task != "classify":
        return Split(rows.text, target=rows.other, source=source)
    number = {name: i for i, name in enumerate(label_names or [])}
    for line, label in zip(rows.lines, rows.other, strict=True):
        if label and label not in number:
            known = ", ".join(list(number)[:10]) + (", …" if len(number) > 10 else "")
            findings.error(
                rows.path, line, "label", f"label {label!r} is not one of the training data's ({known})"
            )
    return Split(rows.text, labels=[number.get(label, -1) for label in rows.other], source=source)


def set_aside(train: Split, data: DataConfig, findings: Findings) -> tuple[Split, Split]:
    """A seeded share for validation; equal texts stay together, so that none is trained and validated on."""
    if len(set(train.text)) < 2:
        raise DataError(
            f"{train.source}: {len(train)} examples with 1 different text leave nothing to validate on",
            "give more data, or validation data of its own (--valid-file)",
        )
    rest, held_out = random_group_split(train.text, data.valid_fraction, data.split_seed)
    findings.notes.append(
        f"validation: {len(held_out):,} of {len(train):,} examples of {train.source} set aside "
        f"(seed {data.split_seed})"
    )
    return train.take(rest), train.take(held_out, f"{train.source} (set aside)")


def limit_training(train: Split, data: DataConfig, findings: Findings) -> Split:
    """At most `limit` examples, drawn by seed: files are often sorted by label."""
    if data.limit is None or data.limit >= len(train):
        return train
    if data.limit < 1:
        raise UsageError(f"limit must be at least 1, not {data.limit}", "leave it out to use everything")
    order = np.random.default_rng([data.split_seed, len(train)]).permutation(len(train))
    findings.notes.append(
        f"only {data.limit:,} of {len(train):,} training examples are used, drawn by seed (limit)"
    )
    return train.take(np.sort(order[: data.limit]))


def _part(table: str | None, src: str | None, tgt: str | None, prefix: str) -> Part:
    if table and (src or tgt):
        raise UsageError(
            f"both a table ({table}) and parallel files ({src or tgt}) are named", "give one of them"
        )
    if bool(src) != bool(tgt):
        given, other = ("src", "tgt") if src else ("tgt", "src")
        raise UsageError(
            f"--{prefix}{given}-file is named without --{prefix}{other}-file", "parallel files go in pairs"
        )
    return Part(*(Path(name) if name else None for name in (table, src, tgt)))
