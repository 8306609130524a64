"""Tags of words and the spans that they mark. No torch is imported here.

Spans are written as IOB2: B-X begins a span of the label X, I-X continues it, O is outside of all. An imported tagger
may have other prefixes (E, S, L, U).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

OUTSIDE = "O"
_OF_SPAN = re.compile(r"[BIESLU]-.+")


class TagSpan(NamedTuple):
    """A span of words, from `start` to before `end`."""

    start: int
    end: int
    label: str


def marks_span(tag: str) -> bool:
    """Return whether a tag is of a scheme of spans, such as B-PER; O is of both kinds."""
    return _OF_SPAN.fullmatch(tag) is not None


def are_plain(names: Iterable[str]) -> bool:
    """Return whether tags stand for themselves, as parts of speech do, and mark no spans."""
    return not any(map(marks_span, names))


def spans_of(tags: Sequence[str]) -> list[TagSpan]:
    """Return the spans of a sentence as conlleval and seqeval's default mode count them.

    I-X after O or after another label begins a span; one ends before each word that does not continue it.
    """
    spans: list[TagSpan] = []
    start, label = 0, ""
    for i, tag in enumerate([*tags, OUTSIDE]):
        prefix, _, its = tag.partition("-") if marks_span(tag) else (OUTSIDE, "", "")
        if label and (prefix != "I" or its != label):
            spans.append(TagSpan(start, i, label))
            label = ""
        if its and not label:
            start, label = i, its
    return spans


def tag_names(tags: Iterable[str]) -> list[str]:
    """Return the tags that a model has which was trained on these: O, and of each label B-X and I-X; sorted.

    Plain tags are those that occur. The first is that of words that are not read: O, where there is one.
    """
    found = set(tags)
    if are_plain(found):
        return sorted(found, key=lambda tag: (tag != OUTSIDE, tag))
    labels = sorted({tag[2:] for tag in found if marks_span(tag)})
    return [OUTSIDE, *(f"{prefix}-{label}" for label in labels for prefix in "BI")]
