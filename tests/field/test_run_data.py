"""A run's data read again: the columns of training, and files that changed since."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

import glassformer
from glassformer.cli.main import main
from glassformer.config import DataConfig
from glassformer.data.check import check_data
from glassformer.data.datasets.local_files import load_text_data
from glassformer.errors import DataError, UsageError
from glassformer.interop.check import check_export
from glassformer.runs.run_data import different_files
from glassformer.tasks import TASKS

TINY = {"n_layers": 1, "d_model": 16, "n_heads": 2, "d_ff": 32, "ensemble_size": 1}
FEW = {"ngrams": 0, "bigrams": 0, "max_len": 16}
ROWS = [(f"{'good' if i % 2 else 'bad'} film {i}", "pos" if i % 2 else "neg") for i in range(40)]
OTHER = {"pos": "neg", "neg": "pos"}


def table(path: Path, header: str | None = "text,sentiment", rows: list[tuple[str, ...]] | None = None) -> Path:
    """Write a CSV."""
    rows = list(ROWS) if rows is None else rows
    path.write_text("".join(f"{line}\n" for line in [*([header] if header else []), *map(",".join, rows)]))
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a classifier of train.csv in `r`, and its cache."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        table(folder / "train.csv")
        glassformer.train("classify", out="r", train_file="train.csv", steps=2, device="cpu", model=TINY, text=FEW)
        rows = table(folder / "bare.csv", None)
        glassformer.train("classify", out="bare", train_file=rows.name, steps=2, device="cpu", model=TINY, text=FEW)
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder, in which the test runs."""
    shutil.copytree(trained, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


def evaluate(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict, str]:
    """Call the command; return its exit code, its JSON and its messages."""
    capsys.readouterr()
    code = main(["evaluate", *argv, "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out or "{}"), err


def labels_of(run: str, path: str, columns: dict[str, str] | None = None) -> list[str]:
    """Return the labels that a run is scored on."""
    scores = glassformer.load(run, device="cpu").evaluate(data=DataConfig(test_file=path, **(columns or {})))
    return [row["truth"] for row in scores["predictions"]]


TRUTH = [label for _, label in ROWS]


def jsonl(path: Path) -> Path:
    rows = [{"label": OTHER[label], "text": text, "sentiment": label} for text, label in ROWS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


FORMS: dict[str, Callable[[Path], Path]] = {
    "another column of the same classes": lambda p: table(
        p / "t.csv", "text,label,sentiment", [(t, OTHER[a], a) for t, a in ROWS]
    ),
    "other order and case": lambda p: table(p / "t.csv", "Sentiment ,id,TEXT", [(a, "7", t) for t, a in ROWS]),
    "JSON Lines": lambda p: jsonl(p / "t.jsonl"),
    "no header": lambda p: table(p / "t.csv", None),
}


@pytest.mark.parametrize("run", ["r", "bare"])
@pytest.mark.parametrize("form", FORMS)
def test_a_test_file_is_read_by_the_columns_of_training(here: Path, form: str, run: str) -> None:
    name = FORMS[form](here).name
    if run == "r" and form == "no header":
        with pytest.raises(UsageError, match="may be a header or an example"):
            labels_of(run, name)
    elif run == "r" or form == "no header":  # a run without a header knows positions alone
        assert labels_of(run, name) == TRUTH


def test_columns_given_by_flag_win_and_the_choice_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = FORMS["another column of the same classes"](here).name
    assert labels_of("r", name, {"label_column": "label"}) == [OTHER[label] for label in TRUTH]
    code, _, err = evaluate(capsys, "r", "--test-file", name)
    first = f"{name}: text is column 'text', label is column 'sentiment'; first example: 'bad film 0' | 'neg'"
    assert code == 0 and first in err


def test_a_name_of_training_that_stands_twice_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(here / "twice.csv", "Text, TEXT,sentiment", [(text, text, label) for text, label in ROWS])
    code, _, err = evaluate(capsys, "r", "--test-file", "twice.csv")
    assert code == DataError.exit_code and "columns have one name" in err
    files = DataConfig(train_file="train.csv", test_file="twice.csv")
    with pytest.raises(DataError, match="columns have one name"):
        check_data(TASKS["classify"].schema, files)


def test_validation_and_test_tables_are_read_by_the_columns_of_the_training_table(tmp_path: Path) -> None:
    train = table(tmp_path / "train.csv")
    valid = table(tmp_path / "valid.csv", "sentiment,text", [row[::-1] for row in ROWS])
    test = FORMS["another column of the same classes"](tmp_path)
    files = DataConfig(train_file=str(train), valid_file=str(valid), test_file=str(test))
    data = load_text_data(TASKS["classify"].schema, files)
    assert data.valid.answers == TRUTH and data.test is not None and data.test.answers == TRUTH


def replace_by_link(here: Path) -> None:
    table(here / "elsewhere.csv", rows=list(ROWS[::-1]))
    (here / "train.csv").unlink()
    (here / "train.csv").symlink_to("elsewhere.csv")


CHANGES: dict[str, Callable[[Path], object]] = {
    "a row more": lambda here: table(here / "train.csv", rows=[*ROWS, ("one more", "pos")]),
    "a link": replace_by_link,
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_data_is_refused_unless_allowed(here: Path, capsys: pytest.CaptureFixture[str], change: str) -> None:
    """No baselines are fitted on it; a resume, an export and means notice it, too."""
    shutil.copy("train.csv", "t.csv")
    _, scores, _ = evaluate(capsys, "r", "--test-file", "t.csv")
    assert "baselines" in scores and scores["also_in_training"] == len(ROWS) * 9 // 10
    CHANGES[change](here)
    code, scores, err = evaluate(capsys, "r", "--test-file", "t.csv")
    assert code == 0 and "baselines" not in scores and "also_in_training" not in scores
    assert "train.csv has changed" in err
    code, _, err = evaluate(capsys, "r", "--split", "valid")
    assert code == 3 and "train.csv has changed since the run began" in err and "--allow-changed-data" in err
    code, scores, err = evaluate(capsys, "r", "--split", "valid", "--allow-changed-data")
    assert code == 0 and scores["changed_data"] == ["train.csv"] and "warning" in err
    assert main(["train", "--resume", "r"]) == 3
    run = glassformer.load("r", device="cpu")
    assert "has changed" in str(check_export(run.task, run.model, cast(Any, None), run.path))
    with pytest.raises(DataError, match="has changed"):
        run.predict(["good film"], edits=["encoder.0.self.head0=mean"])
    run.allow_changed_data = True
    run.predict(["good film"], edits=["encoder.0.self.head0=mean"])
    assert not (here / "r" / "means").exists()


def test_another_file_of_the_same_relative_path_is_refused(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = glassformer.load(here / "r", device="cpu")
    (tmp_path / "other").mkdir()
    table(tmp_path / "other" / "train.csv", rows=list(ROWS[5:]))
    monkeypatch.chdir(tmp_path / "other")
    with pytest.raises(DataError, match=r"train\.csv has changed"):
        run.evaluate("valid")
    assert run.evaluate("valid", allow_changed_data=True)["changed_data"] == ["train.csv"]
    (tmp_path / "other" / "train.csv").unlink()
    with pytest.raises(DataError, match=r"train\.csv is no longer there"):
        run.evaluate("valid")


def test_a_folder_with_a_file_more_is_another() -> None:
    before = {"d/a.txt": "1", "d/b.txt": "2"}
    assert different_files(before, before) == []
    assert different_files(before, {"e/a.txt": "1", "e/b.txt": "2"}) == []
    assert different_files(before, before | {"d/c.txt": "3"}) == ["d/c.txt"]
    assert different_files(before, before | {"d/c/a.txt": "1"}) == ["d/c/a.txt"]
    assert different_files(before, {"d/a.txt": "1"}) == ["d/b.txt"]


def test_a_data_folder_is_of_built_in_data_sets(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = evaluate(capsys, "r", "--split", "valid", "--data-dir", str(here))
    assert code == 2 and "--data-dir" in err
    run = glassformer.load("r", device="cpu")
    with pytest.raises(UsageError, match="built-in"):
        run.evaluate("valid", data=replace(run.config.data, data_dir=str(here)))
    with pytest.raises(UsageError, match="trained on other data"):
        run.evaluate("valid", data=DataConfig(train_file="t.csv"))
    with pytest.raises(UsageError, match="test files are named"):
        run.evaluate("valid", data=DataConfig(test_file="train.csv"))
