"""Words that nearly determine a label: names of labels, marks, or fields of a form that stayed in the texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from glassformer.evaluate.audit.features import sampled
from glassformer.evaluate.baselines import MAX_TRAIN

PRECISION = 0.99
"""Share of the texts with a word that must have the label."""
SUPPORT = 0.3
"""Share of the texts of a label that must have the word."""
CHANCE = 0.01
"""p-value, corrected for the number of words and labels, below which a word is reported."""
FEWEST = 5
"""Texts that a word must be in."""
N_EXAMPLES = 3


class Leak(NamedTuple):
    """A word, its label, how many texts have the word, both, and the label; the p-value; the first examples."""

    token: str
    label: int
    n_token: int
    n_both: int
    n_label: int
    p_value: float
    examples: list[int]


def tokens_of(text: str) -> set[str]:
    """Return the words of a text in lower case, and what stands between spaces, such as #irony or [spam]."""
    text = text.lower()
    return {*re.findall(r"\w+", text), *text.split()}


def label_leaks(texts: Sequence[str], labels: Sequence[Sequence[int]]) -> list[Leak]:
    """Return the words that nearly determine a label, the most frequent first; a text has one label, several, or none.

    A word counts if it has the precision and the support, and if drawing as many texts at random would give as many of
    the label with a probability below `CHANCE` (hypergeometric test, Bonferroni's correction). Of several words in the
    same texts the longest is returned. Of more than `MAX_TRAIN` texts a sample is counted.
    """
    from scipy.sparse import csr_matrix
    from scipy.stats import hypergeom
    from sklearn.feature_extraction.text import CountVectorizer

    index = sampled(len(texts), MAX_TRAIN)
    sets = [labels[i] for i in index.tolist()]
    options: dict[str, Any] = {"analyzer": tokens_of, "min_df": min(FEWEST, len(index)), "dtype": np.int32}
    vectorizer: Any = CountVectorizer(**options)
    try:
        x = vectorizer.fit_transform([texts[i] for i in index.tolist()]).tocsc()
    except ValueError:  # no word is in so many texts
        return []
    tokens, n_token = vectorizer.get_feature_names_out(), np.diff(x.indptr)
    row_of = np.repeat(np.arange(len(sets)), [len(each) for each in sets])
    label_of = np.array([label for each in sets for label in each], dtype=np.int64)
    shape = len(sets), int(label_of.max(initial=-1)) + 1
    has = csr_matrix((np.ones(len(row_of)), (row_of, label_of)), shape=shape).tocsc()
    both, n_label = (x.T @ has).tocoo(), np.diff(has.indptr)
    n_both = both.data.astype(np.int64)
    kept = (n_both >= PRECISION * n_token[both.row]) & (n_both >= SUPPORT * n_label[both.col]) & (n_both >= FEWEST)
    n_tests = len(tokens) * int((n_label > 0).sum())
    found: dict[tuple[int, bytes], Leak] = {}
    for row, label, n in zip(both.row[kept].tolist(), both.col[kept].tolist(), n_both[kept].tolist(), strict=True):
        p_value = min(1.0, n_tests * float(hypergeom.sf(n - 1, len(sets), n_label[label], n_token[row])))
        if p_value >= CHANCE:
            continue
        where = x.indices[x.indptr[row] : x.indptr[row + 1]]
        with_label = np.intersect1d(where, has.indices[has.indptr[label] : has.indptr[label + 1]])
        examples = index[with_label[:N_EXAMPLES]].tolist()
        leak = Leak(tokens[row], label, int(n_token[row]), n, int(n_label[label]), p_value, examples)
        key = label, with_label.tobytes()
        if key not in found or len(leak.token) > len(found[key].token):
            found[key] = leak
    return sorted(found.values(), key=lambda leak: (-leak.n_both, leak.label, leak.token))
