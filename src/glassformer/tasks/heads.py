"""The heads of an encoder, as data: classes, several labels, a number, a tag for each word, or the vector itself.

`tasks/encoder.py` is the one task that has a head; everything in which its kinds differ is here. A new kind is a head,
mostly `replace` of one of these, and `register(EncoderTask.of(head))`. A head that is new to a pretrained encoder
starts from a linear probe, and not from random weights, whose large first gradients would distort what the encoder has
learned (Kumar et al. 2022, "Fine-Tuning can Distort Pretrained Features and Underperform Out-of-Distribution").
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from glassformer.data.datasets.columns import LABEL, LABELS, NUMBER, TEXT, ColumnSpec
from glassformer.data.datasets.labels import labels_of, mean_and_sd, normalised_label, why_no_number
from glassformer.data.datasets.tagged import TAGS, WORDS
from glassformer.data.diagnostics import Diagnostics
from glassformer.data.splits import Split
from glassformer.errors import DataError, UsageError
from glassformer.evaluate import baselines, scores
from glassformer.evaluate.baselines import Baselines, Known
from glassformer.evaluate.metrics import Metric
from glassformer.evaluate.scoring import Predictions, Scoring, f1, ratio, share
from glassformer.models.encoder_models import TextClassifier, TextEmbedder, TokenClassifier
from glassformer.nn.cross_entropy import cross_entropy_sum
from glassformer.runs.records import Evaluation
from glassformer.tasks.base import HASHED_NGRAMS, OF_LABELS, PARALLEL_FILES, SEVERAL_LABELS
from glassformer.tasks.reporting import TaskReport
from glassformer.text.answers import Decision
from glassformer.text.words import are_plain, spans_of, tag_names
from glassformer.utils import plotting as ps
from glassformer.utils.formatting import number, percent, shortened, table

WHOLE_NUMBER = re.compile(r"-?\d{1,18}")
"""A label that is sorted as a number: "--5" is a name, and so is a number too long to be meant as one."""
FEWEST_TO_CALIBRATE = 50
"""Validation texts from which a temperature is fitted to them."""
FIRST_OUTPUT = 0.1
"""What the random weights of the head of a number are multiplied by, so that its first outputs are near the mean."""
READS_TEXTS = PARALLEL_FILES | HASHED_NGRAMS | {"model.tie_embeddings", "model.output_bias", "decode"}
"""Settings that do not apply to any head."""

Names = Sequence[str]


@dataclass(frozen=True)
class Head:
    """What an encoder answers with.

    What is true of all texts is an array as `array` makes it, what they are answered with one as `probabilities` makes
    it; of words each is a list with an array for each text.

    Attributes:
        name: the task's.
        kind: the kind of model, `Task.explain_as`.
        report: how runs are reported; its headline is the score that selects the checkpoint.
        ignores: settings that do not apply.
        columns: those of a table, of the text and of the answer.
        unit: what the name of an output is of, in messages; "" where outputs have none, as a number.
        several: whether a text may have several names.
        per_word: whether each word has an answer.
        model: builds the model from the configuration, the vocabulary's size, the number of outputs, the longest text,
            the number of n-grams and the bigrams.
        array: rows of targets, numbers of names or numbers as they are, and the number of names → what is scored.
        loss: logits (N, …), targets and label smoothing → nats, summed.
        probabilities: logits (N, …) in double precision and the decision → the outputs as they are answered.
        true: an answer as written → as it stands beside that of the model.
        kept: an answer → what of it is stored with an evaluation.
        validated: truth, outputs and names → the scores of a validation.
        scored: truth, outputs, names and decision → the scores of an evaluation.
        baselines: training and test texts, outputs, names and decision → scores of baselines.
        decided: truth and outputs of the validation split → fields of the decision; None where nothing is chosen.
        begin: sets the random linear layer before the first step, given the truth of the training texts.
    """

    name: str
    kind: Any
    report: TaskReport
    ignores: frozenset[str]
    columns: tuple[ColumnSpec, ...] = (TEXT, LABEL)
    unit: str = "label"
    several: bool = False
    per_word: bool = False
    model: Callable[..., nn.Module] = TextClassifier
    array: Callable[[Sequence[Any], int], Any] = lambda rows, n_names: np.asarray(rows, np.int64)
    loss: Callable[[Tensor, Tensor, float], Tensor] = cross_entropy_sum
    probabilities: Callable[[Tensor, Decision], np.ndarray] = lambda logits, decision: logits.softmax(dim=-1).numpy()
    true: Callable[[str], Any] = str
    kept: Callable[[dict[str, Any]], dict[str, Any]] = lambda answer: answer
    validated: Callable[[Any, Any, Names], dict[str, float]] = lambda truth, outputs, names: {}
    scored: Callable[[Any, Any, Names, Decision], dict[str, Any]] = lambda truth, outputs, names, decision: {}
    baselines: Callable[[Known, Known, Any, Names, Decision], Baselines] = lambda *known: {}
    decided: Callable[[np.ndarray, np.ndarray], dict[str, Any]] | None = None
    begin: Callable[[nn.Linear, np.ndarray], None] = lambda layer, truth: None

    def parts(self, answer: str) -> list[str]:
        """Return the names in an answer as written."""
        return labels_of(answer) if self.several or self.per_word else [answer]

    def names(self, answers: Sequence[str], source: object) -> list[str]:
        """Return the names of the outputs in order, from the answers of training; fewer than two are a DataError."""
        found = {part for answer in answers for part in self.parts(answer)}
        as_numbers = all(map(WHOLE_NUMBER.fullmatch, found))
        names = tag_names(found) if self.per_word else sorted(sorted(found), key=int if as_numbers else str)
        if len(names) < 2:
            message = f"{source}: two or more {self.unit}s are needed, found {names}"
            raise DataError(message, "choose the column with --label-column")
        return names

    def rows(self, answers: Sequence[str], names: Names | None, source: str) -> list[Any]:
        """Return the targets of each example: the number of its name, those of its names, or the number itself.

        Raises:
            DataError: training has no such name.
        """
        if not self.unit:
            return [float(answer) for answer in answers]
        number = {spelled(name): i for spelled in (normalised_label, str) for i, name in enumerate(names or ())}
        try:
            found = [[number[part] for part in self.parts(answer)] for answer in answers]
        except KeyError as error:
            what = f"{source}: no training example has the {self.unit} {error}"
            raise DataError(what, "train on more examples: a larger --limit, or without one") from error
        if self.several:
            return [sorted({*row}) for row in found]
        return found if self.per_word else [row[0] for row in found]

    def check_rows(self, parts: Mapping[str, Split], diagnostics: Diagnostics, known: Names = ()) -> None:
        """Note answers that cannot be used, by file and line; without known names those of training are known."""
        if not self.columns[1:] or (self.per_word and diagnostics.n_issues):
            return  # a bare encoder has no answers; of tags in another form each would be unknown
        if self.unit and not known:
            if (found := diagnostics.noted(self.names, parts["train"])) is None:
                return
            known = found
        names, shown = {*known, *map(normalised_label, known)}, ", ".join(known[:10]) + ", …" * (len(known) > 10)
        for part in parts.values():
            for line, text, answer in zip(part.lines or repeat(0), part.text, part.answers, strict=False):
                for place, name in enumerate(self.parts(answer)):
                    what = "" if self.unit else why_no_number(name)
                    if self.unit and name and name not in names:  # an empty one was noted when it was read
                        word = f"word {place + 1} ({text.split()[place][:40]!r}): " if self.per_word else ""
                        what = f"{word}{self.unit} {name!r} is not one of the training data's ({shown})"
                    if what:
                        diagnostics.error(Path(part.source), line, "label", what)
        if not (self.unit or diagnostics.n_issues) and (train := parts.get("train")):
            diagnostics.noted(scale_of, train)


def count_tags(split: Split) -> dict[str, int]:
    """Return how many words a part has, with each tag, and how many spans of each label."""
    sentences = [labels_of(answer) for answer in split.answers]
    counts = Counter(f"words tagged {tag}" for tags in sentences for tag in tags)
    counts.update(f"spans of {span.label}" for tags in sentences for span in spans_of(tags))
    return dict(sorted({**counts, "words": sum(map(len, sentences))}.items()))


def scale_of(answers: Sequence[str], source: object) -> Decision:
    """Return the decision that a regressor begins with; raise DataError where all numbers are the same."""
    mean, sd = mean_and_sd(np.array([float(answer) for answer in answers]))
    if sd == 0:
        what = f"{source}: all {len(answers):,} training numbers are {answers[0]}"
        raise DataError(f"{what}, so there is nothing to learn", "give examples with different numbers")
    return Decision(mean=mean, sd=sd)


# --- how runs are reported -------------------------------------------------------------------------------------

MOST_ROWS = 60
"""Most classes, labels or tags of a table or a picture."""


def confusion_matrix(evaluation: Evaluation) -> bytes | None:
    """Draw what was taken for what, each row coloured by its own shares; None for more classes than a picture shows."""
    counts, names = np.array(evaluation.scores.get("confusion") or [[]], int), evaluation.scores.get("label_names")
    n = len(counts)
    if not names or not 2 <= n <= MOST_ROWS:
        return None
    figure, axes = ps.new_figure(6.0, "Confusion", "Rows: true class; columns: predicted", width=5.5)
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 0.86))  # below the title
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Reds", vmin=0, vmax=1, aspect="auto")
    axes.grid(visible=False)
    label: Any = {"labels": [shortened(name, 18) for name in names], "fontsize": min(10, 250 / n), "parse_math": False}
    axes.set_xticks(np.arange(n), rotation=45, ha="right", **label)
    axes.set_yticks(np.arange(n), **label)
    for (row, column), count in np.ndenumerate(counts):
        colour = ps.PAPER if shares[row, column] > 0.6 else ps.INK
        axes.text(column, row, f"{count:,}", ha="center", va="center", color=colour, fontsize=label["fontsize"])
    return ps.png(figure)


# --- tables -----------------------------------------------------------------------------------------------------


def tables(evaluation: Evaluation) -> list[str]:
    """Return what follows the scores: precision, recall and F1 of each class or label as Markdown."""
    keys, written = ("precision", "recall", "f1"), list[str]()
    for unit in ("class", "label"):
        rows = evaluation.scores.get(f"per_{unit}") or []
        cells = [[row["label"], *(percent(row[key]) for key in keys), f"{row['support']:,}"] for row in rows]
        written += [table([unit, *keys, "examples"], cells)] if 1 <= len(rows) <= MOST_ROWS else []
    return written


BASELINES = {
    "majority": "majority class",
    "frequent": "most frequent answer",
    "mean": "mean of the training numbers",
    "tfidf_logistic": "TF-IDF + logistic regression",
    "tfidf_ridge": "TF-IDF + ridge regression",
    "window": "linear model of a window",
    "probe": "frozen encoder + linear model",
}
ENCODER = TaskReport(baselines=BASELINES, details=tables)


# --- classes ---------------------------------------------------------------------------------------------------


def temperature(truth: np.ndarray, probabilities: np.ndarray) -> dict[str, float | None]:
    """Return the temperature of the decision, where there are validation texts enough to fit one."""
    return {"temperature": scores.fit_temperature(truth, probabilities)} if len(truth) >= FEWEST_TO_CALIBRATE else {}


CLASSIFY = Head(
    "classify",
    "classifier",
    replace(
        ENCODER,
        model_name="text classifier",
        table_metrics=("accuracy", "macro_f1", "ece", "ece_calibrated", "log_loss"),
        plots={"confusion": (confusion_matrix, "What is taken for what.")},
        limits="It knows its classes and nothing else: any text gets one of them, also one unlike its training data.",
        comparison_keys=("truth", "label"),
    ),
    READS_TEXTS | SEVERAL_LABELS,
    validated=lambda truth, p, names: {"accuracy": float((p.argmax(axis=-1) == truth).mean())},
    scored=lambda truth, p, names, decision: (
        scores.class_scores(truth, p, names) | scores.calibrated_scores(truth, p, decision.temperature)
    ),
    baselines=lambda train, test, p, names, decision: baselines.class_baselines(train, test),
    decided=temperature,
)


# --- several labels --------------------------------------------------------------------------------------------


MICRO_F1 = Scoring(
    "micro_f1", lambda rows: scores.set_counts([({*row["truth"]}, {*row["labels"]}) for row in rows]), f1, unit="texts"
)


def _multi_hot(rows: Sequence[Any], n_names: int) -> np.ndarray:
    truth = np.zeros((len(rows), n_names), bool)
    for i, numbers in enumerate(rows):
        truth[i, np.array(numbers, np.int64)] = True
    return truth


def _validated_labels(truth: np.ndarray, p: np.ndarray, names: Names) -> dict[str, float]:
    answered = p >= scores.best_threshold(truth.ravel(), p.ravel())
    return {"micro_f1": scores.f1(scores.label_counts(truth, answered).sum(axis=0))}


def _begin_labels(layer: nn.Linear, truth: np.ndarray) -> None:
    """Begin with each label as probable as it is in training: most are rare, and 0.5 would be far off."""
    layer.bias.copy_(torch.from_numpy(prior_logits(truth)))


MULTILABEL = Head(
    "multilabel",
    "multilabel_classifier",
    replace(
        CLASSIFY.report,
        model_name="text classifier of several labels",
        metrics=(
            Metric("micro_f1", "Micro F1", "0–100%, over the decisions of all labels", percent),
            Metric("all_right", "All labels right", "share of texts whose labels are all right", percent),
            Metric("log_loss", "Log loss", "nats per label and text", number, False),
        ),
        table_metrics=(),
        guesses_evenly=False,
        limits="It knows its labels and nothing else. Its thresholds suit labels as frequent as in validation.",
        comparison_keys=("truth", "labels"),
        scored=lambda scores: MICRO_F1,
    ),
    READS_TEXTS,
    columns=(TEXT, LABELS),
    several=True,
    model=partial(TextClassifier, several=True),
    array=_multi_hot,
    probabilities=lambda logits, decision: logits.softmax(dim=-1)[..., 1].numpy(),
    true=labels_of,
    validated=_validated_labels,
    scored=lambda truth, p, names, decision: scores.label_scores(truth, p, decision.answered(p), names),
    baselines=lambda train, test, p, names, decision: baselines.label_baselines(train, test),
    decided=lambda truth, p: {"thresholds": scores.choose_thresholds(truth, p)},
    begin=_begin_labels,
)


# --- a number --------------------------------------------------------------------------------------------------


def _errors(predictions: Predictions) -> np.ndarray:
    """Return of each text its absolute error and 1, (N, 2)."""
    return np.array([(abs(float(row["number"]) - float(row["truth"])), 1) for row in predictions], float)


MAE = Scoring("mae", _errors, ratio, unit="texts")
UNIT = "in the unit of the numbers, lower is better"
_three_places = "{:.3f}".format


def squared_errors(outputs: Float[Tensor, "N 1"], targets: Float[Tensor, " N"], smoothing: float = 0.0) -> Tensor:
    """Return the squared errors of the standardised numbers, summed, in float32 or what the targets have."""
    return (outputs[:, 0].float() - targets).square().sum()


def _begin_number(layer: nn.Linear, truth: np.ndarray) -> None:
    """Begin near the mean of the training numbers, so that the first steps need not undo what chance drew."""
    layer.weight.mul_(FIRST_OUTPUT)


REGRESS = Head(
    "regress",
    "regressor",
    replace(
        MULTILABEL.report,
        model_name="text regressor",
        loss_unit="squared error",
        metrics=(
            # First the mean absolute error: one text that is far off does not choose weights.
            Metric("mae", "Mean absolute error", UNIT, number, False),
            Metric("rmse", "Root mean squared error", f"{UNIT}; large errors count more", number, False),
            Metric("r2", "R²", "share of the variance explained; 0 is the mean of these numbers", _three_places),
            Metric("pearson", "Pearson correlation", "−1 to 1; 0 is chance", _three_places),
            Metric("spearman", "Spearman correlation", "−1 to 1; 0 is chance; of the ranks", _three_places),
        ),
        plots={},
        limits="It gives a number for any text, also one unlike its training data, and does not say how sure it is.",
        comparison_keys=("truth", "number"),
        scored=lambda scores: MAE,
    ),
    READS_TEXTS | SEVERAL_LABELS | {"train.label_smoothing"},
    columns=(TEXT, NUMBER),
    unit="",
    array=lambda rows, n_names: np.asarray(rows, np.float64),
    loss=squared_errors,
    probabilities=lambda logits, decision: decision.numbers(logits[:, 0].numpy()),
    true=float,
    validated=lambda truth, numbers, names: {"mae": float(np.abs(truth - numbers).mean()) if len(truth) else 0.0},
    scored=lambda truth, numbers, names, decision: scores.number_scores(truth, numbers),
    baselines=lambda train, test, *_: baselines.number_baselines(train, test),
    begin=_begin_number,
)


# --- tags ------------------------------------------------------------------------------------------------------


def _counts_of_spans(predictions: Predictions) -> np.ndarray:
    """Return of each sentence the counts of spans and of tags, (N, 5)."""
    return scores.tag_counts(*([str(row[key]).split() for row in predictions] for key in ("truth", "tags")))


SPAN_F1 = Scoring("span_f1", _counts_of_spans, f1, unit="sentences")
TAG_ACCURACY = Scoring("tag_accuracy", lambda rows: _counts_of_spans(rows)[:, 3:], share, unit="sentences")


def _sentences(numbers: Sequence[np.ndarray], names: Names) -> list[list[str]]:
    return [[names[int(i)] for i in (row.argmax(axis=-1) if row.ndim > 1 else row)] for row in numbers]


def _validated_tags(truth: Any, p: Any, names: Names) -> dict[str, float]:
    """Return the accuracy of tags and, where they mark spans, F1."""
    counts = scores.tag_counts(_sentences(truth, names), _sentences(p, names)).sum(axis=0)
    found = {"tag_accuracy": scores.ratio(counts[3:])}
    return found if are_plain(names) else found | {"span_f1": scores.f1(counts)}


def _tag_baselines(train: Known, test: Known, p: Any, names: Names, decision: Decision) -> Baselines:
    words, more = ([text.split() for text in each.texts] for each in (train, test))
    truth, of_test = _sentences(train.truth, names), _sentences(test.truth, names)
    return baselines.tag_baselines(words, truth, more, of_test, are_plain(names))


TAG = Head(
    "tag",
    "tagger",
    replace(
        ENCODER,
        model_name="tagger of words",
        unit="sentences",
        metrics=(
            Metric("span_f1", "Span F1", "0–100%, micro: borders and label right", percent),
            Metric("span_precision", "Span precision", "share of answered spans that are right", percent),
            Metric("span_recall", "Span recall", "share of true spans that are answered", percent),
            Metric("tag_accuracy", "Tag accuracy", "share of words whose tag is right", percent),
        ),
        limits="It knows the tags of its training data. Running text is cut by white space and punctuation.",
        comparison_keys=("truth", "tags"),
        scored=lambda scores: TAG_ACCURACY if scores.get("headline") == "tag_accuracy" else SPAN_F1,
    ),
    READS_TEXTS | OF_LABELS | {"model.pooling", "model.pooler", "text.truncate"},
    columns=(WORDS, TAGS),
    unit="tag",
    per_word=True,
    model=TokenClassifier,
    array=lambda rows, n_names: [np.asarray(row, np.int64) for row in rows],
    true=lambda answer: " ".join(labels_of(answer)),
    kept=lambda answer: {"text": answer["text"], "tags": " ".join(answer["tags"])},
    validated=_validated_tags,
    scored=lambda truth, p, names, decision: scores.tag_scores(
        _sentences(truth, names), _sentences(p, names), are_plain(names)
    ),
    baselines=_tag_baselines,
)


# --- the vector itself -----------------------------------------------------------------------------------------


def _no_score(*given: Any) -> Any:
    hint = "fine-tune it: glassformer train classify --init-from with the folder of its run"
    raise UsageError("a bare encoder gives vectors, and no answer to score", hint)


EMBED = Head(
    "embed",
    "text_embedder",
    replace(
        ENCODER,
        model_name="text encoder",
        table_metrics=("loss",),
        limits="It gives a vector for a text, and no answer. It is meant to be fine-tuned.",
    ),
    READS_TEXTS | OF_LABELS | {"model.pooler"},
    columns=(TEXT,),
    unit="",
    model=lambda config, vocab_size, n_outputs, max_len, *_: TextEmbedder(config, vocab_size, max_len),
    loss=_no_score,
    array=REGRESS.array,  # of texts without answers
    probabilities=lambda vectors, decision: vectors.numpy(),
)
HEADS = CLASSIFY, MULTILABEL, REGRESS, TAG, EMBED


# --- a probe: a linear layer fitted to the vectors of a pretrained encoder ------------------------------------------


PENALTIES = 0.001, 0.003, 0.01, 0.03, 0.1
"""Inverse strengths of the L2 penalty to choose from, for vectors whose features have a mean square of 1."""
FOLDS, ONE_FOLD_FROM = 5, 2000
"""The strength is chosen on held-out fifths of the training texts: all five, or from so many texts on the first."""

Layer = tuple[Float[np.ndarray, "O P"], Float[np.ndarray, " O"]]
"""Weight and bias."""


def fit_layer(vectors: Float[np.ndarray, "N P"], truth: np.ndarray) -> Layer:
    """Return a linear model of pooled vectors: a ridge of numbers, a logistic regression of classes, (N,).

    Of two classes it has the logit of the second. Of several labels (N, L), some of which all texts may have, it is one
    for each, with the penalty of the label that most texts have.
    """
    x, unscaled = _scaled(vectors)
    if truth.ndim == 1:
        return unscaled(_fitted(x, truth, _penalty(x, truth)))
    weight, bias = np.zeros((truth.shape[1], vectors.shape[1])), prior_logits(truth)
    if mixed := [k for k in range(truth.shape[1]) if 0 < truth[:, k].sum() < len(truth)]:
        penalty = _penalty(x, truth[:, max(mixed, key=lambda k: truth[:, k].sum())].astype(np.int64))
        for k in mixed:
            weight[k : k + 1], bias[k : k + 1] = unscaled(_fitted(x, truth[:, k], penalty))
    return weight, bias


def prior_logits(labels: Bool[np.ndarray, "N L"]) -> Float[np.ndarray, " L"]:
    """Return the logits by which each label is as probable as it is in training."""
    shares = (labels.sum(axis=0) + 1) / (len(labels) + 2)
    return np.log(shares / (1 - shares))


def _scaled(vectors: np.ndarray) -> tuple[np.ndarray, Callable[[Any], Layer]]:
    """Return centred vectors whose features have a mean square of 1, and what turns a model of them into a layer."""
    center = vectors.mean(axis=0)
    scale = max(float(np.sqrt(np.square(vectors - center).mean())), 1e-12)

    def unscaled(fitted: Any) -> Layer:
        weight = np.atleast_2d(fitted.coef_) / scale
        return weight, fitted.intercept_ - weight @ center

    return (vectors - center) / scale, unscaled


def _fitted(x: np.ndarray, truth: np.ndarray, penalty: float) -> Any:
    from sklearn.linear_model import LogisticRegression, Ridge

    if truth.dtype.kind == "f":
        return Ridge(alpha=1 / penalty).fit(x, truth)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "did not converge": it is where a training starts
        return LogisticRegression(C=penalty, max_iter=500).fit(x, truth)


def _penalty(x: np.ndarray, truth: np.ndarray) -> float:
    """Return the inverse strength with the most right answers, or the least squared error, on held-out texts."""
    folds, scores = np.random.default_rng(0).permutation(len(truth)) % FOLDS, np.zeros(len(PENALTIES))
    for fold in range(FOLDS if len(truth) < ONE_FOLD_FROM else 1):
        held = folds == fold
        if not held.any() or len(np.unique(truth[~held])) < 2:
            continue
        for i, penalty in enumerate(PENALTIES):
            predicted = _fitted(x[~held], truth[~held], penalty).predict(x[held])
            right = -np.square(predicted - truth[held]) if truth.dtype.kind == "f" else predicted == truth[held]
            scores[i] += right.sum()
    return PENALTIES[int(scores.argmax())]
