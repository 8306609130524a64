"""Pairs in an inner object, as in {"translation": {"en": "one", "de": "eins"}}, the layout of published data sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from glassformer.data.datasets.headers import plain
from glassformer.data.datasets.tables import Row

Wanted = Sequence[tuple[str | None, tuple[str, ...]]]
"""For each column the name that was asked for, and the usual ones."""


def unnested_rows(rows: Iterable[Row], wanted: Wanted) -> Iterator[Row]:
    """Yield rows with the fields of an inner object "translation", unless the fields that are read stand outside."""
    for row in rows:
        fields = row.fields
        inner = fields.get("translation") if isinstance(fields, dict) else None
        if isinstance(fields, dict) and isinstance(inner, dict):
            yield replace(row, fields=_unnested(fields, inner, wanted))
        else:
            yield row


def _unnested(fields: dict[str, Any], inner: dict[str, Any], wanted: Wanted) -> dict[str, Any]:
    outer = {key: value for key, value in fields.items() if key != "translation"}
    names = {plain(key) for key in outer}
    outside = [plain(name) in names if name else not names.isdisjoint(usual) for name, usual in wanted]
    if all(outside):
        return fields
    some_requested = any(found and name for found, (name, _) in zip(outside, wanted, strict=True))
    return {**inner, **outer} if some_requested else inner
