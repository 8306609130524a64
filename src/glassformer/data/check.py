"""Everything that is wrong with data, with file and line, and what is merely worth knowing, before training.

Errors are those `own_files.load` would stop at, all of them instead of the first. Counted and no errors:
byte order marks, CRLF line ends, empty texts, duplicates, texts that training shares with the other parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from glassformer.config import DataConfig
from glassformer.data.documents import read_documents
from glassformer.data.forms import Form, Rows
from glassformer.data.own_files import data_parts, read_parts
from glassformer.data.reading import Findings, Problem
from glassformer.data.splits import Split
from glassformer.errors import UsageError


@dataclass(frozen=True)
class CheckReport:
    """What a check found.

    Args:
        errors: what must be mended, in the order it was met (the first thousand).
        n_errors: all of it.
        counts: harmless things by name, such as "train: duplicates"; none is zero.
        sizes: readable examples (running text: characters) of each part.
        notes: what loading would announce, such as which columns were guessed.
    """

    errors: list[Problem]
    n_errors: int
    counts: dict[str, int]
    sizes: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether training could start."""
        return self.n_errors == 0

    def lines(self) -> list[str]:
        """The report for people: sizes, notes, counts, then every error as file:line: what."""
        lines = [f"{part}: {size:,}" for part, size in self.sizes.items()]
        lines += self.notes
        lines += [f"{name}: {count:,}" for name, count in self.counts.items()]
        lines += [f"{problem} [{problem.kind}]" for problem in self.errors]
        if self.n_errors > len(self.errors):
            lines.append(f"… and {self.n_errors - len(self.errors):,} more")
        return [*lines, "no problems" if self.ok else f"{self.n_errors:,} to mend"]


def check_data(form: Form, data: DataConfig) -> CheckReport:
    """Read all parts of the data and report on them; raises nothing for what is wrong inside the files.

    Raises:
        UsageError: files are not named, or a column asked for is not there.
        DataError: a built-in data set cannot be loaded.
    """
    if data.dataset != "files":
        return _check_built_in(form, data)
    findings = Findings()
    if form.roles is None:
        sizes = _check_documents(data, findings)
    else:
        rows = read_parts(form.roles, data_parts(form, data), data, findings)
        sizes = {name: len(part.text) for name, part in rows.items()}
        _check_rows(form, rows, findings)
        _count_parts({name: _examples(part.split()) for name, part in rows.items()}, findings.counts)
    counts = {name: n for name, n in findings.counts.items() if n}
    return CheckReport(findings.problems, findings.n_problems, counts, sizes, findings.notes)


def _check_rows(form: Form, rows: dict[str, Rows], findings: Findings) -> None:
    """Parts with no example, and what the task finds wrong in the answers."""
    for part in rows.values():
        if not part.text and not findings.n_problems:
            findings.error(part.path, 0, "empty file", "there is no example in this file")
    train = str(rows["train"].path)
    cut_short = any(problem.kind == "quote" and problem.path == train for problem in findings.problems)
    if rows["train"].text and not cut_short:  # answers not read are not unknown
        form.check(rows, findings)


def _check_documents(data: DataConfig, findings: Findings) -> dict[str, int]:
    if not data.files.train_file:
        raise UsageError("no training data is named", "give --train-file: a .txt, or a folder of them")
    named = {"train": data.files.train_file, "valid": data.files.valid_file, "test": data.files.test_file}
    parts = {name: read_documents(Path(path), findings) for name, path in named.items() if path}
    _count_parts({name: [text for _, text in part] for name, part in parts.items()}, findings.counts)
    return {name: sum(len(text) for _, text in part) for name, part in parts.items()}


def _check_built_in(form: Form, data: DataConfig) -> CheckReport:
    """A built-in data set: it loads or it does not; the rest is counting."""
    from glassformer.data.datasets import load_text_data

    text = load_text_data(form, data)
    counts: Counter[str] = Counter()
    parts = {name: _examples(split) for name, split in text.splits().items()}
    _count_parts(parts, counts)
    sizes = {name: len(part) for name, part in parts.items()}
    return CheckReport([], 0, {name: n for name, n in counts.items() if n}, sizes, text.notes)


def _examples(split: Split) -> Sequence[Hashable]:
    return split.text if split.answer is None else list(zip(split.text, split.answer, strict=True))


def _count_parts(parts: dict[str, Sequence[Hashable]], counts: Counter[str]) -> None:
    """Empty examples, duplicates within a part, and what validation and test share with training."""
    train_texts = {_text(example) for example in parts.get("train", ())}
    for name, part in parts.items():
        counts[f"{name}: empty"] += sum(_is_empty(example) for example in part)
        counts[f"{name}: duplicates"] += len(part) - len(set(part))
        if name != "train":
            shared = sum(_text(example) in train_texts for example in part)
            counts[f"{name}: also in training"] += shared


def _text(example: Hashable) -> Hashable:
    return example[0] if isinstance(example, tuple) else example


def _is_empty(example: Hashable) -> bool:
    """Whether the text, or one side of the pair, is nothing but white space."""
    sides = example if isinstance(example, tuple) else (example,)
    return any(isinstance(side, str) and not side.strip() for side in sides)
