"""Texts longer than the model reads are marked, counted and announced, in every task and on every way to an answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.tiny_runs import Runs

import glassformer
from glassformer.errors import DataError

LONG = "a good film, number 7 " * 300
SHORT = "number 3"


@pytest.mark.parametrize("task", ["classify", "translate"])
def test_the_command_marks_and_counts_them(cli: Callable, runs: Runs, task: str) -> None:
    run = getattr(runs, task)
    got = cli("predict", run, "--json", stdin=f"{SHORT}\n{LONG}\n\n{LONG}\n".encode())
    assert got.code == 0, got.err
    rows = [json.loads(line) for line in got.out.splitlines()]
    assert [row.get("truncated", False) for row in rows] == [False, True, False, True]
    [warning] = [line for line in got.err.splitlines() if "cut" in line]
    most = glassformer.load(run).config.text.max_len
    assert warning == f"warning: 2 of 4 texts are longer than {most} tokens, and cut"


@pytest.mark.parametrize("task", ["classify", "translate", "lm"])
def test_python_marks_and_counts_them(runs: Runs, task: str, caplog: pytest.LogCaptureFixture) -> None:
    run = glassformer.load(getattr(runs, task))
    options: dict[str, Any] = {"max_new_tokens": 2} if task == "lm" else {}
    long = LONG[:400] if task == "lm" else LONG  # of a prompt every token is read
    answers = run.predict([long, SHORT], **options)
    assert [answer.get("truncated", False) for answer in answers] == [True, False]
    assert sum("cut" in message for message in caplog.messages) == 1
    assert [*run.predict_stream(iter([long, SHORT]), **options)] == answers


@pytest.mark.parametrize("task", ["classify", "translate"])
def test_a_score_says_how_many(cli: Callable, runs: Runs, task: str, tmp_path: Path) -> None:
    if task == "classify":
        (tmp_path / "t.csv").write_text(f'text,label\n"{LONG}",pos\n{SHORT},neg\n', encoding="utf-8")
        files = ["--test-file", tmp_path / "t.csv"]
    else:
        for name in ("s", "t"):
            (tmp_path / name).write_text(f"{LONG}\n{SHORT}\n", encoding="utf-8")
        files = ["--test-src-file", tmp_path / "s", "--test-tgt-file", tmp_path / "t"]
    got = cli("evaluate", getattr(runs, task), *files, "--json")
    assert got.code == 0, got.err
    assert json.loads(got.out)["n_truncated"] == 1
    assert "1 of 2 texts" in got.err


@pytest.mark.parametrize("texts", [None, 5, b"abc", {"a": 1}, Path("a"), ["a", None], ["a", 3], ["a", b"b"]])
def test_what_is_no_text_is_refused_with_a_sentence(runs: Runs, texts: Any) -> None:
    with pytest.raises(DataError, match="text"):
        glassformer.load(runs.classify).predict(texts)


def test_a_blank_line_has_as_many_translations_as_others(cli: Callable, runs: Runs) -> None:
    got = cli("predict", runs.translate, "--beam-size", "3", "--n-best", "3", "--json", stdin=b"number 3\n\nnumber 5\n")
    assert got.code == 0, got.err
    assert [len(json.loads(line)["n_best"]) for line in got.out.splitlines()] == [3, 3, 3]
    plain = cli("predict", runs.translate, "--beam-size", "3", "--n-best", "3", stdin=b"number 3\n\nnumber 5\n")
    assert len(plain.out.splitlines()) == 9


def test_doctor_has_no_remedy_where_none_is_known(cli: Callable, runs: Runs) -> None:
    got = cli("doctor", runs.classify)
    for line in got.out.splitlines():
        if line.strip().startswith("try:"):
            assert (
                not line.strip().removeprefix("try:").strip().startswith(("expect", "where", "guessing", "scores"))
            ), line
