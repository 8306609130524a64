"""The heads of an encoder, as data: classes, several labels, a number, a tag for each word, or the vector itself.

`tasks/encoder.py` is the one task that has a head; everything in which its kinds differ is here. A new kind is a head,
mostly `replace` of one of these, and `register(EncoderTask.of(head))`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.data.datasets.columns import LABEL, LABELS, NUMBER, TEXT, ColumnSpec, Rows
from glassformer.data.datasets.labels import labels_of, normalised_label, similarity_key
from glassformer.data.datasets.numbers import is_number, mean_and_sd, number_rank, why_no_number
from glassformer.data.datasets.tagged import TAGS, WORDS, read_tagged
from glassformer.data.diagnostics import Diagnostics
from glassformer.data.splits import Split
from glassformer.errors import DataError
from glassformer.evaluate import scores
from glassformer.evaluate.baselines import Baselines, class_baselines, label_baselines, number_baselines, tag_baselines
from glassformer.models.encoder_models import TextClassifier, TextEmbedder, TextRegressor, TokenClassifier
from glassformer.nn.cross_entropy import cross_entropy_sum
from glassformer.tasks import head_reports as reports
from glassformer.tasks.base import CLASSES, HASHED_NGRAMS, OF_LABELS, PARALLEL_FILES, SEVERAL_LABELS
from glassformer.tasks.probe import fit_classes, fit_labels, fit_number
from glassformer.tasks.reporting import TaskReport
from glassformer.tasks.settings import suggest_for_texts, suggest_for_words
from glassformer.text.answers import class_answer, labels_answer, number_answer, tags_answer, vector_answer
from glassformer.text.decision import Decision, yes_and_no
from glassformer.text.tags import OUTSIDE, are_plain, marks_span, spans_of, tag_names

WHOLE_NUMBER = re.compile(r"-?\d{1,18}")
"""A label that is sorted as a number: "--5" is a name, and so is a number too long to be meant as one."""
FEWEST_TO_CALIBRATE = 50
"""Validation texts from which a temperature is fitted to them."""
FIRST_OUTPUT = 0.1
"""What the random weights of the head of a number are multiplied by, so that its first outputs are near the mean."""
MANY_NUMBERS = 5
"""So many labels that are all numbers may be amounts."""
MANY_CLASSES = 20
"""So many classes, of which hardly one occurs twice, are no classes but another column."""


Names = Sequence[str]
Truth = Any
"""What is true of all texts, as `Head.array` makes it; of words a list with an array for each text."""
Outputs = Any
"""What a model answers with, as `Head.probabilities` makes it; of words a list with an array for each text."""


class Known(NamedTuple):
    """The texts of a split with what is true of them, and whether each is a pair."""

    texts: Sequence[str]
    truth: Truth
    pairs: bool


@dataclass(frozen=True)
class Head:
    """What an encoder answers with.

    Attributes:
        name: the task's.
        kind: the kind of model, `Task.explain_as`.
        report: how runs are reported.
        metric: the score that selects the checkpoint.
        ignores: settings that do not apply.
        columns: those of a table, of the text and of the answer.
        parts: an answer as written → the names in it; None where it is a number.
        check: notes what is wrong with the answers of training, given those and their names.
        named: the parts of all answers of training → the names of the outputs, in order.
        unit: what a name is of, in messages.
        model: builds the model from the configuration, the vocabulary's size, the number of names, the longest text,
            the number of n-grams and the bigrams.
        array: rows of targets, numbers of names or numbers as they are, and the number of names → what is scored.
        tensor: such an array → what the loss takes.
        loss: logits (N, …), targets and label smoothing → nats, summed.
        probabilities: logits (N, …) in double precision and the decision → the outputs as they are answered.
        answer: the text, its outputs, the names and the decision → the answer.
        true: an answer as written → as it stands beside that of the model.
        kept: an answer → what of it is stored with an evaluation.
        validated: truth, outputs and names → the scores of a validation.
        scored: truth, outputs, names and decision → the scores of an evaluation; None where nothing is scored.
        baselines: training and test texts, outputs, names and decision → scores of baselines.
        decided: truth and outputs of the validation split → fields of the decision; None where nothing is chosen.
        begin: sets the random linear layer before the first step, given the truth of the training texts.
        fit: vectors and truth of the training texts → weight and bias of the linear layer; None for no such start.
        suggest: the training split, the configuration, the names, and whether a text may have several → settings by
            field, and a description of the size.
        several: whether a text may have several names.
        per_word: whether each word has an answer.
        pools: whether the vectors of tokens are pooled into one.
        read, count: see `DataSchema`.
    """

    name: str
    kind: Any
    report: TaskReport
    metric: str = ""
    ignores: frozenset[str] = PARALLEL_FILES | HASHED_NGRAMS | {"model.tie_embeddings", "model.output_bias", "decode"}
    columns: tuple[ColumnSpec, ...] = (TEXT, LABEL)
    parts: Callable[[str], list[str]] | None = lambda answer: [answer]
    check: Callable[[Rows, Sequence[str], Diagnostics], None] = lambda rows, names, diagnostics: None
    named: Callable[[Sequence[str]], list[str]] = lambda parts: class_names(parts)
    unit: str = "label"
    model: Callable[..., nn.Module] = TextClassifier
    array: Callable[[Sequence[Any], int], np.ndarray] = lambda rows, n_names: np.asarray(rows, np.int64)
    tensor: Callable[[np.ndarray, Decision], Tensor] = lambda truth, decision: torch.from_numpy(truth).long()
    loss: Callable[[Tensor, Tensor, float], Tensor] = cross_entropy_sum
    probabilities: Callable[[Tensor, Decision], np.ndarray] = lambda logits, decision: logits.softmax(dim=-1).numpy()
    answer: Callable[..., dict[str, Any]] = class_answer
    true: Callable[[str], Any] = str
    kept: Callable[[dict[str, Any]], dict[str, Any]] = lambda answer: answer
    validated: Callable[[Truth, Outputs, Names], dict[str, float]] = lambda truth, outputs, names: {}
    scored: Callable[[Truth, Outputs, Names, Decision], dict[str, Any]] | None = None
    baselines: Callable[[Known, Known, Outputs, Names, Decision], Baselines] = lambda *known: {}
    decided: Callable[[np.ndarray, np.ndarray], dict[str, Any]] | None = None
    begin: Callable[[nn.Linear, np.ndarray], None] = lambda layer, truth: None
    fit: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None
    suggest: Callable[..., tuple[dict[str, Any], str]] = lambda *known: ({}, "")
    several: bool = False
    per_word: bool = False
    pools: bool = True
    read: Any = None
    count: Callable[[Split], Mapping[str, int]] = lambda split: {}

    def names(self, answers: Sequence[str], source: object = "") -> list[str] | None:
        """Return the names of the outputs, from the answers of training; None for a number.

        Raises:
            DataError: they are fewer than two, of a class of outputs that excludes the others.
        """
        if self.parts is None:
            return None
        names = self.named([part for answer in answers for part in self.parts(answer)])
        if len(names) < 2:
            at = f"{source}: " if source else ""
            hint = "choose the column with --label-column"
            raise DataError(f"{at}two or more {self.unit}s are needed, found {names}", hint)
        return names

    def rows(self, answers: Sequence[str], names: Sequence[str] | None, source: str) -> list[Any]:
        """Return the targets of each example: the number of its name, those of its names, or the number itself.

        Raises:
            DataError: training has no such name, or a number is none.
        """
        if self.parts is None:
            for row, answer in enumerate(answers, start=1):
                if what := why_no_number(answer):
                    raise DataError(f"{source}: example {row:,}: {what}", "mend or leave out this example")
            return [float(answer) for answer in answers]
        number = {spelled(name): i for spelled in (normalised_label, str) for i, name in enumerate(names or ())}
        parts = list(map(self.parts, answers))
        if unknown := {part for row in parts for part in row} - number.keys():
            what = f"{source}: no training example has the {self.unit} {min(unknown)!r}"
            raise DataError(what, "train on more examples: a larger --limit, or without one")
        found = [[number[part] for part in row] for row in parts]
        return found if self.several or self.per_word else [row[0] for row in found]

    def check_rows(
        self, rows: Mapping[str, Rows], diagnostics: Diagnostics, known: Sequence[str] | None = None
    ) -> None:
        """Note answers that cannot be used, by file and line; without known names those of training are known."""
        if self.parts is None:
            if self.columns[1:]:  # a bare encoder has no answers
                check_numbers(rows, diagnostics)
            return
        if known is None:
            n_before = diagnostics.n_issues
            try:
                known = self.names(rows["train"].answer) or []
                self.check(rows["train"], known, diagnostics)
            except DataError as error:
                diagnostics.error(rows["train"].path, 0, "label", error.message)
            if diagnostics.n_issues > n_before:
                return
        why = known_names(known or [], self.unit)
        for part in rows.values():
            for line, text, answer in zip(part.lines, part.text, part.answer, strict=True):
                for number, name in enumerate(self.parts(answer), start=1):
                    if name and (what := why(name)):  # an empty one was noted when it was read
                        word = f"word {number} ({text.split()[number - 1][:40]!r}): " if self.per_word else ""
                        diagnostics.error(part.path, line, "label", word + what)


def class_names(labels: Sequence[str]) -> list[str]:
    """Return the sorted classes among labels; as numbers if all of them are."""
    names = sorted(set(labels))
    return sorted(names, key=int) if all(map(WHOLE_NUMBER.fullmatch, names)) else names


def known_names(known: Sequence[str], unit: str) -> Callable[[str], str]:
    """Return a function that says why a name is not among the known ones; "" if it is."""
    shown = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
    names = {*known, *map(normalised_label, known)}
    similar = {similarity_key(name): name for name in known}

    def why_unknown(name: str) -> str:
        if name in names:
            return ""
        near = similar.get(similarity_key(name))
        but = f"; it differs from {near!r} in case, spaces or number form alone" if near else ""
        return f"{unit} {name!r} is not one of the training data's ({shown}){but}"

    return why_unknown


def check_classes(train: Rows, names: Sequence[str], diagnostics: Diagnostics) -> None:
    """Refuse a column that was taken for the labels and has hardly two rows of one; note labels that may be amounts."""
    if train.label_guessed and len(names) > MANY_CLASSES and len(names) > len(train.answer) / 2:
        shown = f"{len(names):,} different labels in {len(train.answer):,} rows"
        named = f", also if it is {train.columns[-1]!r}" if train.columns[-1] else ", which needs a header line"
        advice = f"choose it with --label-column{named}"
        diagnostics.error(train.path, 0, "label", f"{shown}: this can hardly be the column of labels; {advice}")
    elif len(names) >= MANY_NUMBERS and all(map(is_number, names)):
        note = f"the {len(names)} labels are numbers; if they are amounts, train regress answers with a number"
        diagnostics.notes.append(note)


def check_numbers(rows: Mapping[str, Rows], diagnostics: Diagnostics) -> None:
    """Note targets that are no numbers, by file and line, and training targets that are all the same."""
    train = rows.get("train")
    if train is not None and train.label_guessed and number_rank(train.answer)[0]:
        shown = repr(train.columns[-1]) if train.columns[-1] else f"with {train.answer[0][:40]!r}"
        wrong = next(filter(None, map(why_no_number, train.answer)), "")
        what = (
            f"no column of numbers was found, and column {shown} is the nearest ({wrong}); or name one: --label-column"
        )
        diagnostics.error(train.path, 0, "label", what)
        return
    n_before = diagnostics.n_issues
    for part in rows.values():
        for line, cell in zip(part.lines, part.answer, strict=True):
            if what := why_no_number(cell):
                diagnostics.error(part.path, line, "label", what)
    if train is not None and diagnostics.n_issues == n_before and len(set(map(float, train.answer))) == 1:
        what = f"all {len(train.answer):,} numbers are {train.answer[0]}, so there is nothing to learn"
        diagnostics.error(train.path, 0, "label", what)


def check_tags(train: Rows, names: Sequence[str], diagnostics: Diagnostics) -> None:
    """Refuse tags of spans among which others stand for themselves."""
    for line, text, answer in zip(train.lines, train.text, train.answer, strict=True):
        for number, (word, tag) in enumerate(zip(text.split(), labels_of(answer), strict=True), start=1):
            if not are_plain(names) and tag != OUTSIDE and not marks_span(tag):
                what = f"word {number} ({word[:40]!r}) has the tag {tag!r}, and other words have tags of spans, as B-X"
                diagnostics.error(train.path, line, "label", f"{what}; use one kind, with O outside of spans")
                return


def count_tags(split: Split) -> dict[str, int]:
    """Return how many words a part has, with each tag, and how many spans of each label."""
    counts: dict[str, int] = {"words": 0}
    for answer in split.answers:
        tags = labels_of(answer)
        counts["words"] += len(tags)
        for name in (*(f"words tagged {tag}" for tag in tags), *(f"spans of {span.label}" for span in spans_of(tags))):
            counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))


def scale_of(split: Split, numbers: Sequence[float]) -> Decision:
    """Return the decision that a regressor begins with; raise DataError where all numbers are the same."""
    mean, sd = mean_and_sd(np.array(numbers))
    if sd == 0:
        what = f"{split.source}: all {len(split):,} training numbers are {split.answers[0]}"
        raise DataError(f"{what}, so there is nothing to learn", "give examples with different numbers")
    return Decision(mean=mean, sd=sd)


# --- classes ---------------------------------------------------------------------------------------------------


def temperature(truth: np.ndarray, probabilities: np.ndarray, n: int | None = None) -> dict[str, float | None]:
    """Return the temperature of the decision, where n validation texts are enough to fit one."""
    if (len(truth) if n is None else n) < FEWEST_TO_CALIBRATE:
        return {}
    return {"temperature": scores.fit_temperature(truth, probabilities)}


CLASSIFY = Head(
    "classify",
    "classifier",
    reports.CLASSIFY,
    "accuracy",
    check=check_classes,
    validated=lambda truth, p, names: {"accuracy": float((p.argmax(axis=-1) == truth).mean())},
    scored=lambda truth, p, names, decision: (
        scores.class_scores(truth, p, names) | scores.calibrated_scores(truth, p, decision.temperature)
    ),
    baselines=lambda train, test, p, names, decision: class_baselines(
        train.texts, train.truth, test.texts, test.truth, p, train.pairs
    ),
    decided=temperature,
    fit=fit_classes,
    suggest=suggest_for_texts,
)
CLASSIFY = replace(CLASSIFY, ignores=CLASSIFY.ignores | SEVERAL_LABELS)


# --- several labels --------------------------------------------------------------------------------------------


def _multi_hot(rows: Sequence[Any], n_names: int) -> np.ndarray:
    truth = np.zeros((len(rows), n_names), bool)
    for i, numbers in enumerate(rows):
        truth[i, np.array(numbers, np.int64)] = True
    return truth


def _decisions(truth: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return several labels as classes: a text has each of them, or has it not."""
    return truth.ravel().astype(np.int64), yes_and_no(p.ravel())


def _validated_labels(truth: np.ndarray, p: np.ndarray, names: Names) -> dict[str, float]:
    answered = p >= scores.best_threshold(truth.ravel(), p.ravel())
    counts = scores.label_counts(truth, answered).sum(axis=0)
    return {"micro_f1": scores.f1(counts), "macro_f1": scores.macro_f1_of(truth, answered)}


def _scored_labels(truth: np.ndarray, p: np.ndarray, names: Names, decision: Decision) -> dict[str, Any]:
    found = scores.label_scores(truth, p, decision.answered(p), names)
    if calibrated := scores.calibrated_scores(*_decisions(truth, p), decision.temperature):
        found |= {"ece": scores.calibration(*_decisions(truth, p))[0]} | calibrated
    rows = zip(found["per_label"], decision.thresholds_of(names), strict=True)
    return found | {"per_label": [row | {"threshold": threshold} for row, threshold in rows]}


def _begin_labels(layer: nn.Linear, truth: np.ndarray) -> None:
    """Begin with each label as probable as it is in training: most are rare, and 0.5 would be far off."""
    shares = (truth.sum(axis=0) + 1) / (len(truth) + 2)
    layer.bias.copy_(torch.from_numpy(np.log(shares / (1 - shares))))


MULTILABEL = replace(
    CLASSIFY,
    name="multilabel",
    kind="multilabel_classifier",
    report=reports.MULTILABEL,
    metric="micro_f1",
    ignores=CLASSIFY.ignores - SEVERAL_LABELS | CLASSES,
    columns=(TEXT, LABELS),
    parts=labels_of,
    check=lambda rows, names, diagnostics: None,
    model=lambda *sizes: TextClassifier(*sizes, several=True),
    array=_multi_hot,
    probabilities=lambda logits, decision: logits.softmax(dim=-1)[..., 1].numpy(),
    answer=labels_answer,
    true=labels_of,
    validated=_validated_labels,
    scored=_scored_labels,
    baselines=lambda train, test, p, names, decision: label_baselines(
        train.texts, train.truth, test.texts, test.truth, train.pairs
    ),
    decided=lambda truth, p: (
        {"thresholds": scores.choose_thresholds(truth, p)} | temperature(*_decisions(truth, p), len(truth))
    ),
    begin=_begin_labels,
    fit=fit_labels,
    several=True,
)


# --- a number --------------------------------------------------------------------------------------------------


def squared_errors(outputs: Float[Tensor, "N 1"], targets: Float[Tensor, " N"], smoothing: float = 0.0) -> Tensor:
    """Return the squared errors of the standardised numbers, summed, in float32 or what the targets have."""
    return (outputs[:, 0].float() - targets).square().sum()


def _standardised(truth: np.ndarray, decision: Decision) -> Tensor:
    return torch.from_numpy(decision.standardised(truth).astype(np.float32))


def _begin_number(layer: nn.Linear, truth: np.ndarray) -> None:
    """Begin near the mean of the training numbers, so that the first steps need not undo what chance drew."""
    layer.weight.mul_(FIRST_OUTPUT)


REGRESS = replace(
    CLASSIFY,
    name="regress",
    kind="regressor",
    report=reports.REGRESS,
    metric="mae",  # in the units of the data, and one text that is far off does not choose the weights
    ignores=CLASSIFY.ignores | CLASSES | {"train.label_smoothing"},
    columns=(TEXT, NUMBER),
    parts=None,
    model=lambda config, vocab_size, n_names, *sizes: TextRegressor(config, vocab_size, 1, *sizes),
    array=lambda rows, n_names: np.asarray(rows, np.float64),
    tensor=_standardised,
    loss=squared_errors,
    probabilities=lambda logits, decision: decision.numbers(logits[:, 0].numpy()),
    answer=number_answer,
    true=float,
    validated=lambda truth, numbers, names: {"mae": float(np.abs(truth - numbers).mean()) if len(truth) else 0.0},
    scored=lambda truth, numbers, names, decision: scores.number_scores(truth, numbers),
    baselines=lambda train, test, numbers, names, decision: number_baselines(
        train.texts, train.truth, test.texts, test.truth, decision.scale, train.pairs
    ),
    decided=None,
    begin=_begin_number,
    fit=fit_number,
)


# --- tags ------------------------------------------------------------------------------------------------------


def _sentences(numbers: Sequence[np.ndarray], names: Names) -> list[list[str]]:
    return [[names[int(i)] for i in (row.argmax(axis=-1) if row.ndim > 1 else row)] for row in numbers]


def _validated_tags(truth: Truth, p: Outputs, names: Names) -> dict[str, float]:
    """Return the accuracy of tags and, where they mark spans, F1."""
    counts = scores.tag_counts(_sentences(truth, names), _sentences(p, names)).sum(axis=0)
    found = {"tag_accuracy": scores.ratio(counts[3:])}
    return found if are_plain(names) else found | {"span_f1": scores.f1(counts)}


def _tag_baselines(train: Known, test: Known, p: Outputs, names: Names, decision: Decision) -> Baselines:
    known = ([text.split() for text in each.texts] for each in (train, test))
    tags = (_sentences(each.truth, names) for each in (train, test))
    words, more = known
    of_words, of_more = tags
    return tag_baselines(words, of_words, more, of_more, are_plain(names))


TAG = replace(
    CLASSIFY,
    name="tag",
    kind="tagger",
    report=reports.TAG,
    metric="span_f1",
    ignores=CLASSIFY.ignores | OF_LABELS | {"model.pooling", "model.pooler", "text.truncate"},
    columns=(WORDS, TAGS),
    parts=labels_of,
    check=check_tags,
    named=tag_names,
    unit="tag",
    model=TokenClassifier,
    answer=tags_answer,
    true=lambda answer: " ".join(labels_of(answer)),
    kept=lambda answer: {"text": answer["text"], "tags": " ".join(answer["tags"])},
    validated=_validated_tags,
    scored=lambda truth, p, names, decision: scores.tag_scores(
        _sentences(truth, names), _sentences(p, names), are_plain(names)
    ),
    baselines=_tag_baselines,
    decided=None,
    fit=None,
    suggest=suggest_for_words,
    several=False,
    per_word=True,
    pools=False,
    read=read_tagged,
    count=count_tags,
)


# --- the vector itself -----------------------------------------------------------------------------------------


EMBED = Head(
    "embed",
    "text_embedder",
    reports.EMBED,
    "loss",
    ignores=CLASSIFY.ignores | OF_LABELS | {"model.pooler"},
    columns=(TEXT,),
    parts=None,
    model=lambda config, vocab_size, n_names, max_len, *_: TextEmbedder(config, vocab_size, max_len),
    probabilities=lambda vectors, decision: vectors.numpy(),
    answer=vector_answer,
)
HEADS = CLASSIFY, MULTILABEL, REGRESS, TAG, EMBED
