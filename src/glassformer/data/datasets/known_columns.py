"""The columns that a run was trained on, found again in another table: by header, by position, or by known labels.

A guess may choose another column of the same table, whose score says nothing of the model. So what was chosen for the
training part is kept with the run, and tried first in every other part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from glassformer.data.datasets.columns import ColumnSpec, ColumnSpecs, ResolvedColumns, Rows, json_names, only_column
from glassformer.data.datasets.headers import plain
from glassformer.data.datasets.labels import labels_of, normalised_label
from glassformer.data.datasets.numbers import is_number
from glassformer.data.datasets.tables import Row
from glassformer.data.diagnostics import Diagnostics
from glassformer.errors import UsageError

KNOWN_SHARE = 0.5
"""Share of known labels from which a column is that of the labels."""


@dataclass(frozen=True)
class KnownColumns:
    """The columns of a run's training table.

    Args:
        columns: which they are.
        labels: the classes, if one of them holds labels.
    """

    columns: ResolvedColumns
    labels: frozenset[str] = field(default_factory=frozenset)

    @staticmethod
    def of_rows(rows: Rows, specs: ColumnSpecs) -> KnownColumns | None:
        """Return the columns of a part that was read; None if it was no table."""
        of_label = bool(specs) and specs[-1].is_label
        labels = frozenset(label for answer in rows.answer for label in labels_of(answer)) if of_label else frozenset()
        return None if rows.resolved is None else KnownColumns(rows.resolved, labels)

    @staticmethod
    def from_json(value: Any, labels: Sequence[str] | None) -> KnownColumns | None:
        """Read what `to_json` returned; None for anything else."""
        if not isinstance(value, Mapping):
            return None
        keys, headers = value.get("keys"), value.get("headers")
        n_fields, has_header = value.get("n_fields"), value.get("has_header")
        if not (isinstance(keys, list) and isinstance(headers, list) and len(keys) == len(headers) > 0):
            return None
        if not (isinstance(n_fields, int) and isinstance(has_header, bool)):
            return None
        if not all(header is None or isinstance(header, str) for header in headers):
            return None
        by_name = all(isinstance(key, str) for key in keys)
        by_position = all(isinstance(key, int) and 0 <= key < n_fields for key in keys)
        if not (by_name or by_position):
            return None
        known = frozenset(label for label in labels or () if isinstance(label, str))
        return KnownColumns(ResolvedColumns(tuple(keys), tuple(headers), n_fields, has_header), known)

    def to_json(self) -> dict[str, Any]:
        """Return the columns as JSON data; the labels are kept elsewhere."""
        c = self.columns
        return {"keys": list(c.keys), "headers": list(c.headers), "n_fields": c.n_fields, "has_header": c.has_header}

    @property
    def places(self) -> list[tuple[int, int]]:
        """Return the position of each column, with the fields of its rows; none of a table with a header."""
        keys = [] if self.columns.has_header else [key for key in self.columns.keys if isinstance(key, int)]
        return [(key, self.columns.n_fields) for key in keys]

    def preferred(self, specs: ColumnSpecs) -> ColumnSpecs:
        """Return columns whose headers of training are tried before the usual ones."""
        if len(specs) != len(self.columns.headers):
            return specs
        return tuple(spec.preferring(name) for spec, name in zip(specs, self.columns.headers, strict=True))

    def resolve(
        self, path: Path, sample: Sequence[Row], specs: ColumnSpecs, diagnostics: Diagnostics
    ) -> ResolvedColumns | None:
        """Find the columns in another table, with a note on how; None, with a note, to guess them again.

        Columns that were asked for with a flag are not looked for here.
        """
        if any(spec.requested for spec in specs) or len(specs) != len(self.columns.headers):
            return None
        first = sample[0].fields
        if isinstance(first, dict):
            return self._by_name(path, json_names(list(sample)), specs, diagnostics, in_json=True)
        body = [row.fields for row in sample if isinstance(row.fields, list) and len(row.fields) == len(first)]
        if found := self._by_name(path, first, specs, diagnostics, in_json=False):
            return found
        if len(specs) > 2 and not self.columns.has_header and len(first) == self.columns.n_fields:
            diagnostics.notes.append(f"{path.name}: there is no header line; columns as in training")
            return self.columns
        if len(specs) > 2:
            raise self._missing(path)
        if (found := self._by_position(body, specs)) is None:
            self._note_guess(path, specs, diagnostics)
            return None
        shown = " and ".join(f"{s.name} is number {int(k) + 1}" for s, k in zip(specs, found.keys, strict=True))
        how = "its first line is taken for a header" if found.has_header else "there is no header line"
        why = "as in training" if found.keys == self.columns.keys else "found by the labels of training"
        diagnostics.notes.append(f"{path.name}: {how}; {shown}, {why}")
        return found

    def _by_name(
        self, path: Path, names: Sequence[str], specs: ColumnSpecs, diagnostics: Diagnostics, in_json: bool
    ) -> ResolvedColumns | None:
        """Return the columns with the headers of training, if the table has them all."""
        places = [_place(path, header, names) for header in self.columns.headers]
        found = [place for place in places if place is not None]
        if len(found) < len(places) or len(set(found)) < len(found):
            if in_json and len(specs) > 2:
                raise self._missing(path)
            if in_json:
                self._note_guess(path, specs, diagnostics)
            return None
        headers = tuple(names[place] for place in found)
        shown = ", ".join(f"{spec.name} is column {name!r}" for spec, name in zip(specs, headers, strict=True))
        diagnostics.notes.append(f"{path.name}: {shown}, as in training")
        if in_json:
            return ResolvedColumns(headers, headers)
        return ResolvedColumns(tuple(found), headers, len(names), has_header=True)

    def _by_position(self, rows: list[list[str]], specs: ColumnSpecs) -> ResolvedColumns | None:
        """Return columns of a table without the headers of training: those at its positions, or of known labels."""
        first, n = rows[0], len(rows[0])
        keys = self.columns.keys
        same = n == self.columns.n_fields and not any(isinstance(key, str) for key in keys)
        nothing = (None,) * len(specs)
        if not specs[-1].is_label:
            if not same or self.columns.has_header:
                return None
            header = all(_is_usual(first[int(key)], spec) for key, spec in zip(keys, specs, strict=True))
            return ResolvedColumns(keys, nothing, n, has_header=header and len(rows) > 1)
        below = rows[1:] or rows
        is_known = is_number if specs[-1].is_number else partial(self._is_known, separator=specs[-1].separator)
        share = [sum(is_known(row[i]) for row in below) / len(below) for i in range(n)]
        label = int(keys[-1]) if same else -1
        if not same or share[label] < KNOWN_SHARE:
            label = max(range(n), key=lambda i: share[i])
            same = False
        if share[label] < KNOWN_SHARE:
            return None
        known = is_known(first[label])
        if not known and self.columns.has_header:
            return None  # it has a header, though not that of training
        others = [i for i in range(n) if i != label]
        text = int(keys[0]) if same else max(others, key=lambda i: sum(len(row[i]) for row in below), default=label)
        header = not known and any(_is_usual(first[i], spec) for i, spec in zip((text, label), specs, strict=True))
        return ResolvedColumns((text, label), nothing, n, has_header=header)

    def _is_known(self, cell: str, separator: str | None) -> bool:
        """Return whether a cell holds a label of training, or only such ones where it may hold several."""
        parts = [cell] if separator is None else [part for part in cell.split(separator) if part.strip()]
        return bool(parts) and all(normalised_label(part) in self.labels for part in parts)

    def _missing(self, path: Path) -> UsageError:
        """Return the error of a table of pairs without the columns of training, which are not guessed."""
        named = ", ".join(repr(header) for header in self.columns.headers)
        what = f"{path}: not all columns of training are in it ({named})"
        return UsageError(
            what, "name them: --text-column, --pair-column and --label-column, or give their numbers, from 1"
        )

    def _note_guess(self, path: Path, specs: ColumnSpecs, diagnostics: Diagnostics) -> None:
        named = [repr(header) for header in self.columns.headers if header is not None]
        if named:
            diagnostics.notes.append(f"{path.name}: not all columns of training are in it ({', '.join(named)})")


def _place(path: Path, header: str | None, names: Sequence[str]) -> int | None:
    """Return the position of a header, as it is written or but for case and spaces; DataError if it stands twice."""
    if header is None:
        return None
    found = [i for i, name in enumerate(names) if name == header]
    found = found or [i for i, name in enumerate(names) if plain(name) == plain(header)]
    return only_column(path, found, names) if found else None


def _is_usual(cell: str, spec: ColumnSpec) -> bool:
    return plain(cell) in spec.usual
