"""The heads of encoders: their settings, made data, and a trained run of each."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glassformer
from glassformer.run import Run

NAMES = ["bad", "good", "odd"]
WORTH = {"good": 10.0, "great": 20.0, "bad": -10.0}
PLACES = ["oslo", "san marino", "rome"]
WORDS = "red blue green dog cat bird tree house sun moon".split()
MODEL: dict[str, Any] = {"n_layers": 1, "d_model": 16, "n_heads": 2, "d_ff": 16, "ensemble_size": 1}
TEXT: dict[str, Any] = {"vocab_size": 100, "ngrams": 0}
PAIR = {"text_column": "premise", "pair_column": "hypothesis"}
OF_PAIRS = {"model": MODEL | {"ensemble_size": 2, "n_segments": 2}, "text": TEXT | {"ngrams": 30, "bigrams": 10}}


@dataclass(frozen=True)
class Head:
    """A head: its settings, what its baselines and its report are, and its answer to one text."""

    settings: dict[str, Any]
    baselines: set[str]
    report: tuple[str, ...]
    text: str
    answer: set[str]
    learned: tuple[dict[str, Any], ...]


HEADS = {
    "multilabel": Head(
        {"epochs": 3, "validate_every": 1.0},
        {"frequent", "tfidf_logistic"},
        ("Micro F1", "most frequent answer"),
        "good bad",
        {"text", "labels", "probabilities"},
        ({"answer": "good"}, {"answer": "not good"}),
    ),
    "regress": Head(
        {"epochs": 12, "lr": 0.02, "batch_size": 16, "adversarial": 0.0, "label_column": "stars"},
        {"mean", "tfidf_ridge"},
        ("Mean absolute error", "TF-IDF + ridge regression"),
        "good great",
        {"text", "number"},
        (),
    ),
    "tag": Head(
        {"steps": 80, "lr": 1e-2, "validate_every": 1.0},
        {"frequent", "window"},
        ("Span F1", "linear model of a window", "| LOC |", "B-LOC"),
        "n1 goes to oslo",
        {"text", "words", "tags", "spans"},
        ({"answer": "I-LOC", "label": "goes"},),
    ),
    "pairs": Head(
        {"steps": 6, **PAIR, **OF_PAIRS},
        {"majority", "tfidf_logistic"},
        ("| text | pair |", "of what both share"),
        "red dog [SEP] there is red",
        {"text", "pair", "label", "probability", "probabilities"},
        ({"answer": "yes"},),
    ),
}


def rows(head: str, n: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield texts that name their labels, or the worth of their words, or in which a place after "to" is tagged; and
    pairs whose label is whether the second text names a word of the first."""
    rng = np.random.default_rng(seed)
    for i in range(n):
        if head == "multilabel":
            labels = [name for name in NAMES if rng.random() < 0.5]
            words = [*rng.permutation([*labels, *rng.choice(list("abcdefgh"), 4)]), str(i)]
            yield {"text": " ".join(words), "labels": labels}
        elif head == "regress":
            words = [*rng.choice([*WORTH, *"abcde"], 5), f"n{i % 40}"]
            yield {"text": " ".join(words), "stars": 100 + sum(WORTH.get(word, 0.0) for word in words)}
        elif head == "tag":
            words, tags = [f"n{i % 7}", "goes"], ["O", "O"]
            for before in rng.permutation(["to", "from"]):
                place = str(rng.choice(PLACES)).split()
                words += [str(before), *place]
                tags += ["O", *(f"{'IB'[j == 0]}-LOC" if before == "to" else "O" for j in range(len(place)))]
            yield {"tokens": [*words, "."], "tags": [*tags, "O"]}
        else:
            first = rng.choice(WORDS, 4, replace=False)
            word = rng.choice(first if i % 2 else [word for word in WORDS if word not in first])
            answer = {"hypothesis": f"there is {word} {i}", "label": ("no", "yes")[i % 2]}
            yield {"premise": " ".join(first), **answer}


def write(path: Path, found: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in found), "utf-8")
    return path


def text_of(row: dict[str, Any]) -> Any:
    if "premise" in row:
        return row["premise"], row["hypothesis"]
    return " ".join(row["tokens"]) if "tokens" in row else row["text"]


def train(head: str, out: Path, **changes: Any) -> Run:
    settings = {"threads": 1, "model": MODEL, "text": TEXT, **HEADS[head].settings} | changes
    return glassformer.train("classify" if head == "pairs" else head, out=out, **settings)  # pyright: ignore[reportReturnType]


@pytest.fixture(scope="session")
def runs_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A trained run of each head, made at its first use; its data are in the same folder."""

    @cache
    def made(head: str) -> Path:
        folder = tmp_path_factory.mktemp(head)
        data = write(folder / "a.jsonl", rows(head, 120)), write(folder / "t.jsonl", rows(head, 60, seed=1))
        return train(head, folder / "run", train_file=data[0], test_file=data[1]).path

    return made


@pytest.fixture
def load(runs_of: Callable[[str], Path]) -> Any:
    return lambda head: glassformer.load(runs_of(head), precision="fp32")
