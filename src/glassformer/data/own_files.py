"""A person's own files as training, validation and test texts.

A table (CSV, TSV, JSON Lines), or two parallel files, of texts with answers; or running text, a .txt or a folder
of them: a task's `Form` says which. What is guessed or set aside is announced in the notes; what is wrong is
raised with file and line. The same functions, given `Findings`, serve `check.py`, which tells everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from glassformer.config import DataConfig
from glassformer.data.columns import Roles, read_table
from glassformer.data.documents import load_documents, read_documents
from glassformer.data.forms import Form, Rows
from glassformer.data.reading import Findings, read_lines
from glassformer.data.splits import Split, TextData, random_group_split
from glassformer.errors import DataError, UsageError


@dataclass(frozen=True)
class Part:
    """Which files hold one part of the data: a table, or two parallel files."""

    table: Path | None = None
    src: Path | None = None
    tgt: Path | None = None

    def __bool__(self) -> bool:
        return any((self.table, self.src, self.tgt))


def load(form: Form, data: DataConfig) -> TextData:
    """All parts of a person's own data.

    Without a validation file a seeded share of the training data is set aside, equal texts always on the
    same side. Without a test file there is no test part, except of running text (see `documents.py`).

    Raises:
        UsageError: files are not named, or named in a form the task has no use for.
        DataError: something is wrong in them; with file and line.
    """
    findings = Findings()
    parts = data_parts(form, data)
    if form.roles is None:
        return load_documents(data, findings)
    rows = read_parts(form.roles, parts, data, findings)
    findings.raise_if_any()
    for part in rows.values():
        if not part.text:
            raise DataError(f"{part.path}: there is no example in this file")
    form.check(rows, findings)
    findings.raise_if_any()
    splits = {name: part.split() for name, part in rows.items()}
    train, valid = splits["train"], splits.get("valid")
    if valid is None:
        if data.use_test_as_validation and "test" in splits:
            valid = splits["test"]
            findings.notes.append(
                "validation is the test part (use_test_as_validation): its scores are not held out"
            )
        else:
            train, valid = set_aside(train, data, findings)
    return TextData(train, valid, splits.get("test"), findings.notes, findings.hashes)


def load_test(form: Form, data: DataConfig) -> Split:
    """The test part alone, for scoring a trained model.

    Args:
        form: what the model's task reads; its check knows the answers that the model does.
        data: names test_file, or test_src_file and test_tgt_file (or src_file and tgt_file).

    Raises:
        UsageError, DataError: as `load`; also for an answer the model does not know.
    """
    findings = Findings()
    if form.roles is None:
        if not data.files.test_file:
            raise UsageError("there is no text to score", "name one: --test-file book.txt")
        documents = read_documents(Path(data.files.test_file), findings)
        findings.raise_if_any()
        return Split([text for _, text in documents], source=str(data.files.test_file))
    part = data_parts(form, data, need_train=False)["test"]
    if not part and form.parallel:
        part = _part(None, data.files.src_file, data.files.tgt_file, "")
    if not part:
        files = "--test-file, or --src-file and --ref-file" if form.parallel else "--test-file"
        raise UsageError("there is nothing to score", f"name the files: {files}")
    rows = read_part(part, asked_for(form.roles, data), findings)
    findings.raise_if_any()
    form.check({"test": rows}, findings)
    findings.raise_if_any()
    if not rows.text:
        raise DataError(f"{rows.path}: there is no example")
    return rows.split()


def data_parts(form: Form, data: DataConfig, need_train: bool = True) -> dict[str, Part]:
    """The files of the parts "train", "valid" and "test", as the flags name them."""
    parts = {
        "train": _part(data.files.train_file, data.files.src_file, data.files.tgt_file, ""),
        "valid": _part(data.files.valid_file, data.files.valid_src_file, data.files.valid_tgt_file, "valid-"),
        "test": _part(data.files.test_file, data.files.test_src_file, data.files.test_tgt_file, "test-"),
    }
    if need_train and not parts["train"]:
        also = ", or --src-file and --tgt-file" if form.parallel else ""
        raise UsageError(
            "no training data is named", f"give --train-file{also}, or a built-in data set as recipe"
        )
    for name, part in parts.items():
        if not form.parallel and (part.src or part.tgt):
            raise UsageError(
                f"parallel files ({name}) are for translating", f"to {form.task}, give --train-file"
            )
    return parts


def read_parts(roles: Roles, parts: dict[str, Part], data: DataConfig, findings: Findings) -> dict[str, Rows]:
    """The rows of every part that has files; columns are sought under the training part's names first."""
    rows: dict[str, Rows] = {}
    roles = asked_for(roles, data)
    for name, part in parts.items():
        if part:
            rows[name] = read_part(part, roles, findings)
            first, second = rows[name].columns
            roles = roles[0].preferring(first), roles[1].preferring(second)
    return rows


def asked_for(roles: Roles, data: DataConfig) -> Roles:
    """The two columns, with the names that flags give them."""
    text, answer = (role.asking(getattr(data.files, role.flag[2:].replace("-", "_"))) for role in roles)
    return text, answer


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
