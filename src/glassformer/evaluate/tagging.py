"""Scores of a model that tags each word: spans, as conlleval and seqeval's default mode count them, and single tags.

A span counts where its borders and its label are right. What is counted of each sentence is enough for the scores of
any set of sentences, so that intervals and paired tests draw sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from glassformer.errors import DataError
from glassformer.evaluate.multilabel import micro_f1
from glassformer.evaluate.significance import bootstrap_interval
from glassformer.text.tags import OUTSIDE, spans_of

Sentences = Sequence[Sequence[str]]
"""The tags of each sentence."""
MOST_IN_CONFUSION = 60
"""Labels up to which confusions are counted."""


def counts_of(truth: Sequence[str], found: Sequence[str]) -> tuple[int, int, int, int, int]:
    """Return of a sentence the spans that are right, wrong and missed, and the tags that are right, and all."""
    right, answered = set(spans_of(truth)), set(spans_of(found))
    n_right = sum(a == b for a, b in zip(truth, found, strict=True))
    return len(right & answered), len(answered - right), len(right - answered), n_right, len(truth)


def all_counts(truth: Sentences, found: Sentences) -> Float[np.ndarray, "N 5"]:
    """Return `counts_of` each sentence."""
    return np.array([counts_of(t, f) for t, f in zip(truth, found, strict=True)], float).reshape(-1, 5)


def span_f1(sums: np.ndarray) -> float:
    """Return micro F1 over spans of summed counts; 0 where there are no spans."""
    return micro_f1(*sums[:3])


def tag_accuracy(sums: np.ndarray) -> float:
    """Return the share of right tags of summed counts."""
    return float(sums[3] / sums[4]) if sums[4] else 0.0


HEADLINES = {False: ("span_f1", span_f1), True: ("tag_accuracy", tag_accuracy)}
"""The first score of tags that mark spans, and of plain ones, with its function of summed counts."""


def score(truth: Sentences, found: Sentences, plain: bool) -> dict[str, Any]:
    """Score the tags of all words of some sentences; `plain` ones mark no spans.

    Returns:
        n, the sentences, and n_words; headline, its name; tag_accuracy, and for spans span_f1, span_precision and
        span_recall (micro), for plain tags macro_f1 (over those that occur or are answered); the headline's interval
        (bootstrap over sentences); per_label, of spans or of plain tags; confusion and label_names (rows true, columns
        answered), of single words and without B- and I-.

    Raises:
        DataError: there is no word.
    """
    counts = all_counts(truth, found)
    if not counts[:, 4].sum():
        raise DataError("there are no words to score", "check that the test file has sentences")
    headline, function = HEADLINES[plain]
    sums = counts.sum(axis=0)
    right, wrong, missed = sums[:3]
    rows = _per_label(truth, found, plain)
    f1s = [row["f1"] for row in rows]
    of_kind: dict[str, Any] = {"macro_f1": float(np.mean(f1s)) if f1s else 0.0}
    if not plain:
        of_kind |= {
            "span_f1": span_f1(sums),
            "span_precision": right / (right + wrong) if right + wrong else 0.0,
            "span_recall": right / (right + missed) if right + missed else 0.0,
        }
    return {
        "n": len(counts),
        "n_words": int(sums[4]),
        "headline": headline,
        "tag_accuracy": tag_accuracy(sums),
        **of_kind,
        f"{headline}_ci95": bootstrap_interval(counts, function),
        "per_label": rows,
        **_confusion(truth, found),
    }


def _per_label(truth: Sentences, found: Sentences, plain: bool) -> list[dict[str, Any]]:
    """Return precision, recall, F1 and number of each label of spans, or of each plain tag, sorted by name."""
    true, answered, right = Counter[str](), Counter[str](), Counter[str]()
    for t, f in zip(truth, found, strict=True):
        if plain:
            both = [(tag, other) for tag, other in zip(t, f, strict=True)]
            true.update(t)
            answered.update(f)
            right.update(tag for tag, other in both if tag == other)
            continue
        spans, others = set(spans_of(t)), set(spans_of(f))
        true.update(span.label for span in spans)
        answered.update(span.label for span in others)
        right.update(span.label for span in spans & others)
    rows: list[dict[str, Any]] = []
    for label in sorted(true | answered):
        n_right, n_true, n_answered = right[label], true[label], answered[label]
        rows.append(
            {
                "label": label,
                "precision": n_right / n_answered if n_answered else 0.0,
                "recall": n_right / n_true if n_true else 0.0,
                "f1": micro_f1(n_right, n_answered - n_right, n_true - n_right),
                "support": n_true,
            }
        )
    return rows


def _confusion(truth: Sentences, found: Sentences) -> dict[str, Any]:
    """Return how often words of each label were given each; nothing for very many labels."""
    counts = Counter(
        (_label(tag), _label(other)) for t, f in zip(truth, found, strict=True) for tag, other in zip(t, f, strict=True)
    )
    names = sorted({name for pair in counts for name in pair}, key=lambda name: (name != OUTSIDE, name))
    if len(names) > MOST_IN_CONFUSION:
        return {}
    return {"label_names": names, "confusion": [[counts[row, column] for column in names] for row in names]}


def _label(tag: str) -> str:
    spans = spans_of([tag])
    return spans[0].label if spans else tag
