"""The audit of a data set: faults that training does not stop at, found by one list of checks.

A check reads the examples of all parts and yields what it finds, or raises `NotMade` with the reason why it can find
nothing. Which checks are made depends on what the texts come with.

Probable label errors are what a model that has not seen an example says of its label.

A linear model is fitted to four fifths of the examples and judges the rest; equal texts are in one fifth, so that no
text is judged by a copy of itself. A temperature calibrates its probabilities (Guo et al. 2017), and Bayes' rule says
what they mean for a label. Where a share e of the labels was replaced by those of other examples, drawn at random, a
label with probability p that n of N examples have is wrong with probability w / (w + (1 − e) p), w = e (1 − p) n / N.

Confident learning (Northcutt, Jiang and Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels", JAIR
70, 2021) estimates e for each pair of classes, and lists as many examples. On ambiguous texts that is too many: a sixth
of all tweets with an emotion. Here e is assumed; it, `LISTED_FROM` and the penalty were chosen on seed 0 of
`benchmarks/audit.py` and on made texts.

Nearly equal texts are found without comparing each with each: the sets of their character 5-grams, without case,
punctuation and repeated spaces, have a Jaccard similarity of `NEAR` or more. MinHash (Broder 1997): of a random order
of all n-grams, two texts have the same n-gram first with a probability that is their similarity. Texts with the same
ones in all `N_ROWS` orders of one of `N_BANDS` bands are compared exactly. Time grows with the number of characters,
not with pairs: of the texts with a band in common each is compared with the first and with the `NEIGHBOURS` before it.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float, Int
from scipy.special import softmax
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import StratifiedGroupKFold

from glassformer.config import DataConfig
from glassformer.data.datasets.columns import DataSchema
from glassformer.data.datasets.labels import label_of_number, labels_of
from glassformer.data.datasets.local_files import data_parts, read_parts
from glassformer.data.diagnostics import Diagnostics, NotMade
from glassformer.data.splits import Split
from glassformer.errors import DataError, UsageError
from glassformer.evaluate.baselines import bag_of_words_vectorizer, window_features
from glassformer.utils.atomic_io import atomic_write_text
from glassformer.utils.formatting import counted, percent


@dataclass(frozen=True)
class AuditFinding:
    """A row of the report.

    Attributes:
        kind: of the check that found it. place: file and line that the example begins on.
        score: how sure it is; the guide says what it is of each kind.
        matter: a sentence without a full stop.
        text, answer: of the example. suggested: another answer.
    """

    kind: str
    place: str
    score: float
    matter: str
    text: str
    answer: str
    suggested: str = ""


@dataclass(frozen=True)
class AuditReport:
    """Everything that an audit found.

    Attributes:
        findings: in the order of `CHECKS`, the surest first.
        counts: findings of each kind that was looked for.
        not_made: kinds that were not, and the reason.
        notes: how the files were read.
    """

    findings: list[AuditFinding]
    counts: dict[str, int]
    not_made: dict[str, str]
    notes: list[str]


class Examples:
    """The examples of all parts in one row, without those with an empty text or translation.

    Attributes:
        kind: what they come with: "label" (one, several or none), "pair" (the same of pairs of texts), "number", "tags"
            (of each word) or "target" (a translation).
        parts, places, texts, answers: of each example; a number as it is printed, so that 3 and 3.0 are equal.
        shown: answers on one line, labels as a table holds them.
        groups: number of the group of each example: equal texts, but for case and spaces; those with tags exactly.
    """

    def __init__(self, parts: Mapping[str, Split], target: str, separator: str) -> None:
        paired = any(part.columns and len(part.columns.keys) > 2 for part in parts.values())
        self.kind = "pair" if target == "label" and paired else target
        rows = [
            (name, f"{part.source}:{line}", text, answer)
            for name, part in parts.items()
            for line, text, answer in zip(part.lines, part.text, part.answers, strict=True)
            if text.strip() and (answer.strip() or target != "target")
        ]
        if not rows:
            raise DataError("there are no examples to audit", "check that the files have rows with text")
        self.parts, self.places, self.texts, self.answers = map(list, zip(*rows, strict=True))
        if target == "number":
            self.answers = [label_of_number(float(answer)) for answer in self.answers]
        self.shown = [each.replace("\n", separator if target == "label" else " ") or "[]" for each in self.answers]
        self.groups = numbered([text if target == "tags" else normalised(text) for text in self.texts])

    @cached_property
    def near(self) -> list[tuple[int, int, float]]:
        """Examples that are nearly equal; of translations both sides count."""
        both = [f"{text} {answer}" for text, answer in zip(self.texts, self.answers, strict=True)]
        return near_duplicates(both if self.kind == "target" else self.texts, self.parts)

    def found(self, i: int, matter: str, score: float = 1.0, suggested: str = "") -> AuditFinding:
        """Return a finding about an example; what found it is not known yet."""
        return AuditFinding("", self.places[i], score, matter, self.texts[i], self.shown[i], suggested)


# --- labels that a model doubts ---------------------------------------------------------------------------------------

TEXT_MODEL = LogisticRegression(C=8.0, max_iter=100)
WORD_MODEL = SGDClassifier(loss="log_loss", alpha=1e-6, max_iter=5, n_iter_no_change=5, average=True, random_state=0)
"""Judges words, of which there are many more than texts."""
FOLDS = 5
FEWEST = 2 * FOLDS
"""Examples of a label below which the model has seen too few of them to judge one."""
ASSUMED = 0.07
"""Share of the labels that are taken to be replaced."""
LISTED_FROM = 0.2
"""Probability from which a label is listed as wrong."""
TEMPERATURES = np.geomspace(0.2, 3.0, 28)


def judge_labels(
    x: Any, labels: Int[np.ndarray, " N"], groups: Int[np.ndarray, " N"], model: Any = TEXT_MODEL
) -> tuple[Float[np.ndarray, " N"], Int[np.ndarray, " N"]]:
    """Return the probability that each label is wrong, 0 where it is not listed, and the most probable class.

    Args:
        x: features of the examples, a row each.
        labels: classes 0…C−1, each of which occurs.
        groups: number of the group of each example; equal texts, which are judged by the same model.
        model: a classifier of scikit-learn that gives probabilities.

    Raises:
        NotMade: there are too few examples, or the features do not separate the labels.
    """
    sizes = np.bincount(labels)
    if (sizes >= FEWEST).sum() < 2:
        raise NotMade(f"two labels need {FEWEST} examples each")
    if len(np.unique(groups)) < FOLDS:
        raise NotMade(f"too few different texts for {FOLDS} folds")
    p = calibrated(_out_of_fold(x, labels, groups, model), labels)
    suggested = p.argmax(axis=1)
    if (suggested == labels).mean() <= sizes.max() / len(labels):
        raise NotMade("a model of the words is right no more often than the most frequent label")
    return doubted_labels(p, labels), suggested


def doubted_labels(p: Float[np.ndarray, "N C"], labels: Int[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Return the probabilities that labels are wrong, given those of the classes; 0 for those that are not listed."""
    n, sizes = len(labels), np.bincount(labels)
    own = p[np.arange(n), labels]
    replaced = ASSUMED * (1 - own) * sizes[labels] / n
    score = replaced / np.maximum(replaced + (1 - ASSUMED) * own, 1e-300)
    return np.where((p.argmax(axis=1) != labels) & (sizes[labels] >= FEWEST) & (score >= LISTED_FROM), score, 0.0)


def _out_of_fold(x: Any, labels: np.ndarray, groups: np.ndarray, model: Any) -> Float[np.ndarray, "N C"]:
    """Return the probabilities of each example by the model of the other folds; a group is in one fold as a whole."""
    p = np.zeros((len(labels), int(labels.max()) + 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "did not converge": more steps change no order of the scores
        for others, held in StratifiedGroupKFold(FOLDS, shuffle=True, random_state=0).split(x, labels, groups):
            if not len(held) or len(np.unique(labels[others])) < 2:
                raise NotMade(f"too few different texts for {FOLDS} folds with two labels in each")
            fitted = cast(Any, clone(model)).fit(x[others], labels[others])
            p[np.ix_(held, fitted.classes_)] = fitted.predict_proba(x[held])
    return p


def calibrated(p: Float[np.ndarray, "N C"], labels: Int[np.ndarray, " N"]) -> Float[np.ndarray, "N C"]:
    """Return the probabilities at the temperature with the least log loss."""
    logs, rows = np.log(np.maximum(p, 1e-12)), np.arange(len(labels))

    def loss(temperature: float) -> float:
        return -np.log(np.maximum(softmax(logs / temperature, axis=1)[rows, labels], 1e-6)).mean()

    return softmax(logs / min(TEMPERATURES, key=loss), axis=1)


# --- texts with answers -------------------------------------------------------------------------------------------


def _contradictions(examples: Examples) -> Iterator[AuditFinding]:
    """Yield texts whose answer is not the one that most of the equal texts have; where none is, all of these."""
    members = defaultdict[int, list[int]](list)
    for i, group in enumerate(examples.groups.tolist()):
        members[group].append(i)
    for rows in members.values():
        answers = [examples.shown[i] for i in rows]
        (most, n), *others = Counter(answers).most_common(2)
        even = bool(others) and others[0][1] == n
        for i, own in zip(rows, answers, strict=True):
            if (other := most if own != most or not even else others[0][0]) != own:
                matter = f"{own}, but {other} at {examples.places[rows[answers.index(other)]]}"
                yield examples.found(i, matter, suggested="" if even else most)


LEAK_PRECISION, LEAK_SUPPORT, LEAK_TEXTS, CHANCE = 0.99, 0.3, 5, 0.01
"""Share of the texts with a word that must have the label, and of the texts of the label that must have the word; texts
that a word must be in, and the p-value, corrected for the number of words, below which it is reported."""


def _label_leaks(examples: Examples) -> Iterator[AuditFinding]:
    """Yield words and marks, such as [spam], that nearly determine a label; of several in the same texts the longest.

    Drawing as many texts at random would give as many of the label with a probability below `CHANCE` (hypergeometric
    test, Bonferroni's correction).
    """
    from scipy.stats import hypergeom

    sets, texts_with = [*map(labels_of, examples.answers)], defaultdict[str, list[int]](list)
    n_label = Counter(label for labels in sets for label in labels)
    for i, text in enumerate(map(str.lower, examples.texts)):
        for word in {*re.findall(r"\w+", text), *text.split()}:
            texts_with[word].append(i)
    words = {word: rows for word, rows in texts_with.items() if len(rows) >= LEAK_TEXTS}
    if not words or len(n_label) < 2:
        raise NotMade(f"no word is in {LEAK_TEXTS} texts, or there is one label")
    longest = dict[tuple[str, tuple[int, ...]], AuditFinding]()
    for word, rows in sorted(words.items(), key=lambda item: (len(item[0]), item[0])):
        for label, n in Counter(label for i in rows for label in sets[i]).items():
            precise = n >= LEAK_PRECISION * len(rows) and n >= LEAK_SUPPORT * n_label[label]
            if precise and hypergeom.sf(n - 1, len(sets), n_label[label], len(rows)) * len(words) < CHANCE:
                matter = f"{word!r}: {n:,} of {len(rows):,} texts with it, and of {n_label[label]:,} with {label}"
                first = next(i for i in rows if label in sets[i])
                longest[label, (*rows,)] = examples.found(first, matter, n / len(rows))
    yield from longest.values()


def _nearly_equal(examples: Examples, across: bool) -> Iterator[AuditFinding]:
    """Yield examples that are nearly equal to earlier ones, of other parts or of their own; contradictions aside."""
    if across and len({*examples.parts}) == 1:
        raise NotMade("there is one part")
    for later, earlier, similarity in examples.near:
        other = "" if examples.answers[later] == examples.answers[earlier] else examples.shown[earlier]
        contradict = bool(other) and examples.groups[later] == examples.groups[earlier]
        if across == (examples.parts[later] != examples.parts[earlier]) and (across or not contradict):
            matter = f"{percent(similarity, 0)} like {examples.places[earlier]}" + (other and f", which has {other}")
            yield examples.found(later, matter, similarity, other)


def _text_features(texts: Sequence[str]) -> Any:
    """Return TF-IDF of texts, as in the baseline; raise NotMade where they hold no words."""
    try:
        return bag_of_words_vectorizer(texts).fit_transform(texts)
    except ValueError:  # "empty vocabulary"
        raise NotMade("the texts hold no words") from None


def _label_errors(examples: Examples) -> Iterator[AuditFinding]:
    """Yield labels and tags that are probably wrong; where a text may have several, each is a decision of its own."""
    sets, tags = [*map(labels_of, examples.answers)], examples.kind == "tags"
    names = sorted({label for labels in sets for label in labels})
    if tags or all(len(labels) == 1 for labels in sets):
        problems = [(names, [names.index(label) for labels in sets for label in labels])]
    else:
        problems = [([f"without {name}", f"with {name}"], [int(name in labels) for labels in sets]) for name in names]
    if tags:
        sentences = [text.split(" ") for text in examples.texts]
        places = [(i, f"word {k}, {word!r}: ") for i, each in enumerate(sentences) for k, word in enumerate(each, 1)]
        x = window_features(sentences)
    else:
        x, places = _text_features(examples.texts), [(i, "") for i in range(len(sets))]
    reasons, groups = list[NotMade](), examples.groups[[i for i, _ in places]]
    for classes, labels in problems:
        try:
            score, likely = judge_labels(x, np.array(labels), groups, WORD_MODEL if tags else TEXT_MODEL)
        except NotMade as reason:
            reasons.append(reason)
            continue
        for k in np.flatnonzero(score).tolist():
            (i, word), other = places[k], classes[likely[k]]
            yield examples.found(i, f"{word}{classes[labels[k]]}, probably {other}", float(score[k]), other)
    if len(reasons) == len(problems):
        raise reasons[0] if reasons else NotMade("no text has a label")


# --- pairs of sentences -------------------------------------------------------------------------------------------

DISTINCT = 0.9
"""Share of the sentences whose side a model must recognise for single ones to be judged."""
LENGTH_LIMIT, SMALLEST_SPREAD, PER_BIN = 4.0, 0.1, 200
"""Robust standard deviations of the logarithm of the ratio of lengths from which a pair is listed, the least standard
deviation that is assumed, and how many pairs of similar length are taken together: of longer ones it varies less."""


def _wrong_sides(examples: Examples) -> Iterator[AuditFinding]:
    """Yield sentences that a model takes for ones of the other side, so also copies."""
    sides, side = [*examples.texts, *examples.answers], np.repeat([0, 1], n := len(examples.texts))
    score, likely = judge_labels(_text_features(sides), side, numbered(sides))
    if (likely == side).mean() < DISTINCT:
        raise NotMade("the two sides look alike")
    for k in np.flatnonzero(score).tolist():
        yield examples.found(k % n, f"its {('source', 'target')[k // n]} looks like the other side", float(score[k]))


def _odd_lengths(examples: Examples) -> Iterator[AuditFinding]:
    """Yield pairs whose ratio of lengths, in characters, is far from that of pairs as long."""
    source, target = (np.array([*map(len, side)]) + 1 for side in (examples.texts, examples.answers))
    ratios, order = np.log(target / source), np.argsort(np.maximum(source, target), kind="stable")
    for rows in np.array_split(order, max(1, len(order) // PER_BIN)):
        apart = ratios[rows] - np.median(ratios[rows])
        apart /= max(1.4826 * float(np.median(np.abs(apart))), SMALLEST_SPREAD)
        for k in np.flatnonzero(np.abs(apart) >= LENGTH_LIMIT).tolist():
            matter = f"its target is {'long' if apart[k] > 0 else 'short'} for its source"
            yield examples.found(int(rows[k]), matter, float(abs(apart[k])))


# --- the checks ---------------------------------------------------------------------------------------------------


class Check(NamedTuple):
    """A kind of fault, the kinds of examples that have it, what finds it, and what to do about it."""

    kind: str
    applies: str
    find: Callable[[Examples], Iterator[AuditFinding]]
    advice: str


CHECKS = (
    Check("contradiction", "label pair number tags", _contradictions, "give equal texts one answer"),
    Check("label-leak", "label pair", _label_leaks, "remove the word, unless it is what the label is about"),
    Check("split-overlap", "label pair number tags target", partial(_nearly_equal, across=True), "keep it in one part"),
    Check("label-error", "label tags", _label_errors, "read it, and correct the answer where it is wrong"),
    Check("near-duplicate", "label pair number tags", partial(_nearly_equal, across=False), "keep one of them"),
    Check("wrong-language", "target", _wrong_sides, "translate it, or exchange the sides"),
    Check("length", "target", _odd_lengths, "see whether a side is cut, or two sentences are on a line"),
)
"""In the order of the report: causes before what follows from them."""


def audit(parts: Mapping[str, Split], target: str, separator: str = ";", notes: Sequence[str] = ()) -> AuditReport:
    """Make the checks that apply to what the texts of all parts come with; `separator` parts several labels.

    Raises:
        DataError: there are no examples.
    """
    examples = Examples(parts, target, separator)
    report = AuditReport([], {}, {}, [*notes])
    if n_empty := sum(len(part.text) for part in parts.values()) - len(examples.texts):
        report.notes.append(f"{counted(n_empty, 'examples')} with an empty text left out")
    for check in (check for check in CHECKS if examples.kind in check.applies.split()):
        try:
            found = sorted(check.find(examples), key=lambda each: -each.score)
        except NotMade as reason:
            report.not_made[check.kind] = str(reason)
            continue
        report.counts[check.kind] = len(found)
        report.findings.extend(replace(each, kind=check.kind) for each in found)
    return report


def audit_data(schema: DataSchema, data: DataConfig) -> AuditReport:
    """Read all parts of the data as training does, and audit them.

    Raises:
        UsageError: files are not named, a column is missing, or the texts have no answers.
        DataError: a file cannot be read as it stands.
    """
    if not schema.target or data.dataset != "files":
        what = f"an audit reads files of texts with answers, not those of {schema.task} ({data.dataset})"
        raise UsageError(what, "audit classify, multilabel, regress, tag or translate, with --train-file")
    diagnostics = Diagnostics()
    parts = read_parts(schema, data_parts(schema, data), data, diagnostics)
    diagnostics.raise_if_any()
    return audit(parts, schema.target, data.label_separator, [*dict.fromkeys(diagnostics.notes)])


def write_report(path: Path, findings: Sequence[AuditFinding]) -> None:
    """Write findings as a CSV with every field in quotes, atomically."""
    table = io.StringIO()
    rows = [[field.name for field in fields(AuditFinding)], *map(astuple, findings)]
    writer = csv.writer(table, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([safe_cell(str(cell)) for cell in row] for row in rows)
    atomic_write_text(path, table.getvalue())


def safe_cell(cell: str) -> str:
    """Return a cell that no spreadsheet takes for a formula: one that begins like it gets an apostrophe before it."""
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


# --- texts that are nearly equal ------------------------------------------------------------------------------------


NEAR = 0.8
"""Jaccard similarity of character n-grams from which texts count as nearly equal."""
WIDTH = 5
"""Characters of an n-gram; a shorter text is one n-gram."""
N_BANDS, N_ROWS = 20, 6
"""Bands and orders in each: a pair of similarity 0.8 has a band in common in 99.7% of cases, one of 0.5 in 27%."""
NEIGHBOURS = 4
CHUNK = 10_000
"""Pairs that are compared at a time."""


def normalised(text: str) -> str:
    """Return a text without case and repeated spaces; texts that are then the same count as equal."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def numbered(values: Sequence[Hashable]) -> Int[np.ndarray, " N"]:
    """Return the number of each value, counted from 0, the same for equal ones."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int64)


def near_duplicates(texts: Sequence[str], parts: Sequence[str]) -> list[tuple[int, int, float]]:
    """Return (text, an earlier one that is nearly equal, their similarity), in order; of each part the nearest."""
    from sklearn.feature_extraction.text import HashingVectorizer

    options: Any = {"n_features": 2**31 - 1, "alternate_sign": False, "norm": None, "binary": True, "dtype": np.float32}
    vectorizer = HashingVectorizer(analyzer="char", ngram_range=(WIDTH, WIDTH), preprocessor=_reduced, **options)
    grams: Any = vectorizer.transform(texts)
    sizes, best = np.diff(grams.indptr), dict[tuple[int, str], tuple[float, int]]()
    pairs = _with_a_band_in_common(grams)
    for earlier, later in (chunk.T for chunk in np.array_split(pairs, len(pairs) // CHUNK + 1)):
        both = np.asarray(grams[later].multiply(grams[earlier]).sum(axis=1), dtype=np.float64).ravel()
        similarity = both / (sizes[later] + sizes[earlier] - both)
        for k in np.flatnonzero(similarity >= NEAR).tolist():
            key, found = (int(later[k]), parts[int(earlier[k])]), (float(similarity[k]), -int(earlier[k]))
            best[key] = max(found, best.get(key, found))
    return [(later, -earlier, similarity) for (later, _), (similarity, earlier) in sorted(best.items())]


def _reduced(text: str) -> str:
    """Return a text without case, punctuation and repeated spaces; with punctuation if there is nothing else."""
    text = normalised(text)
    return (" ".join(re.findall(r"\w+", text)) or text).ljust(WIDTH, "\0")


def _with_a_band_in_common(grams: Any) -> Int[np.ndarray, "M 2"]:
    """Return the pairs (earlier, later) of texts to compare, given the n-grams of each as a row of a sparse matrix."""
    rng, n, found = np.random.default_rng(0), grams.shape[0], [np.zeros((0, 2), np.int64)]
    for _ in range(N_BANDS):
        band = np.empty((n, N_ROWS), np.uint32)
        for row in range(N_ROWS):
            shift, factor = rng.integers(2**32, size=2, dtype=np.uint32)
            mixed = (grams.indices.view(np.uint32) ^ shift) * (factor | np.uint32(1))  # an order of all n-grams
            band[:, row] = np.minimum.reduceat((mixed ^ mixed >> 15) * np.uint32(0x2C1B3C6D), grams.indptr[:-1])
        group = np.unique(band, axis=0, return_inverse=True)[1].ravel()
        order = np.argsort(group, kind="stable")
        first = np.searchsorted(group[order], group[order])
        for lag in (n, *range(1, NEIGHBOURS + 1)):
            earlier = np.maximum(first, np.arange(n) - lag)
            found.append(np.stack([order[earlier], order], axis=1)[earlier < np.arange(n)])
    return np.unique(np.concatenate(found), axis=0)
