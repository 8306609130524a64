"""Data that cannot teach much: each ends in a refusal that says why, or in a sound run that says what it is worth."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple, cast

import numpy as np
import pytest
from tests.helpers.for_each import for_each

import glassformer
from glassformer.cli.main import main
from glassformer.evaluate.scoring import wilson_interval
from glassformer.report.findings import baselines
from glassformer.report.run_record import RunRecord
from glassformer.runs.records import Evaluation
from glassformer.tasks.heads import CLASSIFY

SMALL = "--model.n-layers 1 --model.d-model 16 --model.n-heads 2 --model.d-ff 32 --device cpu --precision fp32".split()
Rows = Sequence[tuple[str, str]]


class Ended(NamedTuple):
    code: int
    err: str
    run: Path

    def text(self, name: str) -> str:
        return (self.run / name).read_text(encoding="utf-8")


@pytest.fixture
def train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:

    def call(rows: Rows, *flags: str, steps: int = 6, **parts: Rows) -> Ended:
        command = ["train", "classify", "--steps", str(steps), "--out", str(tmp_path / "run"), *SMALL, *flags]
        for name, part in {"train": rows, **parts}.items():
            with open(tmp_path / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([("text", "label"), *part])
            command += [f"--{name}-file", file.name]
        return Ended(main(command), capsys.readouterr().err, tmp_path / "run")

    return call


def reviews(n: int, names: Sequence[str] = ("bad", "good"), seed: int = 0) -> list[tuple[str, str]]:
    rng = np.random.default_rng(seed)
    words = ["film", "plot", "actor", "scene", "the", "a", "of"]
    return [(f"{' '.join(rng.choice(words, 5))} {i} {names[i % len(names)]}", names[i % len(names)]) for i in range(n)]


def test_ten_examples(train: Callable[..., Ended]) -> None:
    ended = train(reviews(10))
    assert ended.code == 0, ended.err
    assert "only 9 examples of 2 classes to train on: scores on other texts may be far lower" in ended.err
    assert "only 1 example to validate on" in ended.err
    assert "only 1 example was scored: Accuracy may be anything from" in ended.err
    assert "95% interval" in ended.text("report.md")
    assert all("other texts may be far lower" in ended.text(name) for name in ("report.md", "model/README.md"))


SAME = [("the same", label) for _, label in reviews(60)]
TWELVE = reviews(200, [f"c{i}" for i in range(12)])


@pytest.mark.parametrize(
    ("rows", "parts", "flags", "message"),
    [
        ([(text, "good") for text, _ in reviews(60)], {}, [], "two or more labels are needed, found ['good']"),
        (SAME, {}, [], "60 examples with 1 different text leave nothing"),
        (SAME, {"valid": reviews(20)}, [], "all 60 texts are the same"),
        (TWELVE, {}, ["--limit", "5"], "no training example has the label"),
    ],
    ids=["one class", "equal texts", "equal texts to train on", "a label that a limit leaves out"],
)
def test_what_teaches_nothing_is_refused(
    train: Callable[..., Ended], rows: Rows, parts: dict[str, Rows], flags: list[str], message: str
) -> None:
    ended = train(rows, *flags, **parts)
    assert ended.code == 3 and message in ended.err and not ended.run.exists()
    assert not flags or flags[0] in ended.err


def test_classes_that_are_rare_or_nearly_all_there_is(train: Callable[..., Ended]) -> None:
    """A class with one example stays in training."""
    rows = [*reviews(200), *((f"odd one number {name}", name) for name in "xyz")]
    for seed in range(3):
        ended = train(rows, "--split-seed", str(seed), "--dry-run")
        assert "3 of 5 classes have one training example (x, y, z): expect them never to be answered" in ended.err
    rows = [(text, "rare" if i % 20 == 0 else "common") for i, (text, _) in enumerate(reviews(200))]
    message = "95.0% of the training texts have the label 'common': always answering it is right as often"
    assert message in train(rows, "--dry-run").err


def test_one_word_and_ten_thousand(train: Callable[..., Ended]) -> None:
    short = [(f"word{i % 30}", ("bad", "good")[i % 2]) for i in range(100)]
    long = [(" ".join(["many words of it"] * 2500) + f" {i}", ("bad", "good")[i % 2]) for i in range(20)]
    ended = train([*short, *long, ("", "good"), ("   ", "bad")], "--text.max-len", "64")
    assert ended.code == 0, ended.err
    data = json.loads((ended.run / "data.json").read_text(encoding="utf-8"))
    assert data["splits"]["train"]["n_truncated"] >= 15
    answers = glassformer.load(ended.run).predict(["word", "", "many " * 10_000])
    assert all(abs(sum(a["probabilities"].values()) - 1) < 1e-6 for a in answers)


def test_a_model_that_answers_one_class_says_so_everywhere(train: Callable[..., Ended]) -> None:
    """Nothing to learn, and one class commoner: it answers that one, and no one is left to find out by themselves."""
    rng = np.random.default_rng(0)
    letters = [" ".join(rng.choice(list("abcdefgh"), 6)) for _ in range(400)]
    rows = [(text, "rare" if i % 4 == 0 else "common") for i, text in enumerate(letters)]
    ended = train(rows[:200], "--batch-size", "64", "--lr", "1e-3", steps=16, test=rows[200:])
    assert ended.code == 0, ended.err
    for message in (ended.err, ended.text("report.md").split("## Result")[0], ended.text("model/README.md")):
        assert "“majority class” " in message and "do as well or better" in message.replace("does", "do")


@for_each(
    ("confusion", "guessing"),
    [
        ([60, 0, 40, 0], True),
        ([58, 2, 39, 1], True),
        ([98, 0, 0, 2], True),  # right every time, and two examples are no proof
        ([490, 0, 0, 10], False),
        ([60, 0, 1, 39], False),
        ([48, 12, 20, 20], True),
        ([0, 60, 0, 40], True),
        ([100, 0, 0, 0], True),  # the examples have one class only
    ],
)
def test_what_is_said_of_a_confusion_matrix(confusion: list[int], guessing: bool) -> None:
    a, b, _, d = confusion
    scores = {"accuracy": (a + d) / sum(confusion), "ci95": wilson_interval(a + d, sum(confusion))}
    scores |= {"baselines": {"majority": {"accuracy": (a + b) / sum(confusion)}}}
    evaluation, report = Evaluation("t", "test", scores), CLASSIFY.report
    facts = {"score": report.score(evaluation), "task_report": report, "evaluation": evaluation, "validations": []}
    assert bool([*baselines(cast(RunRecord, SimpleNamespace(**facts)))]) == guessing


def test_pairs_and_texts_too_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ten pairs train and say so; equal ones, and a text of one word, are refused."""
    src, tgt, book = (tmp_path / name for name in ("s.txt", "t.txt", "b.txt"))
    book.write_text("word", encoding="utf-8")
    src.write_text("".join(f"number {i}\n" for i in range(10)), encoding="utf-8")
    tgt.write_text("".join(f"Nummer {i}\n" for i in range(10)), encoding="utf-8")

    def trained(name: str, *flags: object) -> tuple[int, str]:
        code = main(["train", *map(str, flags), "--out", str(tmp_path / name), "--steps", "3", *SMALL])
        return code, capsys.readouterr().err

    pairs = ["translate", "--src-file", src, "--tgt-file", tgt]
    code, message = trained("run", *pairs)
    assert code == 0 and "only 9 examples to train on: scores on other texts may be far lower" in message
    assert "only 1 example to validate on: scores on others may be far from theirs" in message
    assert "only 1 sentence was scored: " in message
    src.write_text("the same\n" * 10, encoding="utf-8")
    code, message = trained("other", *pairs)
    assert code == 3 and "10 examples with 1 different text" in message
    code, message = trained("lm", "lm", "--train-file", book)
    assert code == 3 and len(message.splitlines()) <= 2
