"""`glassformer data audit`: tables of findings, the report as a CSV, JSON, and what is refused."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.helpers.audited import NAMES, labelled, pairs, write_table
from tests.helpers.tiny_runs import Runs

from glassformer.config import DataConfig, FilesConfig
from glassformer.data.check import check_data
from glassformer.data.datasets.columns import LABEL, SOURCE, TARGET, TEXT, read_table
from glassformer.data.diagnostics import Diagnostics
from glassformer.evaluate.audit.findings import LABEL_COLUMNS, LONGEST_CELL, PAIR_COLUMNS, TAG_COLUMNS
from glassformer.tasks import TASKS

FINDING = {
    "kind", "file", "line", "text", "label", "suggested", "score", "other_file", "other_line", "other_label", "target",
    "token", "numbers",
}  # fmt: skip
AWKWARD = 'He said "no",\nthen; "yes"\t=1+1'


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three label errors, of which one in a text of several lines, and a near-duplicate."""
    texts, labels = labelled()
    for i in (10, 71, 200):
        labels[i] = NAMES[(NAMES.index(labels[i]) + 1) % 3]
    texts[71] = f'{texts[71]}\n"{texts[71]}"'
    return write_table(tmp_path / "a.csv", [*texts, texts[0] + "!"], [*labels, labels[0]])


def test_label_errors_are_printed_and_written(cli: Callable, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "report.csv"
    message = cli("data", "audit", "classify", "--train-file", table, "--out", out)
    assert message.code == 0, message.err
    assert f"{table}:12" in message.out and "label-error" in message.out and "agrees with" in message.out
    assert "4 findings" in message.err and [*out.parent.iterdir()] == [out]
    header, *_ = out.read_text(encoding="utf-8").splitlines()
    assert header == ",".join(f'"{name}"' for name in LABEL_COLUMNS)
    diagnostics = Diagnostics()
    rows = read_table(out, (TEXT, LABEL), diagnostics)
    assert diagnostics.issues == [] and len(rows.text) == 4
    assert any("\n" in text for text in rows.text)


def test_the_report_is_the_same_each_time(cli: Callable, table: Path, tmp_path: Path) -> None:
    for name in ("one.csv", "two.csv"):
        assert cli("data", "audit", "classify", "--train-file", table, "--out", tmp_path / name).code == 0
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()


def test_json_has_every_finding(cli: Callable, table: Path) -> None:
    facts = json.loads(cli("data", "audit", "classify", "--train-file", table, "--json").out)
    assert facts["counts"] == {"contradiction": 0, "label-leak": 0, "label-error": 3, "near-duplicate": 1}
    assert facts.keys() == {"task", "out", "counts", "findings", "sizes", "made", "not_made", "numbers", "notes"}
    assert all(finding.keys() == FINDING for finding in facts["findings"]) and len(facts["findings"]) == 4
    assert facts["sizes"] == {"train": 241} and facts["not_made"] == {}
    assert {"accuracy", "most_frequent", "candidates", "share", "penalty", "temperature", "unjudged"} == {
        *facts["numbers"]
    }


def test_the_line_is_the_one_that_a_row_begins_on(cli: Callable, table: Path) -> None:
    """The text of two lines moves those after it."""
    facts = json.loads(cli("data", "audit", "classify", "--train-file", table, "--json").out)
    lines = sorted(f["line"] for f in facts["findings"] if f["kind"] == "label-error")
    assert lines == [12, 73, 203]


def test_parts_are_compared(cli: Callable, table: Path, tmp_path: Path) -> None:
    texts, labels = labelled()
    test = write_table(tmp_path / "test.csv", [texts[5], "something else"], [labels[5], labels[0]])
    facts = json.loads(cli("data", "audit", "classify", "--train-file", table, "--test-file", test, "--json").out)
    [found] = [f for f in facts["findings"] if f["kind"] == "split-overlap"]
    assert (found["file"], found["line"], found["other_file"], found["other_line"]) == (str(test), 2, str(table), 7)


def test_pairs_of_two_files_and_of_a_table(cli: Callable, tmp_path: Path) -> None:
    source, target = pairs()
    target[7], target[9] = source[7], source[9]
    files = []
    for name, side in (("a.en", source), ("a.de", target)):
        files.append(tmp_path / name)
        files[-1].write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    flags = ["--src-file", files[0], "--tgt-file", files[1]]
    message = cli("data", "audit", "translate", *flags, "--out", tmp_path / "r.csv")
    assert message.code == 0 and f"{files[1]}:8" in message.out and f"{files[1]}:10" in message.out
    rows = read_table(tmp_path / "r.csv", (SOURCE, TARGET), Diagnostics())
    assert len(rows.text) == 2 and source[7] in rows.text
    assert (tmp_path / "r.csv").read_text(encoding="utf-8").startswith('"' + '","'.join(PAIR_COLUMNS) + '"\n')
    tsv = tmp_path / "a.tsv"
    tsv.write_text("source\ttarget\n" + "".join(f"{a}\t{b}\n" for a, b in zip(source, target, strict=True)), "utf-8")
    of_files, of_table = (
        json.loads(cli("data", "audit", "translate", *each, "--json").out)["findings"]
        for each in (flags, ["--train-file", tsv])
    )
    assert [f["line"] + 1 for f in of_files] == [f["line"] for f in of_table]


@pytest.mark.parametrize(
    ("content", "flags", "code", "text"),
    [
        (b"text,label\na,x\n", ["--text-column", "body"], 2, "there is no column 'body'"),
        (b"", [], 3, "empty"),
        (b"text,label\n", [], 3, "no example"),
        (b"text,label\n" + b"good,x\n" * 9, [], 3, "two or more labels"),
        (b"text,label\nfine,x\ncaf\xe9,y\n", [], 3, ":3: byte 4 of the line (0xE9) is not UTF-8"),
        (b"text,label\n" + b"x" * 1_000_001 + b",y\nb,z\n", [], 3, ":2: the line is longer"),
        (b"text,label\na,x\nb,y\n", ["--limit", "1"], 2, "reads all examples"),
        (b"text,label\na,x\nb,y\n", ["--run", "none"], 4, "does not exist"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    content: bytes, flags: list[str], code: int, text: str, cli: Callable, tmp_path: Path
) -> None:
    path, out = tmp_path / "a.csv", tmp_path / "report.csv"
    path.write_bytes(content)
    message = cli("data", "audit", "classify", "--train-file", path, "--out", out, *flags)
    assert message.code == code and text in message.err.replace(f"{path}", "")
    assert message.err.count("error: ") == 1 and [p.name for p in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["lm", "--train-file", "a.txt"], "no answers to audit"),
        (["classify", "--train-file", "a.csv", "--out", "r.txt"], "the report is a CSV"),
        (["classify", "--train-file", "a.csv", "--out", "folder.csv"], "is a folder"),
        (["translate", "--src-file", "a", "--tgt-file", "b", "--run", "r"], "pairs have none"),
        (["classify", "imdb"], "takes one recipe"),
        ([], "data takes one recipe; none came"),
    ],
)
def test_what_is_no_audit_is_refused(
    words: list[str], text: str, cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    message = cli("data", "audit", *words)
    assert message.code == 2 and text in message.err


def test_the_report_never_replaces_the_data(cli: Callable, table: Path) -> None:
    before = table.read_bytes()
    message = cli("data", "audit", "classify", "--train-file", table, "--out", table.parent / "." / table.name)
    assert message.code == 2 and "the data itself" in message.err and table.read_bytes() == before


def test_pairs_without_a_header_are_pairs(cli: Callable, tmp_path: Path) -> None:
    rows = [[f"a {i % 9} b", f"{'xyz'[i % 3]} {i % 7} c", "oy"[i % 2]] for i in range(60)]
    found = []
    for name, header in (("with.csv", [["text", "pair", "label"]]), ("without.csv", [])):
        with open(tmp_path / name, "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([*header, *rows])
        flags = ["--text-column", "1", "--pair-column", "2", "--label-column", "3", "--json"]
        flags += ["--header", "yes" if header else "no"]
        found.append(json.loads(cli("data", "audit", "classify", "--train-file", tmp_path / name, *flags).out))
    assert found[0]["counts"] == found[1]["counts"]
    assert "labels of pairs" in found[0]["not_made"]["label-error"] == found[1]["not_made"]["label-error"]


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_link_or_a_pipe_is_not_replaced(kind: str, cli: Callable, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.csv"
    if kind == "link":
        out.symlink_to("nowhere.csv")
    else:
        os.mkfifo(out)
    message = cli("data", "audit", "classify", "--train-file", table, "--out", out)
    assert message.code == 2 and "is a link or a pipe" in message.err
    assert out.is_symlink() or out.is_fifo()


def test_the_report_replaces_a_report_and_no_other_file(cli: Callable, table: Path, tmp_path: Path) -> None:
    other, out = write_table(tmp_path / "kept.csv", ["a"], ["b"]), tmp_path / "report.csv"
    before = other.read_bytes()
    command = ["data", "audit", "classify", "--train-file", table, "--out"]
    message = cli(*command, other)
    assert message.code == 2 and "is no report of an audit" in message.err and other.read_bytes() == before
    out.touch()
    for _ in range(2):
        assert cli(*command, out).code == 0 and out.read_bytes().startswith(b'"file","line"')


def test_one_text_a_label_and_equal_texts_are_audited_as_far_as_they_go(cli: Callable, tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.csv", [f"text number {i}" for i in range(5)], list("abcde"))
    single = cli("data", "audit", "classify", "--train-file", path)
    assert single.code == 0 and "not made: label-error (a label needs 10 examples" in single.out
    path = write_table(tmp_path / "b.csv", ["same"] * 30, ["x", "y"] * 15)
    equal = json.loads(cli("data", "audit", "classify", "--train-file", path, "--json").out)
    assert equal["counts"]["contradiction"] == 30 and "too few different texts" in equal["not_made"]["label-error"]


def test_awkward_and_long_texts_come_back_from_the_report(cli: Callable, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    texts = [AWKWARD, AWKWARD, "x" * (LONGEST_CELL + 5), "x" * (LONGEST_CELL + 5), "  ", "e\u0301 🙂\u2028"] * 2
    rows = [json.dumps({"text": text, "label": f"l,{i % 3}"}) for i, text in enumerate(texts)]
    path.write_text("\n".join(rows), encoding="utf-8")
    message = cli("data", "audit", "classify", "--train-file", path, "--out", tmp_path / "r.csv")
    assert message.code == 0 and "long texts cut" in message.err and "2 empty texts left out" in message.err
    diagnostics = Diagnostics()
    read = read_table(tmp_path / "r.csv", (TEXT, LABEL), diagnostics)
    assert diagnostics.issues == [] and AWKWARD in read.text and "e\u0301 🙂\u2028" in read.text
    config = DataConfig(files=FilesConfig(train_file=str(tmp_path / "r.csv")))
    assert check_data(TASKS["classify"].schema, config).errors == []


def test_the_report_of_label_sets_holds_cells_of_the_table(cli: Callable, tmp_path: Path) -> None:
    texts, labels = labelled()
    cells = [f"{label}|all" if i % 4 else label for i, label in enumerate(labels)]
    cells[9] = "|".join(("all", NAMES[(NAMES.index(labels[9]) + 1) % 3]))
    path, out = write_table(tmp_path / "a.csv", [*texts, texts[8]], [*cells, ""]), tmp_path / "report.csv"
    message = cli("data", "audit", "multilabel", "--train-file", path, "--label-separator", "|", "--out", out)
    assert message.code == 0 and "labels are judged by a model with a micro F1 of" in message.out, message.err
    with open(out, encoding="utf-8", newline="") as file:
        rows = {(row["kind"], row["line"]): row for row in csv.DictReader(file)}
    wrong, equal = rows["label-error", "11"], rows["contradiction", "10"]
    assert wrong["label"] == cells[9] and {"all"} <= {*wrong["suggested"].split("|")} <= {"all", labels[9]}
    assert (equal["label"], rows["contradiction", "242"]["label"]) == (cells[8], "[]")
    fixed = write_table(tmp_path / "b.csv", texts, [wrong["suggested"] if i == 9 else c for i, c in enumerate(cells)])
    facts = json.loads(cli("data", "audit", "multilabel", "--train-file", fixed, "--label-separator=|", "--json").out)
    assert 11 not in [f["line"] for f in facts["findings"] if f["kind"] == "label-error"]


@pytest.mark.parametrize("suffix", [".conll", ".jsonl"])
def test_a_wrong_tag_is_named_with_its_word(suffix: str, cli: Callable, tmp_path: Path, runs: Runs) -> None:
    sentences = [
        [f"w{(i * k) % 11}", "met", f"Ann{i % 3}", "in", f"Town{(i + k) % 4}"] for i in range(30) for k in (1, 2)
    ]
    tags = [["O", "O", "B-name", "O", "B-place"] for _ in sentences]
    tags[20][4] = "O"
    path, out = tmp_path / f"a{suffix}", tmp_path / "report.csv"
    if suffix == ".conll":
        path.write_text("".join("".join(f"{w} {t}\n" for w, t in zip(*each, strict=True)) + "\n"
                                for each in zip(sentences, tags, strict=True)), encoding="utf-8")  # fmt: skip
    else:
        rows = [{"words": words, "tags": its} for words, its in zip(sentences, tags, strict=True)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    message = cli("data", "audit", "tag", "--train-file", path, "--out", out)
    line = 20 * 6 + 1 if suffix == ".conll" else 21
    assert message.code == 0 and f"{path}:{line}" in message.out and "agrees with" in message.out, message.err
    assert f"word 5, '{sentences[20][4]}': O → B-place" in message.out
    with open(out, encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        [row] = [row for row in reader if row["kind"] == "label-error"]
    assert (*(reader.fieldnames or ()),) == TAG_COLUMNS
    assert (row["token"], row["word"], row["label"], row["suggested"]) == (sentences[20][4], "5", "O", "B-place")
    refused = cli("data", "audit", "tag", "--train-file", path, "--run", runs.classify)
    assert refused.code == 2 and "tags belong to words" in refused.err


def test_a_run_judges_the_labels(cli: Callable, runs: Runs) -> None:
    words = ["data", "audit", "classify", "--train-file", runs.table, "--json"]
    facts = json.loads(cli(*words, "--run", runs.classify).out)
    assert "label-error" in facts["made"] and facts["numbers"] != json.loads(cli(*words).out)["numbers"]
    assert "gives no vector" in cli(*words, "--run", runs.translate).err


def test_help_says_that_findings_are_no_failure(cli: Callable) -> None:
    text = " ".join(cli("data", "audit", "classify", "--help").out.split())
    assert "exit code is 0 whatever is found" in text and "--out FILE" in text


def test_a_pipe_is_audited(table: Path) -> None:
    command = [sys.executable, "-m", "glassformer", "data", "audit", "classify", "--train-file", "/dev/stdin", "--json"]
    done = subprocess.run(command, input=table.read_bytes(), capture_output=True, check=True)
    assert json.loads(done.stdout)["counts"]["label-error"] == 3
