"""Runs to attack: a classifier with n-grams and pairs, made once by the command itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.helpers.hostile import Answer, query

SMALL = (
    "--model.n-layers 1 --model.d-model 16 --model.n-heads 2 --model.d-ff 32 --steps 4 --max-tokens 256 "
    "--device cpu --precision fp32"
).split()
TEXT = "a good film"


@dataclass(frozen=True)
class Victims:
    """What is attacked, the data to query it with, and its right answer."""

    run: Path
    table: Path
    book: Path
    answer: Answer


@pytest.fixture(scope="session")
def victims(tmp_path_factory: pytest.TempPathFactory) -> Victims:
    folder = tmp_path_factory.mktemp("victims")
    table, book, run = (folder / name for name in ("table.csv", "book.txt", "run"))
    rows = [f'"a {"good" if i % 2 else "bad"} film, number {i}",{"pos" if i % 2 else "neg"}\n' for i in range(60)]
    table.write_text("text,label\n" + "".join(rows), encoding="utf-8", newline="\n")
    book.write_text("In the beginning was the word. " * 2000, encoding="utf-8", newline="\n")
    words = ["--text.tokenizer", "word", "--text.ngrams", "50", "--text.bigrams", "20"]
    made = query("train", "classify", "--train-file", table, "--out", run, *words, *SMALL)
    assert made.code == 0, made.err
    return Victims(run, table, book, query("predict", run, TEXT, "--json"))
