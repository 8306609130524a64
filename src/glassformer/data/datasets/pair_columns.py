"""The columns of pairs of texts: premise and hypothesis, question and answer, or two sentences.

A text is a pair where a column of second texts is named; nothing is taken for one by its header alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from glassformer.data.datasets.columns import TEXT, ColumnSpec, ColumnSpecs
from glassformer.errors import UsageError

_FIRSTS = "premise sentence1 sentence_1 question1 text_a text1 sentence_a query"
FIRST = replace(TEXT, usual=(*_FIRSTS.split(), *TEXT.usual))
SECOND = ColumnSpec("pair", "--pair-column", ())


def with_second(columns: ColumnSpecs) -> ColumnSpecs:
    """Return the columns of texts with labels, and between them one of second texts."""
    return (FIRST, SECOND, *columns[1:])


def second_of(columns: Sequence[str | None]) -> str | None:
    """Return, of the headers of a run's columns, that of the second texts; None where it has no pairs."""
    return columns[1] if len(columns) > 2 else None


def text_spec(columns: ColumnSpecs | None, known: str | None, requested: str | None) -> ColumnSpec:
    """Return how the texts to answer are looked for in a table.

    `columns` are those of the task, and `known` is the header of the texts in training, if it had one.
    """
    spec = (columns or (TEXT,))[0].preferring(known)
    usual = (*spec.usual, *(name for name in TEXT.usual if name not in spec.usual))
    return replace(spec, name="text", flag="--text-column", usual=usual, requested=requested, trained=known)


def text_specs(
    columns: ColumnSpecs | None,
    known: Sequence[str | None],
    requested: tuple[str | None, str | None],
    pairs: bool,
    places: Sequence[tuple[int, int]] = (),
) -> ColumnSpecs:
    """Return how the texts to answer, or with `pairs` the two texts of each pair, are looked for in a table.

    `columns` are those of the task, `known` the headers of a run's training table, if it had some, and `requested` the
    columns of the first and of the second texts that were named. `places` are those of a training table that has no
    header.

    Raises:
        UsageError: a second column is named where a text is no pair, or is needed and not known.
    """
    text = replace(text_spec(columns, known[0] if known else None, requested[0]), place=next(iter(places), None))
    if not pairs and requested[1] is None:
        return (text,)
    if not pairs:
        raise UsageError("the model reads one text, and a column of second texts was named", "leave out --pair-column")
    second, place = requested[1] or second_of(known), places[1] if len(places) > 2 else None
    if second is None and place is None:
        raise UsageError("the model reads two texts", "name the column of the second: --pair-column")
    usual = dict.fromkeys((*text.usual[:1], *FIRST.usual, *text.usual))
    return (replace(text, usual=tuple(usual)), replace(SECOND, requested=second, trained=second_of(known), place=place))
