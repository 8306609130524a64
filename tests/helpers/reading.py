"""Tables read by `data check` and as training reads them: neither approves what the other refuses."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from glassformer.config import DataConfig
from glassformer.data.check import CheckReport, check_data
from glassformer.data.datasets.local_files import load_text_data
from glassformer.data.splits import TextData
from glassformer.errors import GlassformerError
from glassformer.tasks import TASKS


@dataclass
class Reading:
    """What the check reports, what training gets, and the error that training ends with."""

    report: CheckReport
    text: TextData | None
    error: GlassformerError | None

    @property
    def examples(self) -> list[tuple[str, str]]:
        """All examples; of texts alone each with itself."""
        assert self.text is not None, self.error
        parts = (self.text.train, self.text.valid)
        return sorted(pair for part in parts for pair in zip(part.text, part.answer or part.text, strict=True))

    @property
    def classes(self) -> set[str]:
        return {label for _, label in self.examples}

    @property
    def message(self) -> str:
        """The error that training ends with, and its hint."""
        assert self.error is not None
        return f"{self.error.message} {self.error.hint}"

    def noted(self, *words: str) -> bool:
        """Whether one note has these words; training has every note of the check."""
        assert self.text is None or set(self.report.notes) <= set(self.text.notes)
        return any(all(word in note for word in words) for note in self.report.notes)


def read(folder: Path, content: str | bytes, name: str = "a.csv", task: str = "classify", **files: str) -> Reading:
    """Write a table and read it both ways."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    config = DataConfig(valid_fraction=0.2, **{"train_file": str(path)} | files)
    kind, text, error = TASKS[task], None, None
    try:
        text = load_text_data(kind.schema, config)
        kind.classes_of(text.train)
    except GlassformerError as found:
        text, error = None, found
    try:
        report = check_data(kind.schema, config)
    except GlassformerError as found:
        assert error is not None and found.message == error.message
        report = CheckReport([], 1, {}, {}, {}, [])
    assert report.ok == (error is None), (report.errors, error)
    return Reading(report, text, error)


def table(rows: list[tuple[str, ...]], header: tuple[str, ...] | None = None, delimiter: str = ",") -> str:
    """Rows as lines, with no quotes."""
    return "".join(delimiter.join(row) + "\n" for row in ([header] if header else []) + rows)


def written(rows: list[tuple[str, ...]], delimiter: str = ",", quoting: int = csv.QUOTE_MINIMAL) -> str:
    """Rows as the text of a CSV or TSV, quoted where needed."""
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter, lineterminator="\n", quoting=quoting).writerows(rows)
    return file.getvalue()


def reviews(*labels: str, n: int = 24) -> list[tuple[str, str]]:
    """Made texts, each another, with these labels in turn."""
    return [(f"the shoe {i} was superb and bright", labels[i % len(labels)]) for i in range(n)]
