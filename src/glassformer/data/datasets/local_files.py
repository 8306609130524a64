"""Texts of a data set by its name, or from a person's own files for training, validation and test.

Each data set is read in a file of its own; nothing here knows a format.

A table (CSV, TSV, JSON Lines), or two parallel files, of texts with answers; texts alone, also one a line; or running
text, a .txt or a folder of them: a task's `DataSchema` says which. What is decided or set aside is announced in the
notes; what is wrong is raised with file and line; running text is set aside in parts. The same functions, given
`Diagnostics`, serve `check.py`, which reports everything.
"""

from __future__ import annotations

import itertools
import os
import re
from array import array
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

import numpy as np

from glassformer.config import DataConfig, FilesConfig
from glassformer.data.datasets.columns import (
    Columns,
    ColumnSpecs,
    DataSchema,
    as_trained,
    may_be_pairs,
    read_table,
    with_second,
)
from glassformer.data.datasets.labels import count_missing, rarest_labels, visible
from glassformer.data.diagnostics import Diagnostics, numbered_lines, read_document, suffix_of
from glassformer.data.splits import Split, TextData, group_split, limited
from glassformer.errors import DataError, UsageError
from glassformer.utils.formatting import counted

HOLDS = {None: "running text", "": "texts alone", "label": "texts with labels", "target": "pairs of sentences"}
"""What texts come with in a data set, by `DataSchema.target`."""
BUILT_IN = {
    "imdb": ("imdb", "load", "label"),
    "imdb-texts": ("imdb", "load_texts", ""),
    "multi30k": ("multi30k", "load", "target"),
    "dates": ("dates", "load", "target"),
    "shakespeare": ("shakespeare", "load", None),
}
"""The file beside this one that reads a data set, its function, and what the texts come with."""


def load_text_data(schema: DataSchema, data: DataConfig, known: Columns | None = None) -> TextData:
    """Load the texts of `data.dataset` for a task; `known` are the columns that a run was trained on.

    Of own files without one for validation, a seeded share of the training data is held out, with equal texts always on
    the same side. Without a test file there is no test split, except of running text (see `cut_running_text`).

    Raises:
        UsageError: the data set does not exist, or holds something else than the task reads; or files are not named, or
            named in a form the task has no use for.
        DataError: its files are missing, malformed or misaligned; with file and line.
    """
    if data.dataset != "files" and data.dataset not in BUILT_IN:
        raise UsageError(f'data set "{data.dataset}" does not exist', f"choose from files, {', '.join(BUILT_IN)}")
    module, function, held = BUILT_IN.get(data.dataset, ("", "", schema.target))
    if held != schema.target and (schema.target != "" or held == "target"):  # labels and borders may be ignored
        wanted = HOLDS.get(schema.target, f"texts with {schema.target}s")
        what = f'data set "{data.dataset}" holds {HOLDS[held]}, and {schema.task} needs {wanted}'
        raise UsageError(what, hint=f"start from a recipe for {schema.task}")
    if data.limit is not None and schema.columns is None:
        raise UsageError("limit counts examples, and a running text has none", "use --steps instead")
    if data.dataset != "files":
        text = getattr(import_module(f"glassformer.data.datasets.{module}"), function)(data)
        return limited(text, data.limit, data.split_seed)
    diagnostics = Diagnostics()
    splits = read_parts(schema, data_parts(schema, data), data, diagnostics, known)
    diagnostics.raise_if_any()
    return with_validation(schema, splits, data, diagnostics)


def with_validation(
    schema: DataSchema, parts: dict[str, Split], data: DataConfig, diagnostics: Diagnostics
) -> TextData:
    """Return parts that were read without an error, and one to validate on, as a training uses them."""
    splits, columns = {**parts}, parts["train"].columns
    if "valid" not in splits and data.use_test_as_validation and "test" in splits:
        splits["valid"] = splits["test"]
    elif "valid" not in splits and schema.columns is None:
        splits |= cut_running_text(splits["train"], data, "test" in splits, diagnostics)
    elif "valid" not in splits:
        splits |= _set_aside(schema, splits["train"], data, diagnostics)
    if schema.target and not schema.parallel:
        diagnostics.counts["empty texts"] += sum(not text.strip() for text in splits["train"].text)
    read = {"notes": [*dict.fromkeys(diagnostics.notes)], "counts": dict(+diagnostics.counts)}
    read |= {"hashes": diagnostics.hashes, "columns": asdict(columns) if columns else {}}
    return limited(TextData(splits["train"], splits["valid"], splits.get("test"), **read), data.limit, data.split_seed)


Part: TypeAlias = Path | tuple[Path, Path] | None
"""Which files hold one part of the data: a table (or running text), or two parallel files; None where there are
none."""


def load_test(
    schema: DataSchema, data: DataConfig, known: Columns | None = None, diagnostics: Diagnostics | None = None
) -> Split:
    """Load the test split alone, for scoring a trained model.

    `data` names test_file, or test_src_file and test_tgt_file.

    Raises:
        UsageError, DataError: as `load_text_data`; also for an answer the model does not know.
    """
    diagnostics = diagnostics or Diagnostics()
    if (part := data_parts(schema, data, need_train=False)["test"]) is None:
        hint = "name the files: --test-file, or of translations --test-src-file and --test-tgt-file"
        raise UsageError("there is nothing to score", hint)
    split = read_parts(schema, {"test": part}, data, diagnostics, known)["test"]
    diagnostics.raise_if_any()
    return split


def data_parts(schema: DataSchema, data: DataConfig, need_train: bool = True) -> dict[str, Part]:
    """Return the files of "train", "valid" and "test", as the flags name them."""
    parts = {name: _part(data, name) for name in ("train", "valid", "test")}
    if need_train and not parts["train"]:
        hint = "give --train-file, for translating --src-file and --tgt-file, or a built-in data set as recipe"
        raise UsageError("no training data is named", hint)
    for name, part in parts.items():
        if not schema.parallel and isinstance(part, tuple):
            hint = f"to {schema.task}, give --train-file"
            raise UsageError(f"parallel files ({name}) are for translating", hint)
    return parts


def read_parts(
    schema: DataSchema, parts: dict[str, Part], data: DataConfig, diagnostics: Diagnostics, known: Columns | None = None
) -> dict[str, Split]:
    """Read every split that has files; columns are first looked for where those of training are.

    Problems go to `diagnostics`, including those that the task finds in the targets; rows with others are dropped.
    """
    splits = dict[str, Split]()
    files, specs = data, schema.columns or ()
    diagnostics.form = files
    if may_be_pairs(specs) and (files.pair_column is not None or (known is not None and len(known.headers) > 2)):
        specs = with_second(specs)
    named, parted = {spec: getattr(files, spec.flag[2:].replace("-", "_")) for spec in specs}, files.label_separator
    specs = tuple(replace(spec, requested=named[spec], separator=spec.separator and parted) for spec in specs)
    for name, part in parts.items():
        if part:
            splits[name] = _read_part(schema, part, as_trained(specs, known), diagnostics)
            known = known or splits[name].columns
            if not splits[name].text and not diagnostics.n_issues:
                diagnostics.error(Path(splits[name].source), 0, "empty file", "there is no example in this file")
    train = splits.get("train")
    if train is None or (train.text and Path(train.source) not in diagnostics.cut):  # answers not read are not unknown
        schema.check(splits, diagnostics)
    return splits


def _read_part(
    schema: DataSchema, part: Path | tuple[Path, Path], specs: ColumnSpecs, diagnostics: Diagnostics
) -> Split:
    if isinstance(part, Path):
        if not specs:
            texts = read_documents(part, diagnostics)
            return Split(texts, None, str(part), range(1, len(texts) + 1))
        if schema.read is not None:
            return schema.read(part, specs, diagnostics)
        if len(specs) == 1 and (part.is_dir() or suffix_of(part) == ".txt"):
            return read_texts(part, diagnostics)
        return read_table(part, specs, diagnostics)
    src, tgt = ([visible(line) for _, line in numbered_lines(path, diagnostics)] for path in part)
    for path, lines in zip(part, (src, tgt), strict=True):
        note_markup(path, lines, diagnostics)
    count_missing(part[0], src + tgt, diagnostics)
    n = min(len(src), len(tgt))
    if len(src) != len(tgt) and diagnostics.cut.isdisjoint(part):
        what = f"{len(src):,} lines, but {part[1]} has {len(tgt):,}; parallel files pair them line by line"
        diagnostics.error(part[0], 0, "line counts", what)
    return Split(src[:n], tgt[:n], str(part[0]), range(1, n + 1))


def _set_aside(schema: DataSchema, train: Split, data: DataConfig, diagnostics: Diagnostics) -> dict[str, Split]:
    """Hold out a seeded share for validation; equal texts stay together, so that none is in both splits.

    Each label gives its share, and every label keeps a training example.
    """
    labels = rarest_labels(train.answers) if schema.has_names else None
    try:
        rest, held_out = group_split(train.text, labels, data.valid_fraction, data.split_seed)
    except DataError:
        n = len({*train.text})
        what = f"{train.source}: {counted(len(train), 'examples')} with {counted(n, 'different texts')}"
        why = ", since each holds the last example of a label" if labels and n > 1 else ""
        raise DataError(
            f"{what} leave nothing to validate on{why}", "give more data, or validation data of its own (--valid-file)"
        ) from None
    share = f"{len(held_out):,} of {len(train):,} examples of {train.source}"
    diagnostics.notes.append(f"validation: {share} set aside (seed {data.split_seed})")
    return {"train": train.take(rest), "valid": train.take(held_out, f"{train.source} (set aside)")}


def _part(files: FilesConfig, name: str) -> Part:
    prefix = "" if name == "train" else f"{name}_"
    keys = (f"{name}_file", f"{prefix}src_file", f"{prefix}tgt_file")
    table, src, tgt = (Path(path) if (path := getattr(files, key)) else None for key in keys)
    if table and (src or tgt):
        what = f"both a table ({table}) and parallel files ({src or tgt}) are named"
        raise UsageError(what, "give one of them")
    if bool(src) != bool(tgt):
        present, missing = sorted(keys[1:], key=lambda key: not getattr(files, key))
        message = f"--{present} is named without --{missing}".replace("_", "-")
        raise UsageError(message, "parallel files go in pairs")
    return (src, tgt) if src and tgt else table


# --- plain text -----------------------------------------------------------------------------------------------------


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
