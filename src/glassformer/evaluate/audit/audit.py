"""The audit of a data set: reads its parts as training does, runs every check, and returns what they find."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from glassformer.config import DataConfig
from glassformer.data.datasets.columns import DataSchema, Rows
from glassformer.data.datasets.labels import label_of_number, labels_of, rarest_labels
from glassformer.data.datasets.local_files import data_parts, load_text_data, read_parts
from glassformer.data.datasets.numbers import mean_and_sd
from glassformer.data.diagnostics import Diagnostics
from glassformer.data.sources import pipes_kept
from glassformer.errors import DataError, UsageError
from glassformer.evaluate.audit.duplicates import contradictions, groups_of, near_duplicates
from glassformer.evaluate.audit.features import OfTexts, WindowFeatures, text_features
from glassformer.evaluate.audit.findings import AuditFinding, AuditReport, Checks, FindingKind, Part
from glassformer.evaluate.audit.label_errors import judge_label_sets, judge_labels
from glassformer.evaluate.audit.label_leaks import label_leaks
from glassformer.evaluate.audit.pairs import (
    COPIED,
    LENGTH_LIMIT,
    OTHER_SIDE,
    USUAL,
    copied,
    length_deviations,
    other_language,
)
from glassformer.utils.formatting import counted, percent

logger = logging.getLogger(__name__)

Vectors = Callable[[Sequence[str]], np.ndarray]
"""Returns a vector for each text, as a trained model pools them."""


@pipes_kept()
def audit_data(schema: DataSchema, data: DataConfig, vectors: Vectors | None = None) -> AuditReport:
    """Read all parts of the data and look for faults in them; answers are judged by `vectors`, or else by words.

    Raises:
        UsageError: files are not named, a column is missing, or the data is running text.
        DataError: a file cannot be read as it stands.
    """
    if not schema.target:
        raise UsageError(
            f"{schema.task} has no answers to audit", "audit classify, multilabel, regress, tag or translate"
        )
    parts, notes = _read(schema, data)
    several = schema.target == "label" and schema.columns is not None and schema.columns[-1].separator is not None
    return audit_parts(parts, "labels" if several else schema.target, vectors, notes, data.files.label_separator)


def audit_parts(
    parts: Sequence[Part], answers: str, vectors: Vectors | None = None, notes: Sequence[str] = (), separator: str = ";"
) -> AuditReport:
    """Look for faults in parts that were read.

    Args:
        parts: texts with their answers.
        answers: what these are: "label", "labels" (one a line), "number", "tags" (one a line) or "target".
        vectors: judges the answers in place of words.
        notes: go into the report.
        separator: parts several labels in a finding.
    """
    if not any(map(len, parts)):
        raise DataError("there are no examples to audit", "check that the files have rows")
    checks, notes = Checks(), list(notes)
    logger.info(f"auditing {counted(sum(map(len, parts)), 'examples')}")
    sides = [[part.text, part.answer] if answers == "target" else [part.text] for part in parts]
    if n := sum(not all(text.strip() for text in texts) for part in sides for texts in zip(*part, strict=True)):
        what = f"{counted(n, 'pairs')} with an empty side"
        notes.append(what if answers == "target" else f"{counted(n, 'empty texts')} left out")
    if answers == "target":
        _check_pairs(parts, checks)
    elif answers == "tags":
        _check_tags(_Examples([_without_empty(part) for part in parts], answers), checks)
    else:
        _check_texts(_Examples([_without_empty(part) for part in parts], answers, separator), vectors, checks)
    return checks.report(parts, notes)


def _read(schema: DataSchema, data: DataConfig) -> tuple[list[Part], list[str]]:
    """Return the parts with the lines of their examples, and the notes of their reading."""
    if data.dataset != "files":
        loaded = load_text_data(schema, data)
        splits = loaded.splits().items()
        parts = [Part(n, s.source, s.text, s.answers, range(1, len(s) + 1), s.source) for n, s in splits]
        return parts, [*loaded.notes, *map(str, loaded.findings)]
    diagnostics = Diagnostics()
    files = data_parts(schema, data)
    rows = read_parts(schema, files, data, diagnostics)
    diagnostics.raise_if_any()
    return [_part(name, part, files[name]) for name, part in rows.items()], list(dict.fromkeys(diagnostics.notes))


def _part(name: str, rows: Rows, files: Path | tuple[Path, Path] | None) -> Part:
    target_file = str(files[1]) if isinstance(files, tuple) else str(rows.path)
    pairs = len(rows.columns) > 2  # without a header they have no names
    return Part(name, str(rows.path), rows.text, rows.answer, rows.lines, target_file, pairs)


def _without_empty(part: Part) -> Part:
    """Return a part without texts that are empty."""
    kept = [i for i, text in enumerate(part.text) if text.strip()]
    lines = [part.lines[i] for i in kept]
    return replace(part, text=[part.text[i] for i in kept], answer=[part.answer[i] for i in kept], lines=lines)


class _Examples:
    """The examples of all parts in one row, with the findings that they make.

    Attributes:
        answers: as they were read; a number as it is printed, so that 3 and 3.0 are equal.
        labels: as findings show them; nothing for tags, which a finding names one by one.
    """

    def __init__(self, parts: Sequence[Part], kind: str, separator: str = ";") -> None:
        self.kind = kind
        self.texts = [text for part in parts for text in part.text]
        self.answers = [answer for part in parts for answer in part.answer]
        if kind == "number":
            self.answers = [label_of_number(float(answer)) for answer in self.answers]
            self.sd = mean_and_sd(np.array(self.answers, dtype=float))[1] if self.answers else 1.0
        self.separator, self.pairs = separator, any(part.pairs for part in parts)
        self.labels = [self.shown(labels_of(answer)) for answer in self.answers]
        self.part_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        self.places = [part.place(i) for part in parts for i in range(len(part))]

    def shown(self, labels: Sequence[str]) -> str:
        """Return labels as a finding shows them and a table holds them; a text without any has an empty list."""
        if self.kind == "labels" and not labels:
            return "[]"
        return "" if self.kind == "tags" else self.separator.join(labels)

    def finding(
        self, kind: FindingKind, i: int, score: float = 1.0, other: int | None = None, suggested: str = ""
    ) -> AuditFinding:
        """Return a finding about an example, and another one."""
        place, label = self.places[i], self.labels[i]
        other_file, other_line = ("", 0) if other is None else self.places[other]
        found = AuditFinding(kind, *place, self.texts[i], label, suggested, score)
        other_label = "" if other is None else self.labels[other]
        return replace(found, other_file=other_file, other_line=other_line, other_label=other_label)

    def distance(self, i: int, j: int) -> float:
        """Return how far two answers are apart, at most 1: numbers in standard deviations, others always 1."""
        if self.kind != "number":
            return 1.0
        return min(1.0, abs(float(self.answers[i]) - float(self.answers[j])) / self.sd)


def _check_texts(examples: _Examples, vectors: Vectors | None, checks: Checks) -> None:
    """Look for faults of texts with a label, several labels, or a number each."""
    names = sorted({label for answer in examples.answers for label in labels_of(answer)})
    number_of = {name: i for i, name in enumerate(names)}
    labels = [[number_of[label] for label in labels_of(answer)] for answer in examples.answers]
    groups = groups_of(examples.texts)
    found = list[AuditFinding]()
    for i, j, most in contradictions(groups, examples.answers):
        suggested = "" if most is None else examples.shown(labels_of(most))
        found.append(examples.finding("contradiction", i, examples.distance(i, j), j, suggested))
    checks.add("contradiction", found)
    if examples.kind != "number":
        checks.add("label-leak", _leaks(examples, labels, names))
    _check_duplicates(examples, groups, checks)
    if not examples.texts:
        checks.add("label-error", "all texts are empty")
        return
    features_of = partial(text_features, examples.texts, vectors and vectors(examples.texts))
    if examples.kind == "number" or examples.pairs:
        of_what = "labels of pairs" if examples.pairs else "numbers"
        checks.add("label-error", f"most of what a model listed of {of_what} was right")
    elif examples.kind == "labels":
        _check_label_sets(examples, labels, names, groups, features_of, checks)
    else:
        judged = judge_labels(features_of, np.array(labels, dtype=np.int64)[:, 0], groups)
        if isinstance(judged, str):
            checks.add("label-error", judged)
            return
        checks.numbers |= judged.facts
        listed = [
            (i, float(judged.score[i]), names[int(judged.suggested[i])]) for i in np.flatnonzero(judged.listed).tolist()
        ]
        checks.add("label-error", [examples.finding("label-error", i, p, suggested=name) for i, p, name in listed])


def _check_label_sets(
    examples: _Examples,
    labels: Sequence[Sequence[int]],
    names: Sequence[str],
    groups: np.ndarray,
    features_of: Callable[[], OfTexts],
    checks: Checks,
) -> None:
    """List the texts with labels that are probably wrong or missing, each once, with the labels that are suggested."""
    given = np.zeros((len(labels), len(names)), dtype=bool)
    for i, each in enumerate(labels):
        given[i, each] = True
    number_of = {name: i for i, name in enumerate(names)}
    rarest = np.array([number_of.get(label, len(names)) for label in rarest_labels(examples.answers)])
    judged = judge_label_sets(features_of, given, rarest, groups)
    if isinstance(judged, str):
        checks.add("label-error", judged)
        return
    checks.numbers |= judged.facts
    found = list[AuditFinding]()
    for i in np.flatnonzero(judged.listed.any(axis=1)).tolist():
        suggested = examples.shown([names[k] for k in np.flatnonzero(judged.suggested[i]).tolist()])
        found.append(examples.finding("label-error", i, float(judged.score[i].max()), suggested=suggested))
    checks.add("label-error", found)


def _check_tags(examples: _Examples, checks: Checks) -> None:
    """Look for faults of sentences with a tag for each word; a finding about a tag names its word, counted from 1."""
    sentences, tags = ([each.split(by) for each in of] for of, by in ((examples.texts, " "), (examples.answers, "\n")))

    def about(finding: AuditFinding, word: int, suggested: str) -> AuditFinding:
        token, label = (of[word] for of in (finding.text.split(" "), finding.label.split("\n")))
        return replace(finding, label=label, suggested=suggested, token=token, numbers={"word": word + 1})

    exact = dict[str, int]()
    same = np.array([exact.setdefault(text, len(exact)) for text in examples.texts], dtype=np.int64)
    found = list[AuditFinding]()
    for i, j, most in contradictions(same, examples.answers):
        finding = replace(examples.finding("contradiction", i, other=j), label=examples.answers[i])
        differ = [k for k, pair in enumerate(zip(tags[i], tags[j], strict=True)) if pair[0] != pair[1]]
        for k in differ:
            about_word = about(finding, k, "" if most is None else tags[j][k])
            found.append(replace(about_word, other_label=tags[j][k]))
    checks.add("contradiction", found)
    _check_duplicates(examples, same, checks)
    names = sorted({tag for each in tags for tag in each})
    number_of = {name: i for i, name in enumerate(names)}
    labels = np.array([number_of[tag] for each in tags for tag in each], dtype=np.int64)
    sentence_of = np.repeat(np.arange(len(tags)), [len(each) for each in tags])
    judged = judge_labels(partial(WindowFeatures, sentences), labels, same[sentence_of])
    if isinstance(judged, str):
        checks.add("label-error", judged)
        return
    checks.numbers |= judged.facts
    first, found = np.searchsorted(sentence_of, np.arange(len(tags))), []
    for k in np.flatnonzero(judged.listed).tolist():
        i = int(sentence_of[k])
        finding = replace(examples.finding("label-error", i, float(judged.score[k])), label=examples.answers[i])
        found.append(about(finding, k - int(first[i]), names[int(judged.suggested[k])]))
    checks.add("label-error", found)


def _leaks(examples: _Examples, labels: Sequence[Sequence[int]], names: Sequence[str]) -> list[AuditFinding] | str:
    if len(names) < 2:
        return "all texts have one label"
    found = []
    for leak in label_leaks(examples.texts, labels):
        first, *others = leak.examples
        score = leak.n_both / leak.n_token
        other = others[0] if others else None
        numbers = {"with_token": leak.n_token, "with_both": leak.n_both, "with_label": leak.n_label}
        finding = replace(examples.finding("label-leak", first, score, other), label=names[leak.label])
        found.append(replace(finding, token=leak.token, numbers=numbers | {"p_value": leak.p_value}))
    return found


def _check_duplicates(examples: _Examples, groups: np.ndarray, checks: Checks) -> None:
    within, across = list[AuditFinding](), list[AuditFinding]()
    for later, earlier, similarity in near_duplicates(examples.texts, examples.part_of):
        same_label = examples.answers[later] == examples.answers[earlier]
        suggested = "" if same_label else examples.labels[earlier]
        if examples.part_of[later] != examples.part_of[earlier]:
            across.append(examples.finding("split-overlap", later, similarity, earlier, suggested=suggested))
        elif same_label or groups[later] != groups[earlier]:  # others are contradictions
            within.append(examples.finding("near-duplicate", later, similarity, earlier, suggested=suggested))
    if len(np.unique(examples.part_of)) > 1:
        checks.add("split-overlap", across)
    checks.add("near-duplicate", within)


class _Pairs:
    """The pairs of all parts in one row, with the findings that they make."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = parts
        self.source = [text for part in parts for text in part.text]
        self.target = [text for part in parts for text in part.answer]
        self.where = [(part, i) for part in parts for i in range(len(part))]
        self.full = np.array([bool(a.strip() and b.strip()) for a, b in zip(self.source, self.target, strict=True)])

    def finding(self, kind: FindingKind, i: int, score: float, at_target: bool = False) -> AuditFinding:
        """Return a finding about a pair, placed at its source or at its target."""
        part, row = self.where[i]
        line = int(part.lines[row])
        file, other = (part.target_file, part.file) if at_target else (part.file, part.target_file)
        found = AuditFinding(kind, file, line, self.source[i], target=self.target[i], score=score)
        return found if file == other else replace(found, other_file=other, other_line=line)

    def overlaps(self) -> Iterator[AuditFinding]:
        """Yield each pair that is nearly equal to one of an earlier part."""
        part_of = np.repeat(np.arange(len(self.parts)), [len(part) for part in self.parts])
        both = [f"{source} {target}" for source, target in zip(self.source, self.target, strict=True)]
        for later, earlier, similarity in near_duplicates(both, part_of):
            if part_of[later] != part_of[earlier] and self.full[later]:
                (part, row), finding = self.where[earlier], self.finding("split-overlap", later, similarity)
                yield replace(finding, other_file=part.file, other_line=int(part.lines[row]))


def _check_pairs(parts: Sequence[Part], checks: Checks) -> None:
    """Look for faults of pairs; what follows from another one is not listed: a copy is of the other language, too."""
    pairs = _Pairs(parts)
    explained = ~pairs.full
    if len(parts) > 1:
        checks.add("split-overlap", list(pairs.overlaps()))
    shares = copied(pairs.source, pairs.target)
    copies = (shares >= COPIED) & pairs.full
    if copies.mean() >= USUAL:
        checks.add("copied-source", f"{percent(float(copies.mean()))} of the targets are like their sources")
    else:
        found = [pairs.finding("copied-source", i, float(shares[i]), True) for i in np.flatnonzero(copies).tolist()]
        checks.add("copied-source", found)
        explained |= copies
    odds = other_language(pairs.source, pairs.target)
    if isinstance(odds, str):
        checks.add("wrong-language", odds)
    else:
        found = list[AuditFinding]()
        for at_target, each in enumerate(odds):
            index = np.flatnonzero((each >= OTHER_SIDE) & ~copies).tolist()
            found += [pairs.finding("wrong-language", i, float(each[i]), bool(at_target)) for i in index]
            explained[index] = True
        checks.add("wrong-language", found)
    deviations = length_deviations(pairs.source, pairs.target)
    if isinstance(deviations, str):
        checks.add("length", deviations)
    else:
        index = np.flatnonzero((np.abs(deviations) >= LENGTH_LIMIT) & ~explained).tolist()
        found = [
            replace(pairs.finding("length", i, abs(z)), numbers={"z": z}) for i in index if (z := float(deviations[i]))
        ]
        checks.add("length", found)
