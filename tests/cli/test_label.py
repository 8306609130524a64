"""Self-training: a classifier labels texts, and what it is sure of trains the next."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import SMALL, Runs


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("label") / "texts.txt"
    lines = [f"a {'good' if i % 2 else 'bad'} film, take {i}\n" for i in range(20)]
    path.write_text("".join(lines), encoding="utf-8", newline="\n")
    return path


def test_what_a_run_is_sure_of_is_written_and_trained_on(
    cli: Callable, runs: Runs, texts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "labelled.jsonl"
    told = cli("data", "label", runs.classify, texts, "--out", out, "--least", "0.5")
    assert told.code == 0, told.err
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [row["text"] for row in rows] == texts.read_text(encoding="utf-8").splitlines()
    predicted = cli("predict", runs.classify, "--json", stdin=texts.read_bytes()).out.splitlines()
    for row, line in zip(rows, predicted, strict=True):
        assert row["label"] == json.loads(line)["label"] and 0.5 <= row["probability"] <= 1
    assert "--pseudo-file" in told.err

    run = tmp_path / "student"
    args = ("train", "classify", "--train-file", runs.table, "--test-file", runs.table, "--out", run, *SMALL)
    trained = cli(*args, "--pseudo-file", out)
    assert trained.code == 0, trained.err
    assert "labelled by a model" in trained.err and "labelled by a model" in (run / "report.md").read_text(
        encoding="utf-8"
    )
    facts = json.loads((run / "report.json").read_text(encoding="utf-8"))
    n = facts["data"]["splits"]["train"]["n"]
    assert facts["evaluation"]["baselines"]["tfidf_logistic"]["n_train"] == n - 20, (
        "a yardstick of people's labels"
    )


def test_only_sure_labels_are_kept(cli: Callable, runs: Runs, texts: Path, tmp_path: Path) -> None:
    lines = cli("predict", runs.classify, "--json", stdin=texts.read_bytes()).out.splitlines()
    probabilities = sorted(json.loads(line)["probability"] for line in lines)
    least, out = probabilities[10], tmp_path / "labelled.jsonl"
    told = cli("data", "label", runs.classify, texts, "--out", out, "--least", repr(least), "--json")
    expected = sum(p >= least for p in probabilities)
    facts = json.loads(told.out)
    assert len(out.read_text(encoding="utf-8").splitlines()) == sum(facts["kept"].values()) == expected
    assert facts["texts"] == sum(facts["labelled"].values()) == 20


def test_nothing_sure_writes_nothing(cli: Callable, runs: Runs, texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "labelled.jsonl"
    told = cli("data", "label", runs.classify, texts, "--out", out, "--least", "1")
    assert told.code == 3 and "sure of none of 20 texts" in told.err and list(tmp_path.iterdir()) == []


def test_what_cannot_be_meant_is_refused(cli: Callable, runs: Runs, texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "labelled.jsonl"
    for words, told in (
        ((), "nothing says which run labels"),
        ((runs.classify, texts), "nothing says where the labelled texts go"),
        ((runs.classify, texts, "--out", texts), "exists"),
        ((runs.classify, texts, "--out", out, "--least", "2"), "--least must be in [0, 1], not 2"),
        ((runs.translate, texts, "--out", out), "labels come from a classifier"),
        ((runs.classify, "--out", out), "nothing says which texts to label"),
    ):
        outcome = cli("data", "label", *words)
        assert outcome.code == 2 and told in outcome.err, outcome.err
    assert cli("data", "label", runs.classify, tmp_path / "none.txt", "--out", out).code == 3
    assert cli("train", "lm", "--train-file", runs.book, "--pseudo-file", texts).code == 2
    assert not out.exists()
