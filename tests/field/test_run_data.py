"""A run's data read again: the columns of training, files that changed since, and what is counted of them."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.helpers.tiny_runs import SMALL, Outcome

import glassformer
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
        for run, name, header in (("r", "train.csv", "text,sentiment"), ("bare", "bare.csv", None)):
            table(folder / name, header)
            glassformer.train("classify", out=run, train_file=name, steps=2, device="cpu", model=TINY, text=FEW)
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder, in which the test runs."""
    shutil.copytree(trained, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


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
def test_a_test_file_is_read_by_the_columns_of_training(here, form, run):
    name = FORMS[form](here).name
    if run == "r" and form == "no header":
        with pytest.raises(UsageError, match="may be a header or an example"):
            labels_of(run, name)
    elif run == "r" or form == "no header":  # a run without a header knows positions alone
        assert labels_of(run, name) == TRUTH


def test_columns_given_by_flag_win_and_the_choice_is_told(here, cli):
    name = FORMS["another column of the same classes"](here).name
    assert labels_of("r", name, {"label_column": "label"}) == [OTHER[label] for label in TRUTH]
    first = f"{name}: text is column 'text', label is column 'sentiment'; first example: 'bad film 0' | 'neg'"
    assert first in cli("evaluate", "r", "--test-file", name).ok.err


def test_a_name_of_training_that_stands_twice_is_refused(here, cli):
    table(here / "twice.csv", "Text, TEXT,sentiment", [(text, text, label) for text, label in ROWS])
    cli("evaluate", "r", "--test-file", "twice.csv").refused("columns have one name", code=DataError.exit_code)
    files = DataConfig(train_file="train.csv", test_file="twice.csv")
    with pytest.raises(DataError, match="columns have one name"):
        check_data(TASKS["classify"].schema, files)


def test_validation_and_test_tables_are_read_by_the_columns_of_the_training_table(tmp_path):
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
def test_changed_data_is_refused_unless_allowed(here, cli, change):
    """No baselines are fitted on it; a resume, an export and means notice it, too."""
    shutil.copy("train.csv", "t.csv")
    scores = cli("evaluate", "r", "--test-file", "t.csv", "--json").json
    assert "baselines" in scores and scores["also_in_training"] == len(ROWS) * 9 // 10
    CHANGES[change](here)
    scored = cli("evaluate", "r", "--test-file", "t.csv", "--json").ok
    assert not {"baselines", "also_in_training"} & scored.json.keys() and "train.csv has changed" in scored.err
    valid, changed = ["evaluate", "r", "--split", "valid", "--json"], "train.csv has changed since the run began"
    cli(*valid).refused(changed, "--allow-changed-data", code=DataError.exit_code)
    scored = cli(*valid, "--allow-changed-data").ok
    assert scored.json["changed_data"] == ["train.csv"] and "warning" in scored.err
    cli("train", "--resume", "r").refused(code=DataError.exit_code)
    run = glassformer.load("r", device="cpu")
    assert "has changed" in str(check_export(run.task, run.model, cast(Any, None), run.path))
    with pytest.raises(DataError, match="has changed"):
        run.predict(["good film"], edits=["encoder.0.self.head0=mean"])
    run.allow_changed_data = True
    run.predict(["good film"], edits=["encoder.0.self.head0=mean"])
    assert not (here / "r" / "means").exists()


def test_another_file_of_the_same_relative_path_is_refused(here, tmp_path, monkeypatch):
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


def test_a_folder_with_a_file_more_is_another():
    before = {"d/a.txt": "1", "d/b.txt": "2"}
    assert different_files(before, before) == []
    assert different_files(before, {"e/a.txt": "1", "e/b.txt": "2"}) == []
    assert different_files(before, before | {"d/c.txt": "3"}) == ["d/c.txt"]
    assert different_files(before, before | {"d/c/a.txt": "1"}) == ["d/c/a.txt"]
    assert different_files(before, {"d/a.txt": "1"}) == ["d/b.txt"]


def test_a_data_folder_is_of_built_in_data_sets(here, cli):
    cli("evaluate", "r", "--split", "valid", "--data-dir", here).refused("--data-dir")
    run = glassformer.load("r", device="cpu")
    with pytest.raises(UsageError, match="built-in"):
        run.evaluate("valid", data=replace(run.config.data, data_dir=str(here)))
    with pytest.raises(UsageError, match="trained on other data"):
        run.evaluate("valid", data=DataConfig(train_file="t.csv"))
    with pytest.raises(UsageError, match="test files are named"):
        run.evaluate("valid", data=DataConfig(test_file="train.csv"))


# What is left out, cut, doubled or shared with training is counted: in the log, the report and the data record


@pytest.fixture
def train(cli: Callable[..., Outcome], tmp_path: Path) -> Callable[..., tuple[str, dict, str]]:
    """Train a tiny run; give its messages, its data record and scores, and its report as text."""

    def trained(*argv: object) -> tuple[str, dict, str]:
        run = tmp_path / "r"
        err = cli("train", *argv, "--out", run, *SMALL, "--json").ok.err
        facts = {name: json.loads((run / f"{name}.json").read_text()) for name in ("data", "evaluation")}
        return err, facts, (run / "report.md").read_text()

    return trained


def test_pairs_with_an_empty_side_are_counted(tmp_path, train):
    source, target = tmp_path / "s", tmp_path / "t"
    source.write_text("".join(f"one {i % 30}\n" for i in range(200)))
    target.write_text("".join(("  " * (i % 2) if i < 50 else f"eins {i % 30}") + "\n" for i in range(200)))
    sides = {"src": source, "tgt": target, "valid-src": source, "valid-tgt": target}
    files = [word for side, path in sides.items() for word in (f"--{side}-file", path)]
    err, report, text = train("translate", *files)
    assert "empty and left out: 50" in err
    split = report["data"]["splits"]["train"]
    assert (split["n"], split["n_empty"], split["n_duplicates"]) == (150, 50, 140)
    assert "| train | 150 |" in text and " 50 " in text.split("| train | 150 |")[1].split("\n")[0]
    assert "200 of 200 validation texts are also in training" in err


def test_texts_without_a_token_are_counted(tmp_path, train):
    rows = [json.dumps({"text": text}) for text in ["", "  ", *(f"some text {i}" for i in range(40))]]
    (tmp_path / "a.jsonl").write_text("\n".join(rows) + "\n\n\n")
    (tmp_path / "v.txt").write_text("some other text\nmore\n")
    argv = ["--train-file", tmp_path / "a.jsonl", "--valid-file", tmp_path / "v.txt"]
    err, report, text = train("pretrain", *argv, "--text.tokenizer", "word")
    assert "empty and left out: 2" in err and "empty lines: 2" in err
    assert report["data"]["splits"]["train"]["n_empty"] == 2 and report["data"]["counts"] == {"empty lines": 2}
    assert "empty lines: 2" in text


def test_cut_texts_and_texts_in_training_are_warned_of(tmp_path, cli, train):
    rows = [f"{'good' if i % 2 else 'bad'} film number {i} of many,{'pos' if i % 2 else 'neg'}" for i in range(40)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    same = [word for part in ("train", "valid", "test") for word in (f"--{part}-file", path)]
    err, report, text = train("classify", *same, "--text.max-len", "3")
    assert "40 of 40 training texts (100.0%) are cut at 3 tokens" in err and "truncated: 40" in err
    assert "40 of 40 test texts are also in training" in err and "also in training" in text
    assert report["evaluation"]["also_in_training"] == report["evaluation"]["compared_with_training"] == 40
    scored = cli("evaluate", tmp_path / "r").ok
    assert "(40 also in training)" in scored.out and "40 of 40 test texts are also in training" in scored.err
    assert "also in training" in cli("doctor", tmp_path / "r").ok.out


def test_lines_of_running_text_are_compared(tmp_path, train):
    lines = [f"This is line number {i}, and it is long enough." for i in range(60)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    others = [f"Another line of a good length, {i}" for i in range(5)]
    (tmp_path / "b.txt").write_text("\n".join([*lines[:15], *others]))
    argv = ["--train-file", tmp_path / "a.txt", "--valid-file", tmp_path / "b.txt"]
    err, report, _ = train("lm", *argv)
    assert f"evaluating on {tmp_path / 'b.txt'} (" in err and "a.txt (valid" not in err
    assert "15 of 20 validation lines of 32 characters or more are also in training" in err
    assert report["data"]["splits"]["valid"]["n_in_training"] == 15
