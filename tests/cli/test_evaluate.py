from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from tests.helpers.tiny_runs import Runs


def test_own_files_are_scored(cli: Callable, runs: Runs) -> None:
    pairs = ["--test-src-file", runs.src, "--test-tgt-file", runs.tgt, "--beam-size", "2"]
    for run, flags, task, keys in (
        (runs.classify, ["--test-file", runs.table], "classify", {"accuracy", "ci95", "macro_f1"}),
        (runs.translate, pairs, "translate", {"bleu", "bleu_signature", "chrf", "exact_match"}),
        (runs.lm, ["--test-file", runs.book], "lm", {"nats_per_token", "bits_per_char", "perplexity"}),
    ):
        message = cli("evaluate", run, *flags, "--json").ok
        scores = message.json
        assert scores["task"] == task and keys <= scores.keys() and not {"predictions", "examples"} & scores.keys()
        assert task == "lm" or scores["n"] == 60
        assert task != "translate" or scores["decode"]["beam_size"] == 2


def test_the_runs_own_splits(cli: Callable, runs: Runs) -> None:
    valid = cli("evaluate", runs.classify, "--split", "valid", "--json").json
    assert valid["split"] == "valid" and valid["n"] == 6
    none = cli("evaluate", runs.classify)
    assert none.code == 3 and "--split valid" in none.err


def test_evaluate_prints_headline_and_baselines_and_its_help_counts_them(cli: Callable, runs: Runs) -> None:
    headline, *baselines = cli("evaluate", runs.classify, "--split", "valid").out.splitlines()
    numbers = r"accuracy \d\.\d{4} \(95% interval \d\.\d{4} to \d\.\d{4}\) on [\d,]+ valid examples"
    assert re.fullmatch(numbers, headline) and all(line.startswith("baseline ") for line in baselines)
    tokens = cli("evaluate", runs.lm, "--test-file", runs.book).out.splitlines()[0]
    assert re.search(r" on [\d,]+ file tokens", tokens)
    fitted = cli("evaluate", runs.classify, "--split", "valid", "--json").json["baselines"]
    assert fitted and f"classification and {('one', 'two', 'three')[len(fitted) - 1]} baselines" in (
        cli("evaluate", "--help").out
    )


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--test-src-file", "a"], 2, "the task classify has no use for --test-src-file"),
        (["--test-file", "a", "--split", "train"], 2, "'train' is a split of the run's own data"),
        (["--text-column", "a"], 2, "--text-column is of test files, and none is named"),
        (["--test-file", "no such file.csv"], 3, "no such file.csv"),
        (["--split", "tset"], 2, "tset"),
        (["--test-file", "t.csv"], 3, "t.csv:3"),
    ],
    ids=str,
)
def test_what_cannot_be_scored(cli: Callable, runs: Runs, options: list[str], code: int, message: str) -> None:
    file = runs.table.with_name("t.csv")
    file.write_text("text,label\ngood,pos\nbad,awful\n", encoding="utf-8")
    outcome = cli("evaluate", runs.classify, *(file if word == "t.csv" else word for word in options))
    assert outcome.code == code and message in outcome.err
