"""Self-training: texts that a trained classifier has labelled join the training part, as if people had labelled them.

A model of few labels predicts those of many texts, `glassformer predict RUN --json`, and the predictions of high
probability train another (Scudder 1965; Yarowsky 1995; pseudo-labels: Lee 2013). What people labelled keeps its label,
validation and test stay as they are, and so do the baselines beside a score: they learn from people's labels alone.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from glassformer.config import DataConfig
from glassformer.data.datasets.columns import Rows, encoding_issue
from glassformer.data.datasets.labels import clean_labels
from glassformer.data.datasets.tables import read_rows
from glassformer.data.diagnostics import Diagnostics
from glassformer.data.schema import DataSchema
from glassformer.data.splits import Split, TextData

MAX_LISTED = 20
"""Longest list of classes in the note."""


def with_pseudo_labels(schema: DataSchema, data: DataConfig, text: TextData) -> TextData:
    """Return `text` with the predictions of `data.pseudo_file` behind its training texts.

    Without a file, `text` itself.

    Added are the texts whose label has a probability of `data.pseudo_min_probability` or more. A text that is in any
    part already is not added: what people said of it stands, and validation and test are not trained on.

    Raises:
        DataError: the file is missing, malformed or not of predictions, has a label that the training part lacks, or
            adds nothing.
    """
    if data.pseudo_file is None:
        return text
    diagnostics = Diagnostics()
    parts = {name: _as_rows(split) for name, split in text.splits().items()}
    predictions, added = read_pseudo_labels(schema, data, parts, diagnostics)
    diagnostics.raise_if_any()
    joined = replace(
        text.train,
        text=[*text.train.text, *(predictions.text[i] for i in added)],
        answer=[*text.train.answers, *(predictions.answer[i] for i in added)],
        n_pseudo=len(added),
    )
    return replace(
        text,
        train=joined,
        notes=[*text.notes, *diagnostics.notes],
        hashes={**text.hashes, **diagnostics.hashes},
        counts=dict(Counter(text.counts) + diagnostics.counts),
        pipes=[*text.pipes, *diagnostics.pipes],
    )


def read_pseudo_labels(
    schema: DataSchema, data: DataConfig, parts: Mapping[str, Rows], diagnostics: Diagnostics
) -> tuple[Rows, list[int]]:
    """Read a file of predictions, and return with them which to train on: of high probability, with a text in no part.

    Args:
        schema: what the task reads; its check knows the labels of the training part.
        data: names the file and the lowest probability.
        parts: what people labelled: "train", "valid", "test".
        diagnostics: takes issues, and a note that counts what is added, class by class, and what is not.
    """
    path, least = Path(str(data.pseudo_file)), data.pseudo_min_probability
    predictions, probabilities = read_predictions(path, diagnostics)
    schema.check({"train": parts["train"], "pseudo": predictions}, diagnostics)
    likely = [i for i, probability in enumerate(probabilities) if probability >= least]
    known = {text for part in parts.values() for text in part.text}
    added = [i for i in likely if predictions.text[i] not in known]
    if predictions.text and not likely:
        message = f"none of {len(probabilities):,} labels has a probability of {least:g} or more"
        diagnostics.error(path, 0, "nothing new", f"{message} (the highest: {max(probabilities):.4f})")
    elif likely and not added:
        diagnostics.error(
            path, 0, "nothing new", "each of its texts is in the data set already; predict the labels of others"
        )
    counts = Counter(predictions.answer[i] for i in added)
    by_class = [f"{label} {counts[label]:,}" for label in sorted(set(parts["train"].answer))]
    shown = ", ".join(by_class[:MAX_LISTED]) + (", …" if len(by_class) > MAX_LISTED else "")
    diagnostics.notes.append(
        f"self-training: {len(added):,} of {len(parts['train'].text) + len(added):,} training texts were labelled by a "
        f"model ({path}, probability {least:g} or more): {shown}; of {len(probabilities):,} predictions, "
        f"{len(probabilities) - len(likely):,} are less probable and {len(likely) - len(added):,} of texts that the "
        "data set already has"
    )
    return predictions, added


def read_predictions(path: Path, diagnostics: Diagnostics) -> tuple[Rows, list[float]]:
    """Read a file that `glassformer predict --json` wrote of a classifier: texts, their labels, their probabilities."""
    texts, labels, lines, probabilities = list[str](), list[str](), array("q"), list[float]()
    for row in read_rows(path, diagnostics):
        match row.fields:
            case {"text": str(text), "label": str(label), "probability": float() | int() as p} if 0 <= p <= 1:
                if problem := encoding_issue(text):
                    diagnostics.error(path, row.line, *problem)
                    continue
                texts.append(text)
                labels.append(label)
                lines.append(row.line)
                probabilities.append(float(p))
            case _:
                expected = "a line of `glassformer predict --json` is expected: text, label, probability (0 to 1)"
                diagnostics.error(path, row.line, "columns", expected)
    return Rows(texts, clean_labels(path, lines, labels, diagnostics), lines, path), probabilities


def _as_rows(split: Split) -> Rows:
    return Rows(split.text, split.answers, range(len(split)), Path(split.source))
