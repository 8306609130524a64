"""Runs to attack: a classifier with n-grams and pairs, made once by the command itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.helpers.hostile import Answer, query
from tests.helpers.tiny_runs import SMALL

TEXT = "a good film"


@dataclass(frozen=True)
class Victims:
    """What is attacked, the data to query it with, and its right answer."""

    run: Path
    table: Path
    answer: Answer


@pytest.fixture(scope="session")
def victims(tmp_path_factory: pytest.TempPathFactory) -> Victims:
    folder = tmp_path_factory.mktemp("victims")
    table, run = folder / "table.csv", folder / "run"
    rows = [f'"a {"good" if i % 2 else "bad"} film, number {i}",{"pos" if i % 2 else "neg"}\n' for i in range(60)]
    table.write_text("text,label\n" + "".join(rows), encoding="utf-8", newline="\n")
    words = ["--text.tokenizer", "word", "--text.ngrams", "50", "--text.bigrams", "20"]
    made = query("train", "classify", "--train-file", table, "--out", run, *words, *SMALL)
    assert made.code == 0, made.err
    return Victims(run, table, query("predict", run, TEXT, "--json"))
