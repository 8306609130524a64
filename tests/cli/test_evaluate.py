from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.helpers.tiny_runs import Runs


def test_own_files_are_scored(cli: Callable, runs: Runs) -> None:
    message = cli("evaluate", runs.classify, "--test-file", runs.table, "--json")
    assert message.code == 0, message.err
    scores = json.loads(message.out)
    assert (scores["task"], scores["n"]) == ("classify", 60)
    assert {"accuracy", "ci95", "macro_f1"} <= scores.keys()
    assert "predictions" not in scores and "examples" not in scores

    message = cli(
        "evaluate",
        runs.translate,
        "--test-src-file",
        runs.src,
        "--test-tgt-file",
        runs.tgt,
        "--json",
        "--beam-size",
        "2",
    )
    scores = json.loads(message.out)
    assert (scores["task"], scores["n"], scores["decode"]["beam_size"]) == ("translate", 60, 2)
    assert {"bleu", "bleu_signature", "chrf", "exact_match"} <= scores.keys()

    message = cli("evaluate", runs.lm, "--test-file", runs.book, "--json")
    scores = json.loads(message.out)
    assert scores["task"] == "lm"
    assert {"nats_per_token", "bits_per_char", "perplexity"} <= scores.keys()


def test_the_runs_own_splits(cli: Callable, runs: Runs) -> None:
    valid = json.loads(cli("evaluate", runs.classify, "--split", "valid", "--json").out)
    assert valid["split"] == "valid" and valid["n"] == 6
    none = cli("evaluate", runs.classify)
    assert none.code == 3 and "--split valid" in none.err


def test_evaluate_prints_headline_and_baselines(cli: Callable, runs: Runs) -> None:
    headline, *baselines = cli("evaluate", runs.classify, "--split", "valid").out.splitlines()
    assert re.fullmatch(
        r"accuracy \d\.\d{4} \(95% interval \d\.\d{4} to \d\.\d{4}\) on [\d,]+ valid examples", headline
    )
    assert baselines and all(line.startswith("baseline ") for line in baselines)
    tokens = cli("evaluate", runs.lm, "--test-file", runs.book).out.splitlines()[0]
    assert re.search(r" on [\d,]+ file tokens", tokens)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--test-src-file", "a"], 2, "the task classify has no use for --test-src-file"),
        (["--test-file", "a", "--split", "train"], 2, "'train' is a split of the run's own data"),
        (["--text-column", "a"], 2, "--text-column is of test files, and none is named"),
        (["--test-file", "no such file.csv"], 3, "no such file.csv"),
        (["--split", "tset"], 2, "tset"),
        (["--test-fil", "a"], 2, "did you mean '--test-file'?"),
    ],
    ids=str,
)
def test_what_a_person_mistypes(cli: Callable, runs: Runs, options: list[str], code: int, message: str) -> None:
    outcome = cli("evaluate", runs.classify, *options)
    assert outcome.code == code
    assert message in outcome.err


def test_unknown_labels_are_named_with_file_and_line(cli: Callable, runs: Runs, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text,label\ngood,pos\nbad,awful\n", encoding="utf-8")
    message = cli("evaluate", runs.classify, "--test-file", path, "--json")
    assert message.code == 3
    assert f"{path}:3" in json.loads(message.out)["error"]["message"]


def test_help_counts_the_baselines_there_are(cli: Callable, runs: Runs) -> None:
    fitted = json.loads(cli("evaluate", runs.classify, "--split", "valid", "--json").out)["baselines"]
    count = ("no", "one", "two", "three", "four")[len(fitted)]
    assert f"classification and {count} baselines" in cli("evaluate", "--help").out
