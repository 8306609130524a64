"""Own data of any kind: what cannot teach much is refused or told, and any script is learned and written whole."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from tests.helpers.for_each import for_each
from tests.helpers.reading import written
from tests.helpers.tiny_runs import Outcome

import glassformer
from glassformer.config import DataConfig
from glassformer.evaluate.scoring import wilson_interval
from glassformer.report.findings import baselines
from glassformer.report.run_record import RunRecord
from glassformer.runs.folder import RunFolder
from glassformer.runs.records import Evaluation
from glassformer.tasks.heads import CLASSIFY

SMALL = "--model.n-layers 1 --model.d-model 16 --model.n-heads 2 --model.d-ff 32 --device cpu --precision fp32".split()
Rows = Sequence[tuple[str, str]]


@pytest.fixture
def train(tmp_path: Path, cli: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Train on rows into the folder "run"."""

    def call(rows: Rows, *flags: str, steps: int = 6, **parts: Rows) -> Outcome:
        command = ["train", "classify", "--steps", steps, "--out", tmp_path / "run", *SMALL, *flags]
        for name, part in {"train": rows, **parts}.items():
            path = tmp_path / f"{name}.csv"
            path.write_text(written([("text", "label"), *part]), "utf-8")
            command += [f"--{name}-file", path]
        return cli(*command)

    return call


def reviews(n: int, names: Sequence[str] = ("bad", "good"), seed: int = 0) -> list[tuple[str, str]]:
    rng = np.random.default_rng(seed)
    words = ["film", "plot", "actor", "scene", "the", "a", "of"]
    return [(f"{' '.join(rng.choice(words, 5))} {i} {names[i % len(names)]}", names[i % len(names)]) for i in range(n)]


def test_ten_examples(train, tmp_path):
    ended = train(reviews(10)).ok
    assert "only 9 examples of 2 classes to train on: scores on other texts may be far lower" in ended.err
    assert "only 1 example to validate on" in ended.err
    assert "only 1 example was scored: Accuracy may be anything from" in ended.err
    report, card = ((tmp_path / "run" / name).read_text("utf-8") for name in ("report.md", "model/README.md"))
    assert "95% interval" in report and all("other texts may be far lower" in each for each in (report, card))


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
def test_what_teaches_nothing_is_refused(train, rows, parts, flags, message, tmp_path):
    train(rows, *flags, **parts).refused(message, *flags[:1], code=3)
    assert not (tmp_path / "run").exists()


def test_classes_that_are_rare_or_nearly_all_there_is(train):
    """A class with one example stays in training."""
    rows = [*reviews(200), *((f"odd one number {name}", name) for name in "xyz")]
    for seed in range(3):
        ended = train(rows, "--split-seed", str(seed), "--dry-run")
        assert "3 of 5 classes have one training example (x, y, z): expect them never to be answered" in ended.err
    rows = [(text, "rare" if i % 20 == 0 else "common") for i, (text, _) in enumerate(reviews(200))]
    message = "95.0% of the training texts have the label 'common': always answering it is right as often"
    assert message in train(rows, "--dry-run").err


def test_one_word_and_ten_thousand(train, tmp_path):
    short = [(f"word{i % 30}", ("bad", "good")[i % 2]) for i in range(100)]
    long = [(" ".join(["many words of it"] * 2500) + f" {i}", ("bad", "good")[i % 2]) for i in range(20)]
    assert train([*short, *long, ("", "good"), ("   ", "bad")], "--text.max-len", "64").ok
    assert RunFolder(tmp_path / "run").read_data().train.n_truncated >= 15
    answers = glassformer.load(tmp_path / "run").predict(["word", "", "many " * 10_000])
    assert all(abs(sum(a["probabilities"].values()) - 1) < 1e-6 for a in answers)


def test_a_model_that_answers_one_class_says_so_everywhere(train, tmp_path):
    """Nothing to learn, and one class commoner: it answers that one, and no one is left to find out by themselves."""
    rng = np.random.default_rng(0)
    letters = [" ".join(rng.choice(list("abcdefgh"), 6)) for _ in range(400)]
    rows = [(text, "rare" if i % 4 == 0 else "common") for i, text in enumerate(letters)]
    err = train(rows[:200], "--batch-size", "64", "--lr", "1e-3", steps=16, test=rows[200:]).ok.err
    report, card = ((tmp_path / "run" / name).read_text("utf-8") for name in ("report.md", "model/README.md"))
    for message in (err, report.split("## Result")[0], card):
        assert "“majority class” " in message and "do as well or better" in message.replace("does", "do")


GUESSED = [[60, 0, 40, 0], [58, 2, 39, 1], [48, 12, 20, 20], [0, 60, 0, 40]]
GUESSED += [[98, 0, 0, 2], [100, 0, 0, 0]]  # right every time, and two examples are no proof; of one class only


@for_each("confusion", [*GUESSED, [490, 0, 0, 10], [60, 0, 1, 39]])
def test_what_is_said_of_a_confusion_matrix(confusion):
    a, b, _, d = confusion
    scores = {"accuracy": (a + d) / sum(confusion), "ci95": wilson_interval(a + d, sum(confusion))}
    scores |= {"baselines": {"majority": {"accuracy": (a + b) / sum(confusion)}}}
    evaluation, report = Evaluation("t", "test", scores), CLASSIFY.report
    facts = {"score": report.score(evaluation), "task_report": report, "evaluation": evaluation, "validations": []}
    assert bool([*baselines(cast(RunRecord, SimpleNamespace(**facts)))]) == (confusion in GUESSED)


def test_pairs_and_texts_too_few(tmp_path, cli):
    """Ten pairs train and say so; equal ones, and a text of one word, are refused."""
    src, tgt, book = (tmp_path / name for name in ("s.txt", "t.txt", "b.txt"))
    book.write_text("word", "utf-8")
    src.write_text("".join(f"number {i}\n" for i in range(10)), "utf-8")
    tgt.write_text("".join(f"Nummer {i}\n" for i in range(10)), "utf-8")
    pairs = ["train", "translate", "--src-file", src, "--tgt-file", tgt, "--steps", "3", *SMALL, "--out"]
    message = cli(*pairs, tmp_path / "run").ok.err
    assert "only 9 examples to train on: scores on other texts may be far lower" in message
    assert "only 1 example to validate on: scores on others may be far from theirs" in message
    assert "only 1 sentence was scored: " in message
    src.write_text("the same\n" * 10, "utf-8")
    cli(*pairs, tmp_path / "other").refused("10 examples with 1 different text", code=3)
    refused = cli("train", "lm", "--train-file", book, "--out", tmp_path / "lm", "--steps", "3", *SMALL)
    assert refused.code == 3 and len(refused.err.splitlines()) <= 2


# The recipe for own texts learns in any script, and nothing is lost of a character it has never seen


SCRIPTS = ["今日は天気がいいので、公園を散歩します。", "الطقس جميل اليوم، لنذهب إلى الحديقة.", "🌞👩‍👩‍👧🏞️ 🇯🇵 👍🏽"]


def test_a_script_it_never_saw_is_scored_whole_and_continued(tmp_path):
    """By a model that has read nothing but English."""
    book, test = tmp_path / "book.txt", tmp_path / "test.txt"
    book.write_text("The weather is fine today, let us walk in the park.\n" * 40, "utf-8")
    small: dict[str, Any] = {"model": {"n_layers": 1, "d_model": 32, "n_heads": 2, "d_ff": 64}, "steps": 12}
    small |= {"text": {"vocab_size": 300, "max_len": 40}, "precision": "fp32"}
    run = glassformer.train("lm", out=tmp_path / "run", train_file=book, **small)
    tokenizer = run.task.tokenizer
    for script in SCRIPTS:
        ids = tokenizer.encode(text := script * 5)
        assert tokenizer.unk_id not in ids and tokenizer.decode(ids) == text
        test.write_text(text, "utf-8")
        scores = run.evaluate(data=DataConfig(dataset="files", test_file=str(test)))
        assert (scores["n_chars"], scores["n_bytes"]) == (len(text), len(text.encode()))
        assert scores["n"] == len(ids) - 1, "every token but the very first"
        assert math.isfinite(scores["bits_per_byte"]) and "notes" not in scores, "bits per character compare"
        answer = run.predict(script, max_new_tokens=5)
        assert answer["prompt"] == script and answer["text"]


PHRASES = {
    "English": ("loved it|a joy|well made|so funny|great cast", "hated it|a bore|badly made|not funny|awful cast"),
    "中文": ("非常好看|演员很棒|值得再看|感动极了|剧情精彩", "非常难看|演员很差|浪费时间|无聊透顶|剧情混乱"),
    "العربية": ("أحببته كثيرا|ممتع حقا|تمثيل رائع|قصة جميلة", "كرهته كثيرا|ممل حقا|تمثيل سيئ|قصة فارغة"),
}
"""Phrases of praise and of blame in three scripts."""


def phrases_of(n: int, seed: int) -> Iterator[tuple[str, str]]:
    """A header, and phrases_of of two or three phrases of one kind; scripts without spaces have none."""
    rng = np.random.default_rng(seed)
    yield "text", "label"
    for _ in range(n):
        language, label = [*PHRASES][rng.integers(3)], int(rng.integers(2))
        phrases = rng.permutation(PHRASES[language][1 - label].split("|"))[: rng.integers(2, 4)]
        yield ("" if language == "中文" else ", ").join(phrases), ("bad", "good")[label]


def test_reviews_of_a_few_phrases_are_learned_in_all_scripts_at_once(tmp_path):
    files = {"train_file": tmp_path / "a.csv", "valid_file": tmp_path / "b.csv"}
    for path, n in zip(files.values(), (300, 80), strict=True):
        path.write_text(written([*phrases_of(n, n)]), "utf-8")
    small = {"steps": 60, "d_model": 32, "ngrams": 2000, "ensemble_size": 1, "lr": 4e-3}
    run = glassformer.train("classify", out=tmp_path / "run", **files, **small)
    assert run is not None and run.evaluate("valid")["accuracy"] > 0.95
    [answer] = run.predict(["🦄 ꙮ ⵣ"])  # in no training text, and in no script of them
    assert 0 < answer["probability"] < 1
