"""Probable label errors by confident learning on out-of-fold probabilities (Northcutt, Jiang and Chuang 2021).

A logistic regression, fitted to the other four fifths of the examples, gives each example the probabilities of its
classes, calibrated by a temperature. A class's threshold is the mean probability of the class over its own examples; an
example that reaches the threshold of another class, and not that of its own, is counted off the diagonal of the
confident joint ("Confident Learning: Estimating Uncertainty in Dataset Labels", JAIR 70, section 3.1). Their share
estimates the share e of wrong labels.

Departure from the paper, which lists as many examples: on ambiguous texts that is too many, a sixth of all tweets with
an emotion. Where a share e of labels was replaced by those of other examples, a label y with probability p, of a text
that is probably of class k, is wrong with probability w / (w + (1 − e) p), w = e (1 − p) n_y / (N − n_k); a label is
listed from `LISTED_FROM`. It and `SHARES` were chosen on seed 0 of `benchmarks/audit.py`.

Where a text may have several labels each is a decision of its own. Of a label that n of N texts have, e n are taken to
be missing, and as many to stand where they do not belong: one that is missing is wrong with the odds
e p : (1 − e n / (N − n)) (1 − p), one that is there with e n / (N − n) (1 − p) : (1 − e) p.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from glassformer.evaluate.audit.features import Features, OfTexts
from glassformer.evaluate.scores import label_counts
from glassformer.evaluate.scoring import f1

FOLDS = 5
SHARES = (0.02, 0.05)
"""Least and largest share of wrong labels that is assumed; some off the diagonal are only ambiguous."""
LISTED_FROM = 0.2
"""Probability from which a label is listed as wrong."""
FEWEST = 2 * FOLDS
"""Examples of a label below which the model has seen too few of them to judge one."""
TEMPERATURES = np.geomspace(0.2, 3.0, 28)
"""Temperatures to choose from, also by log loss: then the list hardly depends on the penalty."""
TEMPERED = 10_000
"""Examples on which the temperature is chosen."""
MOST_CHOSEN_BY = 10
"""Labels by which the penalty of several labels is chosen: those that most texts have."""
CHUNK = 4096
"""Texts whose features are in memory at a time, beyond those that are fitted."""
NO_WORDS = "the texts hold no words"


class Judgement(NamedTuple):
    """What the model thinks of the labels.

    Attributes:
        score: (N,) probability that the label is wrong.
        suggested: (N,) the most probable class.
        listed: (N,) whether the label is listed as a probable error.
        facts: accuracy on the labels as they are, that of the most frequent label, candidates, assumed share of errors,
            penalty, temperature, and examples of labels with too few to judge.
    """

    score: Float[np.ndarray, " N"]
    suggested: Int[np.ndarray, " N"]
    listed: Bool[np.ndarray, " N"]
    facts: dict[str, float]


def judge_labels(
    features_of: Callable[[], Features], labels: Int[np.ndarray, " N"], groups: Int[np.ndarray, " N"]
) -> Judgement | str:
    """Return which labels are probably wrong, or why that cannot be judged.

    Args:
        features_of: returns what the labels are judged by; raises ValueError where the texts hold no words.
        labels: classes 0…C−1, each of which occurs.
        groups: number of the group of each example; equal texts, which are judged by the same model.
    """
    if (n_classes := int(labels.max()) + 1) < 2:
        return "all texts have one label"
    if (most := int(np.bincount(labels).max())) < FEWEST:
        return f"a label needs {FEWEST} examples to be judged, and no label has more than {most}"
    folds = stratified_folds(labels, groups)
    if any(len(np.unique(labels[folds != fold])) < 2 or not (folds == fold).any() for fold in range(FOLDS)):
        return f"too few different texts for {FOLDS} folds with two labels in each"
    try:
        features = features_of()
    except ValueError:  # "empty vocabulary"
        return NO_WORDS
    probabilities, penalty = out_of_fold(features, labels, folds, n_classes, features.penalties)
    probabilities, temperature = calibrated(probabilities, labels)
    suggested = probabilities.argmax(axis=1)
    score, listed, n_candidates, share = confident_learning(probabilities, labels)
    facts = {
        "accuracy": float((suggested == labels).mean()),
        "most_frequent": float(np.bincount(labels).max() / len(labels)),
        "candidates": n_candidates,
        "share": share,
        "penalty": penalty,
        "temperature": temperature,
        "unjudged": int((np.bincount(labels)[labels] < FEWEST).sum()),
    }
    return Judgement(score, suggested, listed, facts)


def stratified_folds(labels: Int[np.ndarray, " N"], groups: Int[np.ndarray, " N"], seed: int = 0) -> np.ndarray:
    """Return the fold of each example: the same share of each label in each, and a group as a whole.

    A group counts for the label of its first example.
    """
    numbers, first = np.unique(groups, return_index=True)
    order = np.random.default_rng([seed, len(labels)]).permutation(len(numbers))
    order = order[np.argsort(labels[first[order]], kind="stable")]
    fold_of = np.empty(len(numbers), dtype=np.int64)
    fold_of[order] = np.arange(len(numbers)) % FOLDS
    return fold_of[np.searchsorted(numbers, groups)]


def confident_learning(
    probabilities: Float[np.ndarray, "N C"], labels: Int[np.ndarray, " N"]
) -> tuple[np.ndarray, np.ndarray, int, float]:
    """Return for each example the probability that its label is wrong and if it is listed; candidates and share."""
    n, n_classes = probabilities.shape
    own, sizes = probabilities[np.arange(n), labels], np.bincount(labels, minlength=n_classes)
    thresholds = np.where(sizes < FEWEST, np.inf, np.bincount(labels, own, n_classes) / np.maximum(sizes, 1))
    reached = np.where(probabilities >= thresholds, probabilities, -1.0)
    predicted, confident = probabilities.argmax(axis=1), reached.argmax(axis=1)
    doubted = (predicted != labels) & (sizes[labels] >= FEWEST)
    n_candidates = int((doubted & (reached.max(axis=1) > 0) & (confident != labels)).sum())
    share = min(max(n_candidates / n, SHARES[0]), SHARES[1])
    replaced = share * (1 - own) * sizes[labels] / np.maximum(n - sizes[predicted], 1)
    score = replaced / np.maximum(replaced + (1 - share) * own, 1e-300)
    return score, doubted & (score >= LISTED_FROM), n_candidates, share


def out_of_fold(
    features: Features, labels: Int[np.ndarray, " N"], folds: np.ndarray, n_classes: int, penalties: Sequence[float]
) -> tuple[Float[np.ndarray, "N C"], float]:
    """Return the probabilities of each example by the model of the other folds, and the penalty.

    It is that of `penalties` with the least log loss on the first fold.
    """
    probabilities = np.zeros((len(labels), n_classes))
    for fold in range(FOLDS):
        held, each, losses = _held_out(features, labels, folds == fold, n_classes, penalties)
        best = int(np.argmin(losses))
        probabilities[held] = each[best]
        penalties = penalties[best : best + 1] if fold == 0 else penalties
    return probabilities, penalties[0]


def _held_out(
    features: Features, labels: np.ndarray, in_fold: np.ndarray, n_classes: int, penalties: Sequence[float]
) -> tuple[np.ndarray, list[np.ndarray], list[float]]:
    """Return the examples of a fold; by the models of the others, one a penalty, probabilities and mean log loss."""
    fitted = features.fitted[~in_fold[features.fitted]]
    x, held = features.rows(fitted), np.flatnonzero(in_fold)
    models = [features.fit(x, labels[fitted], penalty) for penalty in penalties]
    each = [np.zeros((len(held), n_classes)) for _ in models]
    for start in range(0, len(held), CHUNK):
        chunk = features.rows(held[start : start + CHUNK])
        for model, out in zip(models, each, strict=True):
            out[start : start + CHUNK, model.classes_] = model.predict_proba(chunk)
    losses = [float(-np.log(np.maximum(p[np.arange(len(held)), labels[held]], 1e-6)).mean()) for p in each]
    return held, each, losses


def calibrated(
    probabilities: Float[np.ndarray, "N C"], labels: Int[np.ndarray, " N"]
) -> tuple[Float[np.ndarray, "N C"], float]:
    """Return the probabilities at the temperature with the least log loss (Guo et al. 2017), and that temperature."""
    logs = np.log(np.maximum(probabilities, 1e-12))
    some = np.arange(len(labels))
    if len(some) > TEMPERED:
        some = np.sort(np.random.default_rng(0).choice(len(labels), TEMPERED, replace=False))

    def at(temperature: float, rows: np.ndarray) -> np.ndarray:
        scaled = rows / temperature
        scaled = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        return scaled / scaled.sum(axis=1, keepdims=True)

    losses = [
        -np.log(np.maximum(at(t, logs[some])[np.arange(len(some)), labels[some]], 1e-6)).mean() for t in TEMPERATURES
    ]
    temperature = float(TEMPERATURES[int(np.argmin(losses))])
    return at(temperature, logs), temperature


# --- several labels in a text -------------------------------------------------------------------------------------


class SetJudgement(NamedTuple):
    """What the models think of the labels of texts that may have several.

    Attributes:
        score: (N, L) probability that a label is wrongly there, or wrongly missing.
        listed: (N, L) whether it is listed.
        suggested: (N, L) the labels without what is listed, and with those whose probability is one half or more.
        facts: micro F1 on the labels as they are, of the labels whose probability is one half or more; that of the most
            frequent label alone; candidates, assumed share of errors, penalty, median temperature of the labels, and
            labels too rare, or too frequent, to judge.
    """

    score: Float[np.ndarray, "N L"]
    listed: Bool[np.ndarray, "N L"]
    suggested: Bool[np.ndarray, "N L"]
    facts: dict[str, float]


def judge_label_sets(
    features_of: Callable[[], OfTexts],
    given: Bool[np.ndarray, "N L"],
    rarest: Int[np.ndarray, " N"],
    groups: Int[np.ndarray, " N"],
) -> SetJudgement | str:
    """Return which labels are probably wrong or missing, or why that cannot be judged.

    Args:
        features_of: as of `judge_labels`.
        given: the labels that each text has.
        rarest: number of the rarest label of each text, which is spread evenly over the folds; L for a text without.
        groups: number of the group of each example.
    """
    n, sizes, folds = len(given), given.sum(axis=0), stratified_folds(rarest, groups)
    if np.bincount(folds, minlength=FOLDS).min() == 0:
        return f"too few different texts for {FOLDS} folds"
    try:
        features = features_of()
    except ValueError:  # "empty vocabulary"
        return NO_WORDS
    others = [features.fitted[folds[features.fitted] != fold] for fold in range(FOLDS)]
    fitted = np.stack([given[rows].sum(axis=0) for rows in others])
    n_fitted = np.array([[len(rows)] for rows in others])
    judged = (sizes >= FEWEST) & (n - sizes >= FEWEST) & ((fitted > 0) & (fitted < n_fitted)).all(axis=0)
    if not judged.any():
        return f"a label needs {FEWEST} texts with it, and as many without, to be judged, and none has"
    columns = np.flatnonzero(judged)
    probabilities, temperatures = np.zeros((n, len(columns))), np.zeros(len(columns))
    frequent = columns[np.argsort(-sizes[columns], kind="stable")[:MOST_CHOSEN_BY]]
    binary, penalties = given.astype(np.int64), features.set_penalties
    losses = [_held_out(features, binary[:, column], folds == 0, 2, penalties)[2] for column in frequent.tolist()]
    penalty = penalties[int(np.sum(losses, axis=0).argmin())]
    for at, column in enumerate(columns.tolist()):
        found, _ = out_of_fold(features, binary[:, column], folds, 2, (penalty,))
        found, temperatures[at] = calibrated(found, binary[:, column])
        probabilities[:, at] = found[:, 1]
    score, listed, n_candidates, share = confident_sets(probabilities, given[:, columns])
    answered = probabilities >= 0.5
    scores, errors, suggested = np.zeros(given.shape), np.zeros(given.shape, dtype=bool), given.copy()
    scores[:, columns], errors[:, columns] = score, listed
    suggested[:, columns] = (given[:, columns] & ~listed) | answered
    constant = np.broadcast_to(np.arange(len(sizes)) == sizes.argmax(), given.shape)
    facts = {
        "micro_f1": f1(label_counts(given[:, columns], answered).sum(axis=0)),
        "most_frequent": f1(label_counts(given, constant).sum(axis=0)),
        "candidates": n_candidates,
        "share": share,
        "penalty": penalty,
        "temperature": float(np.median(temperatures)),
        "unjudged": int((~judged).sum()),
    }
    return SetJudgement(scores, errors, suggested, facts)


def confident_sets(
    probabilities: Float[np.ndarray, "N L"], given: Bool[np.ndarray, "N L"]
) -> tuple[np.ndarray, np.ndarray, int, float]:
    """Return for each label of each text the probability that it is wrong and if it is listed; candidates and share."""
    n, sizes = len(given), given.sum(axis=0)
    there = (probabilities * given).sum(axis=0) / sizes
    absent = ((1 - probabilities) * ~given).sum(axis=0) / (n - sizes)
    candidates = np.where(given, (1 - probabilities >= absent) & (probabilities < there), probabilities >= there)
    n_candidates = int(candidates.sum())
    share = min(max(n_candidates / (2 * int(sizes.sum())), SHARES[0]), SHARES[1])
    added = share * sizes / (n - sizes)
    wrong = np.where(given, added * (1 - probabilities), share * probabilities)
    right = np.where(given, (1 - share) * probabilities, (1 - added) * (1 - probabilities))
    score = wrong / np.maximum(wrong + right, 1e-300)
    return score, (given != (probabilities >= 0.5)) & (score >= LISTED_FROM), n_candidates, share
