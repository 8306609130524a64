"""Predictions join the training part, behind what people labelled, and nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from glassformer.config import DataConfig, FilesConfig
from glassformer.data.check import check_data
from glassformer.data.datasets.loading import load_text_data
from glassformer.data.splits import Split
from glassformer.errors import DataError
from glassformer.tasks import TASKS

FORM = TASKS["classify"].schema


def write_jsonl(path: Path, rows: list[tuple[str, str]], probabilities: Sequence[float] = ()) -> str:
    lines = [
        json.dumps({"text": text, "label": label, "probability": p, "probabilities": {label: p}})
        for (text, label), p in zip(rows, probabilities or [0.99] * len(rows), strict=True)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def data(tmp_path: Path) -> DataConfig:
    """Twenty labelled texts under headings of their own, four of them to validate on."""
    table = tmp_path / "t.csv"
    rows = [f"text {i},{'good' if i % 2 else 'bad'}\n" for i in range(20)]
    table.write_text("opinion,verdict\n" + "".join(rows), encoding="utf-8")
    files = FilesConfig(train_file=str(table), text_column="opinion", label_column="verdict")
    return DataConfig(files=files, valid_fraction=0.2)


def with_file(data: DataConfig, path: str, least: float = 0.9) -> DataConfig:
    return replace(data, pseudo_file=path, pseudo_min_probability=least)


def test_they_stand_behind_what_people_labelled(data: DataConfig, tmp_path: Path) -> None:
    alone = load_text_data(FORM, data)
    ours, held_out = alone.train.text[0], alone.valid.text[0]
    other = "bad" if alone.train.answers[0] == "good" else "good"
    path = write_jsonl(tmp_path / "p.jsonl", [("new", "good"), (ours, other), (held_out, "bad"), ("newer", "bad")])
    both = load_text_data(FORM, with_file(data, path))
    assert both.train.text == [*alone.train.text, "new", "newer"]
    assert both.train.answers == [*alone.train.answers, "good", "bad"]
    assert both.train.n_pseudo == 2 and both.train.human_labelled == alone.train
    assert both.valid == alone.valid and both.test == alone.test
    assert path in both.hashes and set(alone.hashes) < set(both.hashes)
    message = both.notes[-1]
    assert message.startswith("self-training: 2 of 18 training texts were labelled by a model")
    assert (
        "): bad 1, good 1; of 4 predictions, 0 are less probable and 2 of texts that the data set already has"
        in message
    )


def test_labels_of_low_probability_are_left_out(data: DataConfig, tmp_path: Path) -> None:
    rows = [("one", "good"), ("two", "bad"), ("three", "good")]
    path = write_jsonl(tmp_path / "p.jsonl", rows, (0.7, 0.69, 0.8))
    train = load_text_data(FORM, with_file(data, path, 0.7)).train
    assert train.text[-2:] == ["one", "three"] and train.n_pseudo == 2
    assert load_text_data(FORM, with_file(data, path, 0)).train.n_pseudo == 3
    with pytest.raises(DataError, match=r"none of 3 labels has a probability of 0\.9 or more"):
        load_text_data(FORM, with_file(data, path))


@pytest.mark.parametrize(
    "line",
    [
        '{"text": "new", "label": "good"}',
        '{"text": "new", "label": "good", "probability": "high"}',
        '{"text": "new", "label": "good", "probability": 1.5}',
        '{"text": "new", "label": "good", "probability": NaN}',
        '{"text": "new", "translation": "neu", "score": -0.5}',
        '{"text": "new\\u0000", "label": "good", "probability": 0.99}',
        "new",
    ],
)
def test_a_line_that_is_no_prediction_is_named(data: DataConfig, tmp_path: Path, line: str) -> None:
    path = write_jsonl(tmp_path / "p.jsonl", [("newer", "good")])
    Path(path).write_text(Path(path).read_text(encoding="utf-8") + line + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"p\.jsonl:2: "):
        load_text_data(FORM, with_file(data, path))


def test_what_people_labelled_is_all_there_is_without_a_file() -> None:
    split = Split(["a", "b"], ["x", "y"])
    assert split.human_labelled is split


def test_a_limit_counts_what_people_labelled(data: DataConfig, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "p.jsonl", [("new", "good")])
    few = DataConfig(files=data.files, valid_fraction=0.2, limit=6, pseudo_file=path)
    train = load_text_data(FORM, few).train
    assert (len(train), train.n_pseudo) == (7, 1)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("new", "good"), ("newer", "superb")], r"p\.jsonl:2: label 'superb' is not one of the training data's"),
        ([("text 1", "good"), ("text 2", "bad")], "each of its texts is in the data set already"),
    ],
)
def test_what_cannot_be_added_is_refused(
    data: DataConfig, tmp_path: Path, rows: list[tuple[str, str]], message: str
) -> None:
    path = write_jsonl(tmp_path / "p.jsonl", rows)
    with pytest.raises(DataError, match=message):
        load_text_data(FORM, with_file(data, path))


def test_a_check_reads_them_too(data: DataConfig, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "p.jsonl", [("new", "good"), ("text 3", "bad"), ("newer", "superb")])
    bad = check_data(FORM, with_file(data, path))
    assert [(error.path, error.line, error.kind) for error in bad.errors] == [(path, 3, "label")]
    good = write_jsonl(tmp_path / "g.jsonl", [("new", "good"), ("text 3", "bad")])
    report = check_data(FORM, with_file(data, good))
    assert report.ok and report.sizes["pseudo"] == 2 and report.counts["pseudo: also in training"] == 1
    old = write_jsonl(tmp_path / "o.jsonl", [("text 3", "bad")])
    assert [error.kind for error in check_data(FORM, with_file(data, old)).errors] == ["nothing new"]


def test_a_file_that_is_not_there_is_named(data: DataConfig, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.jsonl"):
        load_text_data(FORM, with_file(data, str(tmp_path / "nowhere.jsonl")))
