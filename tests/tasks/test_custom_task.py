"""A task defined in one file goes the whole way, and no other file knows a task by name."""

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.ordered import ORDERED

import glassformer
from glassformer.cli.main import main
from glassformer.config import DataConfig
from glassformer.config.recipes import TASK_NAMES
from glassformer.errors import DataError
from glassformer.report.run_record import load_run_record
from glassformer.tasks import TASKS, register
from glassformer.tasks.encoder import EncoderTask

ROOT = Path(__file__).parents[2]
STARS = [*"12345"]
WORDS = dict(zip(("awful", "poor", "fair", "good", "superb"), STARS, strict=True))
Ordered = EncoderTask.of(ORDERED)
RECIPE = """
task = "ordered"
note = "Stars of reviews."
[text]
tokenizer = "word"
vocab_size = 200
max_len = 32
[model]
n_layers = 1
d_model = 32
n_heads = 2
d_ff = 64
[train]
epochs = 12
batch_size = 16
lr = 8e-3
save_every = 40
validate_every = 1.0
precision = "fp32"
device = "cpu"
"""
"""What a person would write down of it, to train with."""


def write_reviews(path: Path, n: int, seed: int = 0) -> Path:
    """A table of reviews of which one word says the stars."""
    rng, lines = np.random.default_rng(seed), ["text,label"]
    for i in range(n):
        word = str(rng.choice([*WORDS]))
        lines.append(f"{' '.join(rng.permutation([word, *rng.choice(list('abcdefgh'), 4)]))} {i},{WORDS[word]}")
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    """Register the task for these tests only: others assert which tasks there are."""
    register(Ordered)
    yield
    del TASKS["ordered"]
    TASK_NAMES.remove("ordered")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ordered")
    (folder / "ordered.toml").write_text(RECIPE, "utf-8")
    write_reviews(folder / "train.csv", 400)
    write_reviews(folder / "test.csv", 60, seed=1)
    return folder


@pytest.fixture(scope="module")
def whole(place: Path) -> Path:
    """A run of the task, trained by the command."""
    assert main(["train", *arguments_of(place), "--out", f"{place}/whole"]) == 0
    return place / "whole"


def arguments_of(place: Path) -> list[str]:
    return [f"{place}/ordered.toml", "--train-file", f"{place}/train.csv", "--test-file", f"{place}/test.csv"]


def test_its_data_is_checked(place, cli):
    assert "examples in train" in cli("data", "check", *arguments_of(place)).ok.out
    wrong = place / "wrong.csv"
    wrong.write_text("text,label\na good one,7\n", "utf-8")
    refused = cli("data", "check", *arguments_of(place)[:3], "--test-file", wrong)
    assert refused.code == DataError.exit_code
    assert "wrong.csv:2: label '7' is not one of the training data's (1, 2, 3, 4, 5)" in refused.out


def test_it_is_loaded_used_and_scored(place, whole):
    run = glassformer.load(whole)
    assert isinstance(run.task, Ordered) and run.task.label_names == STARS
    assert run.predict("a superb c")["label"] == "5"
    scores = run.evaluate()
    low, high = scores["distance_ci95"]
    assert low <= scores["distance"] < 0.1 < high and scores["baselines"]["median"]["distance"] > 0.8
    others = DataConfig(test_file=str(write_reviews(place / "more.csv", 20, seed=2)))
    assert run.evaluate(data=others)["distance"] < 0.2


def test_it_answers_a_table_and_is_looked_into_and_exported(place, whole, cli):
    pytest.importorskip("onnxruntime")
    assert cli("predict-table", whole, place / "test.csv", place / "out.csv", "--prefix", "p_").ok
    rows = [line.split(",") for line in (place / "out.csv").read_text("utf-8").splitlines()[1:]]
    assert len(rows) == 60 and np.mean([row[1] == row[2] for row in rows]) > 0.9
    run = glassformer.load(whole)
    e = run.explain("a superb c")
    assert {c.piece for c in e.predictions[0].top} <= {*STARS} and e.what_if("encoder.0.self.out=0")
    assert run.learn("a superb c", "4", steps=1).learning is not None
    result = run.export("onnx", place / "out")
    assert result.facts.check is not None and result.facts.check["equal_answers"] == 1.0


def test_it_is_reported_and_compared(whole, cli):
    validations = load_run_record(whole).validations
    assert len(validations) == 12 and set(validations[0].valid or {}) == {"loss", "distance"}
    report = (whole / "report.md").read_text("utf-8")
    assert "A rater trained on own data" in report and "Mean distance on the test split: **" in report
    assert "| median class |" in report and (whole / "plots" / "metric.png").is_file()
    assert cli("predict", whole, "superb", "--json").ok.json["label"] == "5"
    assert "distance" in cli("compare", whole, shutil.copytree(whole, whole.parent / "copy")).ok.out
    assert cli("doctor", whole).ok


def test_no_module_but_the_tasks_spells_a_tasks_name():
    """What differs between tasks is asked of the task."""
    package = ROOT / "src" / "glassformer"
    names = set(TASKS) - {"ordered"}
    assert names == {"classify", "multilabel", "regress", "tag", "translate", "lm", "pretrain", "embed"}
    found: list[str] = []
    for path in package.rglob("*.py"):
        relative = path.relative_to(package).as_posix()
        if relative.startswith("tasks/") or relative == "config/recipes.py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names:
                found.append(f"{relative}:{node.lineno} {node.value}")
    assert not found


def test_the_page_spells_no_tasks_name():
    """It uses what it is given of a text: which streams there are, and whether a prediction has a position."""
    spelled = re.compile(rf"""["'`]({"|".join(sorted(set(TASKS) - {"ordered"}))})["'`]""")
    sources = [*(ROOT / "web" / "src").rglob("*.ts*")]
    assert len(sources) > 40
    assert not [path for path in sources if spelled.search(path.read_text("utf-8"))]
