"""Self-training: texts that a trained model has labelled join the training part, as if people had labelled them.

A model of few labels labels many texts, `glassformer data label`, and what it is sure of trains another (Scudder 1965;
Yarowsky 1995; pseudo-labels: Lee 2013). What people labelled keeps its label, validation and test stay as they are,
and so does the yardstick beside a score: a bag of words learns from people's labels alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from glassformer.config import DataConfig
from glassformer.data import imdb
from glassformer.data.columns import TEXT, Rows
from glassformer.data.forms import Form
from glassformer.data.own_files import read_parts
from glassformer.data.reading import Findings
from glassformer.data.splits import Split, TextData
from glassformer.errors import UsageError

WITHOUT_LABELS = {"imdb": imdb.load_texts}
"""What belongs to a built-in data set and has no labels, what its validation part must not know left out."""
_TEXTS = Form("label", (TEXT,))


def without_labels(files: Sequence[Path], data: DataConfig, column: str | None = None) -> Split:
    """Texts to be labelled: those of files, or those that belong to the built-in data set a model was trained on.

    Args:
        files: .txt, one text a line; CSV, TSV, JSON Lines; folders of .txt. None: the data set's own.
        data: what the model was trained on.
        column: that of the texts in a table; guessed when absent.

    Raises:
        UsageError: no files, and the data set has no texts without labels.
        DataError: a file is missing or malformed, or holds no text.
    """
    if not files:
        if data.dataset not in WITHOUT_LABELS:
            told = "nothing says which texts to label"
            raise UsageError(told, "name a file: glassformer data label RUN texts.txt --out labelled.jsonl")
        labelled = set(imdb.load(data).train.text)
        texts = WITHOUT_LABELS[data.dataset](data).train
        return texts.take(i for i, text in enumerate(texts.text) if text not in labelled)
    findings, asked = Findings(), replace(data, files=replace(DataConfig().files, text_column=column))
    rows = [read_parts(_TEXTS, {"train": path}, asked, findings)["train"] for path in files]
    findings.raise_if_any()
    return Split([text for part in rows for text in part.text], source=", ".join(map(str, files)))


def with_pseudo_labels(form: Form, data: DataConfig, text: TextData) -> TextData:
    """`text` with those of `data.pseudo_file` behind its training texts; without it, `text` itself.

    A text that is in any part already is not added: what people said of it stands, and validation and test are not
    trained on.

    Raises:
        DataError: the file is missing or malformed, has a label that the training part lacks, or adds nothing.
    """
    if data.pseudo_file is None:
        return text
    path, findings = Path(data.pseudo_file), Findings()
    train = text.train
    parts = {name: _as_rows(split) for name, split in text.splits().items()}
    rows, added = read_pseudo_labels(form, path, parts, findings)
    findings.raise_if_any()
    note = (
        f"self-training: {len(added):,} of {len(train) + len(added):,} training texts were labelled by a model ({path}"
        + (
            f"; {n:,} that the data set has already were left out)"
            if (n := len(rows.text) - len(added))
            else ")"
        )
    )
    joined = replace(
        train,
        text=[*train.text, *(rows.text[i] for i in added)],
        answer=[*train.answers, *(rows.answer[i] for i in added)],
        n_pseudo=len(added),
    )
    return replace(
        text,
        train=joined,
        notes=[*text.notes, *findings.notes, note],
        hashes={**text.hashes, **findings.hashes},
    )


def read_pseudo_labels(
    form: Form, path: Path, parts: Mapping[str, Rows], findings: Findings
) -> tuple[Rows, list[int]]:
    """What such a file holds, and which of its texts are in none of the `parts`; problems go to `findings`."""
    unchecked = replace(form, check=lambda rows, findings: None)
    rows = read_parts(unchecked, {"train": path}, DataConfig(), findings)["train"]
    form.check({"train": parts["train"], "pseudo": rows}, findings)
    known = {known for part in parts.values() for known in part.text}
    added = [i for i, new in enumerate(rows.text) if new not in known]
    if rows.text and not added:
        findings.error(path, 0, "nothing new", "each of its texts is in the data set already; label others")
    return rows, added


def _as_rows(split: Split) -> Rows:
    return Rows(split.text, split.answers, range(len(split)), Path(split.source))
