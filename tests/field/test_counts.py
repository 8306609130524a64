"""What is left out, cut, doubled or shared with training is counted: in the log, the report and the data record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glassformer.cli.main import main

SMALL = ["--model.n-layers", "1", "--model.d-model", "16", "--model.n-heads", "2", "--steps", "1", "--device", "cpu"]


def train(capsys: pytest.CaptureFixture[str], out: Path, *argv: str) -> tuple[str, dict, str]:
    """Train a tiny run; return its messages, its data record and scores, and its report as text."""
    capsys.readouterr()
    assert main(["train", *argv, "--out", str(out), *SMALL, "--json"]) == 0
    err = capsys.readouterr().err
    facts = {name: json.loads((out / f"{name}.json").read_text()) for name in ("data", "evaluation")}
    return err, facts, (out / "report.md").read_text()


def test_pairs_with_an_empty_side_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "s", tmp_path / "t"
    source.write_text("".join(f"one {i % 30}\n" for i in range(200)))
    target.write_text("".join(("  " * (i % 2) if i < 50 else f"eins {i % 30}") + "\n" for i in range(200)))
    sides = {"src": source, "tgt": target, "valid-src": source, "valid-tgt": target}
    files = [word for side, path in sides.items() for word in (f"--{side}-file", str(path))]
    err, report, text = train(capsys, tmp_path / "r", "translate", *files)
    assert "empty and left out: 50" in err
    split = report["data"]["splits"]["train"]
    assert (split["n"], split["n_empty"], split["n_duplicates"]) == (150, 50, 140)
    assert "| train | 150 |" in text and " 50 " in text.split("| train | 150 |")[1].split("\n")[0]
    assert "200 of 200 validation texts are also in training" in err


def test_texts_without_a_token_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.dumps({"text": text}) for text in ["", "  ", *(f"some text {i}" for i in range(40))]]
    (tmp_path / "a.jsonl").write_text("\n".join(rows) + "\n\n\n")
    (tmp_path / "v.txt").write_text("some other text\nmore\n")
    argv = ["--train-file", str(tmp_path / "a.jsonl"), "--valid-file", str(tmp_path / "v.txt")]
    err, report, text = train(capsys, tmp_path / "r", "pretrain", *argv, "--text.tokenizer", "word")
    assert "empty and left out: 2" in err and "empty lines: 2" in err
    assert report["data"]["splits"]["train"]["n_empty"] == 2 and report["data"]["counts"] == {"empty lines": 2}
    assert "empty lines: 2" in text


def test_cut_texts_and_texts_in_training_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{'good' if i % 2 else 'bad'} film number {i} of many,{'pos' if i % 2 else 'neg'}" for i in range(40)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    same = [word for part in ("train", "valid", "test") for word in (f"--{part}-file", str(path))]
    err, report, text = train(capsys, tmp_path / "r", "classify", *same, "--text.max-len", "3")
    assert "40 of 40 training texts (100.0%) are cut at 3 tokens" in err and "truncated: 40" in err
    assert "40 of 40 test texts are also in training" in err and "also in training" in text
    evaluation = report["evaluation"]
    assert (evaluation["also_in_training"], evaluation["compared_with_training"]) == (40, 40)
    assert main(["evaluate", str(tmp_path / "r")]) == 0
    out, err = capsys.readouterr()
    assert "(40 also in training)" in out and "40 of 40 test texts are also in training" in err
    assert main(["doctor", str(tmp_path / "r")]) == 0
    assert "also in training" in capsys.readouterr().out


def test_lines_of_running_text_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"This is line number {i}, and it is long enough." for i in range(60)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    (tmp_path / "b.txt").write_text(
        "\n".join([*lines[:15], *(f"Another line of a good length, {i}" for i in range(5))])
    )
    argv = ["--train-file", str(tmp_path / "a.txt"), "--valid-file", str(tmp_path / "b.txt")]
    err, report, _ = train(capsys, tmp_path / "r", "lm", *argv)
    assert f"evaluating on {tmp_path / 'b.txt'} (" in err and "a.txt (valid" not in err
    assert "15 of 20 validation lines of 32 characters or more are also in training" in err
    assert report["data"]["splits"]["valid"]["n_in_training"] == 15
