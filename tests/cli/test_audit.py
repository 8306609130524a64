"""`glassformer data audit`: the table of findings, the report as a CSV, JSON, and what is refused."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from tests.helpers.audited import NAMES, labelled, pairs, write_table

from glassformer.evaluate.audit import CHECKS, AuditFinding

COLUMNS = [field.name for field in fields(AuditFinding)]
AWKWARD = 'He said "no",\nthen; "yes"\t=1+1'


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three label errors, of which one in a text of several lines, and a near-duplicate."""
    texts, labels = labelled()
    for i in (10, 71, 200):
        labels[i] = NAMES[(NAMES.index(labels[i]) + 1) % 3]
    texts[71] = f'{texts[71]}\n"{texts[71]}"'
    return write_table(tmp_path / "a.csv", [*texts, texts[0] + "!"], [*labels, labels[0]])


def test_findings_are_printed_and_written(cli: Callable, table: Path, tmp_path: Path) -> None:
    """The text of two lines moves those after it. Repeated, the report is the same."""
    out, again = tmp_path / "new" / "report.csv", tmp_path / "again.csv"
    message = cli("data", "audit", "classify", "--train-file", table, "--out", out).ok
    assert f"{table}:12" in message.out and "label-error" in message.out and "not made" in message.out
    assert all(check.advice in message.out for check in CHECKS if check.kind in ("label-error", "near-duplicate"))
    assert "4 findings" in message.err and [*out.parent.iterdir()] == [out]
    with open(out, encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [*rows[0]] == COLUMNS and {row["place"] for row in rows} == {f"{table}:{n}" for n in (12, 73, 203, 243)}
    facts = cli("data", "audit", "classify", "--train-file", table, "--out", again, "--json").json
    assert out.read_bytes() == again.read_bytes()
    assert facts["counts"] == {"contradiction": 0, "label-leak": 0, "label-error": 3, "near-duplicate": 1}
    assert facts.keys() == {"task", "counts", "findings", "not_made", "notes"} and len(facts["findings"]) == 4
    assert all([*finding] == COLUMNS for finding in facts["findings"])
    assert facts["not_made"] == {"split-overlap": "there is one part"}


def test_pairs_of_two_files_and_of_a_table(cli: Callable, tmp_path: Path) -> None:
    source, target = pairs()
    target[7], target[9] = source[7], source[9]
    files = [tmp_path / "a.en", tmp_path / "a.de"]
    for path, side in zip(files, (source, target), strict=True):
        path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    tsv = tmp_path / "a.tsv"
    tsv.write_text("source\ttarget\n" + "".join(f"{a}\t{b}\n" for a, b in zip(source, target, strict=True)), "utf-8")
    for flags, lines in ((["--src-file", files[0], "--tgt-file", files[1]], [8, 10]), (["--train-file", tsv], [9, 11])):
        found = cli("data", "audit", "translate", *flags, "--json").json["findings"]
        assert sorted(f["place"] for f in found) == sorted(f"{flags[1]}:{line}" for line in lines)
        assert {f["kind"] for f in found} == {"wrong-language"}


@pytest.mark.parametrize(
    ("content", "flags", "code", "text"),
    [
        ("text,label\na,x\n", ["--text-column", "body"], 2, "there is no column 'body'"),
        ("text,label\n" + "good,x\n" * 9, [], 3, "two or more labels"),
        ("text,label\na,x\nb,y\n", ["--limit", "1"], 2, "reads all examples"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    content: str, flags: list[str], code: int, text: str, cli: Callable, tmp_path: Path
) -> None:
    path, out = tmp_path / "a.csv", tmp_path / "report.csv"
    path.write_text(content, "utf-8")
    message = cli("data", "audit", "classify", "--train-file", path, "--out", out, *flags)
    assert message.code == code and text in message.err
    assert message.err.count("error: ") == 1 and [p.name for p in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("audit lm --train-file a.txt", "texts with answers, not those of lm"),
        ("audit imdb", "files of texts with answers, not those of classify (imdb)"),
        ("audit classify --train-file a.csv --out r.txt", "the report is a new CSV"),
        ("audit classify imdb", "takes check|audit|show RECIPE; 3 came"),
        ("check classify --train-file a.csv --out r.csv", "data check writes no file"),
    ],
)
def test_what_is_no_audit_is_refused(words: str, text: str, cli: Callable) -> None:
    message = cli("data", *words.split())
    assert message.code == 2 and text in message.err


def test_the_report_replaces_nothing(cli: Callable, table: Path, tmp_path: Path) -> None:
    before, link = table.read_bytes(), tmp_path / "r.csv"
    link.symlink_to("nowhere.csv")
    for out in (table.parent / "." / table.name, link):
        message = cli("data", "audit", "classify", "--train-file", table, "--out", out)
        assert message.code == 2 and "exists, and the report is a new CSV" in message.err
    assert table.read_bytes() == before and not (tmp_path / "nowhere.csv").exists()


def test_awkward_and_long_texts_come_back_from_the_report(cli: Callable, tmp_path: Path) -> None:
    texts = [AWKWARD, AWKWARD, "x" * 100_005, "x" * 100_005, "  ", "e\u0301 🙂\u2028"] * 2
    rows = [json.dumps({"text": text, "label": f"l,{i % 3}"}) for i, text in enumerate(texts)]
    (tmp_path / "a.jsonl").write_text("\n".join(rows), encoding="utf-8")
    message = cli("data", "audit", "classify", "--train-file", tmp_path / "a.jsonl", "--out", tmp_path / "r.csv").ok
    assert "2 examples with an empty text left out" in message.err
    csv.field_size_limit(1_000_000)
    with open(tmp_path / "r.csv", encoding="utf-8", newline="") as file:
        assert {row["text"] for row in csv.DictReader(file)} == {*texts} - {"  "}
