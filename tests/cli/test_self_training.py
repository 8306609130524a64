"""Self-training: a classifier predicts the labels of texts, and those of high probability train the next."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.helpers.tiny_runs import SMALL, Runs

TEXTS = [f"a {'good' if i % 2 else 'bad'} film, take {i}" for i in range(20)]


@pytest.fixture
def predictions(cli: Callable, runs: Runs, tmp_path: Path) -> Path:
    path = tmp_path / "predictions.jsonl"
    message = cli("predict", runs.classify, "--json", stdin="\n".join(TEXTS).encode())
    path.write_text(message.out, encoding="utf-8", newline="\n")
    return path


def train(cli: Callable, runs: Runs, predictions: Path, out: Path, *flags: str):
    files = ("--train-file", runs.table, "--test-file", runs.table, "--pseudo-file", predictions)
    return cli("train", "classify", *files, "--out", out, *SMALL, *flags)


def test_predictions_of_high_probability_are_trained_on(
    cli: Callable, runs: Runs, predictions: Path, tmp_path: Path
) -> None:
    probabilities = sorted(
        json.loads(line)["probability"] for line in predictions.read_text(encoding="utf-8").splitlines()
    )
    least = probabilities[10]
    kept = sum(p >= least for p in probabilities)
    trained = train(cli, runs, predictions, tmp_path / "run", "--pseudo-min-probability", repr(least))
    assert trained.code == 0, trained.err
    report = (tmp_path / "run" / "report.md").read_text(encoding="utf-8")
    for text in (trained.err, report):
        assert f"self-training: {kept} of " in text and f"{20 - kept} are less probable" in text
    facts = json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))
    n = facts["data"]["splits"]["train"]["n"]
    assert facts["evaluation"]["baselines"]["tfidf_logistic"]["n_train"] == n - kept, (
        "a baseline learns from people's labels"
    )


def test_predictions_of_an_ensemble_are_trained_on(cli: Callable, runs: Runs, tmp_path: Path) -> None:
    table = ("--train-file", runs.table)
    assert cli("train", "classify", *table, "--seeds", "2", "--out", tmp_path / "two", *SMALL).code == 0
    both = f"{tmp_path / 'two' / 'seed-1'},{tmp_path / 'two' / 'seed-2'}"
    path = tmp_path / "both.jsonl"
    path.write_text(cli("predict", both, "--json", stdin="\n".join(TEXTS).encode()).out, encoding="utf-8")
    trained = train(cli, runs, path, tmp_path / "run", "--pseudo-min-probability", "0.5")
    assert trained.code == 0 and "self-training: 20 of " in trained.err, trained.err


def test_no_prediction_of_high_probability_is_refused(
    cli: Callable, runs: Runs, predictions: Path, tmp_path: Path
) -> None:
    refused = train(cli, runs, predictions, tmp_path / "run", "--pseudo-min-probability", "1")
    assert refused.code == 3
    assert f"{predictions}: none of 20 labels has a probability of 1 or more" in refused.err
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_meant_is_refused(cli: Callable, runs: Runs, predictions: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.jsonl"
    plain.write_text('{"text": "a film", "label": "pos"}\n', encoding="utf-8")
    refused = train(cli, runs, plain, tmp_path / "run")
    assert refused.code == 3 and f"{plain}:1: a line of `glassformer predict --json`" in refused.err
    refused = train(cli, runs, predictions, tmp_path / "run", "--pseudo-min-probability", "2")
    assert refused.code == 2 and "pseudo_min_probability must be in [0, 1]" in refused.err
    for flag, value in (("--pseudo-file", predictions), ("--pseudo-min-probability", "0.5")):
        refused = cli("train", "lm", "--train-file", runs.book, flag, value)
        assert refused.code == 2 and "the task lm has no use for --pseudo" in refused.err
    assert not (tmp_path / "run").exists()


def test_texts_of_any_data_are_printed_as_predict_reads_them(cli: Callable, runs: Runs) -> None:
    shown = cli("data", "show", "classify", "--train-file", runs.table, "--texts")
    lines = shown.out.splitlines()
    assert shown.code == 0 and sorted(lines) == sorted(
        f"a {'good' if i % 2 else 'bad'} film, number {i}" for i in range(60)
    )
    predicted = cli("predict", runs.classify, "--json", stdin=shown.out.encode()).out.splitlines()
    assert [json.loads(line)["text"] for line in predicted] == lines
