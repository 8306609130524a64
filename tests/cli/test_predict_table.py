"""`glassformer predict-table`: a table with the columns of the answers, of every task."""

from __future__ import annotations

import csv
import gzip
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.pretrained import bert_folder
from tests.helpers.tiny_runs import SMALL, Runs

from glassformer.cli import use
from glassformer.data.answered_table import TableWriter, scan_table

N = 600
"""Rows, in groups of 256 that are answered together."""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Return a table of reviews with fields of several lines."""
    path = tmp_path / "in.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = ([i, f'a {"good" if i % 2 else "bad"} film,\n"number" {i}', ""] for i in range(N))
        csv.writer(file, lineterminator="\n").writerows([["id", "text", "note"], *rows])
    return path


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_classifier_labels_each_row_as_it_labels_a_text(cli: Callable, runs: Runs, table: Path) -> None:
    out = table.with_name("out.csv")
    done = cli("predict-table", runs.classify, table, out, "--probabilities", "--json").ok
    facts = done.json
    assert facts["rows"] == N and facts["precision"] == "fp32"
    rows = rows_of(out)
    assert [*rows[0]][:5] == ["id", "text", "note", "label", "probability"]
    assert [*rows[0]][5:] == ["probability_neg", "probability_pos", "truncated"]
    assert [{k: row[k] for k in ("id", "text", "note")} for row in rows] == rows_of(table)
    texts = [row["text"] for row in rows[:3]]
    alone = [json.loads(line) for line in cli("predict", runs.classify, *texts, "--json").out.splitlines()]
    for row, answer in zip(rows, alone, strict=False):
        assert row["label"] == answer["label"]
        assert float(row["probability"]) == pytest.approx(answer["probability"], abs=1e-6)
        assert float(row["probability_neg"]) == pytest.approx(answer["probabilities"]["neg"], abs=1e-6)
    assert sorted(path.name for path in table.parent.iterdir()) == ["in.csv", "out.csv"]


def test_a_translator_and_a_language_model(cli: Callable, runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "number 3", "n": [1]}\n{"text": "", "n": null}\n', "utf-8")
    done = cli(
        "predict-table", runs.translate, tmp_path / "a.jsonl", tmp_path / "b.jsonl",
        "--beam-size", "2", "--n-best", "2",
    )  # fmt: skip
    assert done.code == 0, done.err
    first, second = lines_of(tmp_path / "b.jsonl")
    assert [*first][:6] == ["text", "n", "translation", "score", "translation_2", "score_2"]
    assert [*first][6:] == ["truncated", "unfinished"]
    assert first["n"] == [1] and second["translation"] == "" and first["score"] >= first["score_2"]
    done = cli("predict-table", runs.lm, tmp_path / "a.jsonl", tmp_path / "c.csv.gz", "--max-new-tokens", "5").ok
    assert gzip.decompress((tmp_path / "c.csv.gz").read_bytes()).startswith(
        b"text,n,continuation,truncated\nnumber 3,[1],"
    )


def test_what_was_cut_is_marked_in_its_row(cli: Callable, runs: Runs, tmp_path: Path) -> None:
    for run, n, marks in ((runs.lm, 30, ["truncated"]), (runs.translate, 400, ["truncated", "unfinished"])):
        texts = ["number 3", "number 4 " * n]
        (tmp_path / "a.csv").write_text("".join(f"{text}\n" for text in ["text", *texts]), "utf-8")
        done = cli("predict-table", run, tmp_path / "a.csv", tmp_path / f"{run.name}.jsonl", "--max-new-tokens", "2").ok
        alone = cli("predict", run, *texts, "--max-new-tokens", "2", "--json").out.splitlines()
        rows = lines_of(tmp_path / f"{run.name}.jsonl")
        assert [[row[m] for m in marks] for row in rows] == [[m in json.loads(each) for m in marks] for each in alone]
        assert [row["truncated"] for row in rows] == [False, True]
        assert ("translated up to the length limit" in done.err) == ("unfinished" in marks)


def test_the_column_of_training_is_found_again(cli: Callable, runs: Runs, tmp_path: Path) -> None:
    row = {"body": "another and much longer text than the other one", "text": "a good film"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    done = cli("predict-table", runs.classify, tmp_path / "a.jsonl", tmp_path / "b.jsonl").ok
    assert "text is column 'text'" in done.err


def test_a_tagger_does_not_take_words_for_texts(cli: Callable, tmp_path: Path) -> None:
    rows = "".join(f"Anna{i}\tB-X\nsees\tO\n\n" for i in range(30))
    (tmp_path / "a.tsv").write_text(rows, "utf-8")
    assert cli("train", "tag", "--train-file", tmp_path / "a.tsv", "--out", tmp_path / "run", *SMALL).code == 0
    refused = cli("predict-table", tmp_path / "run", tmp_path / "a.tsv", tmp_path / "b.csv")
    assert refused.code == 2 and "there is no column that is known to hold the text" in refused.err
    (tmp_path / "c.csv").write_text("id,text\n1,Anna sees\n", "utf-8")
    assert cli("predict-table", tmp_path / "run", tmp_path / "c.csv", tmp_path / "b.csv").code == 0


def test_a_masked_model_and_an_embedder(cli: Callable, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("".join(f"a good film {i}\n" for i in range(40)), "utf-8")
    trained = ["train", "pretrain", "--train-file", tmp_path / "texts.txt", "--out", tmp_path / "masked", *SMALL]
    assert cli(*trained).code == 0
    (tmp_path / "a.csv").write_text("text\na good [MASK]\nno mask\n", "utf-8")
    assert cli("predict-table", tmp_path / "masked", tmp_path / "a.csv", tmp_path / "b.csv").code == 0
    first, second = rows_of(tmp_path / "b.csv")
    assert [*first] == ["text", "filled", "guesses", "truncated"]
    assert second["filled"] == "no mask" and second["guesses"] == "[]"
    [guesses] = json.loads(first["guesses"])
    assert first["filled"] == f"a good {guesses[0]['token']}"
    bert_folder(tmp_path / "bert", "bare")
    assert cli("import", tmp_path / "bert", "--out", tmp_path / "embedder").code == 0
    assert cli("predict-table", tmp_path / "embedder", tmp_path / "a.csv", tmp_path / "b.jsonl").ok
    row = lines_of(tmp_path / "b.jsonl")[0]
    [answer] = cli("predict", tmp_path / "embedder", row["text"], "--json").out.splitlines()
    assert row["vector"] == pytest.approx(json.loads(answer)["vector"], abs=1e-6)


def test_an_interrupted_table_leaves_nothing(
    runs: Runs, cli: Callable, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = TableWriter.append

    def interrupted(self: TableWriter, rows: Any) -> None:
        monkeypatch.setattr(TableWriter, "append", lambda *_: signal.raise_signal(signal.SIGINT))
        append(self, rows)

    monkeypatch.setattr(TableWriter, "append", interrupted)
    assert cli("predict-table", runs.classify, table, table.with_name("out.csv")).code == 130
    assert [path.name for path in table.parent.iterdir()] == [table.name]


def test_a_table_that_changes_in_between_is_noticed(
    runs: Runs, cli: Callable, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scan_and_change(*arguments: Any) -> Any:
        found = scan_table(*arguments)
        table.write_bytes(table.read_bytes() + b'7,"one more",\n')
        return found

    monkeypatch.setattr("glassformer.data.answered_table.scan_table", scan_and_change)
    done = cli("predict-table", runs.classify, table, table.with_name("out.csv"))
    assert done.code == 3 and "changed while it was read" in done.err and not table.with_name("out.csv").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,x,x\na,1,2\n", "several columns have one name ('x')"),
        ("a.csv", "text,x,,\na,1,2,3\n", "several columns have one name ('')"),
        ("a.csv", "text,id\na,1\nb\n", "a.csv:3: 2 columns are expected, but there are 1"),
        ("a.jsonl", '{"text": "a", "x": 1}\n{"text": "b", "x": "\\ud800"}\n', "a.jsonl:2: in the column 'x' the text"),
    ],
)
def test_what_cannot_be_written_is_refused_before_an_answer(
    cli: Callable, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content, "utf-8")
    monkeypatch.setattr(use.PredictTable, "answered", None)  # nothing calls it
    done = cli("predict-table", runs.classify, tmp_path / name, tmp_path / "b.csv")
    assert done.code == 3 and message in done.err, done.err
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("run", "words", "message"),
    [
        ("classify", "in.csv", "predict-table takes RUN[,RUN,…] TABLE OUT; 2 came"),
        ("classify", "in.csv out.xlsx", "the name of a table to write ends in"),
        ("classify", "in.csv gone/out.csv", "there is no folder gone"),
        ("classify", "in.csv in.csv", "in.csv exists"),
        ("classify", "in.csv out.csv --text-column txt", "there is no column 'txt'"),
        ("classify", "taken.csv out.csv", "taken.csv has a column 'label' already"),
        ("translate", "in.csv out.csv --probabilities", "are of classifiers"),
    ],
)
def test_what_contradicts_itself_is_refused(
    cli: Callable, runs: Runs, tmp_path: Path, run: str, words: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("in.csv", "taken.csv"):
        Path(name).write_text(f"text,{'label' if name == 'taken.csv' else 'id'}\na good film,x\n", "utf-8")
    done = cli("predict-table", getattr(runs, run), *words.split())
    assert done.code == 2 and message in done.err, done.err
    assert sorted(path.name for path in Path().iterdir()) == ["in.csv", "taken.csv"]
    if "taken" in words:
        assert cli("predict-table", runs.classify, "taken.csv", "b.csv", "--prefix", "model_").code == 0
        assert [*rows_of(Path("b.csv"))[0]][2:4] == ["model_label", "model_probability"]
