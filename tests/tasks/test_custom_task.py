"""A task defined in one file goes the whole way, and no other file knows a task by name."""

from __future__ import annotations

import ast
import json
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.helpers import small_runs
from tests.helpers.forking import Command
from tests.helpers.tagging import RECIPE, Tag, register_tag

import glassformer
from glassformer.cli.main import main
from glassformer.config import DataConfig, FilesConfig
from glassformer.config.validation import TASK_NAMES
from glassformer.errors import DataError, UsageError
from glassformer.tasks import TASKS, register

ROOT = Path(__file__).parents[2]
WORDS = {"the": "DET", "a": "DET", "dog": "NOUN", "cat": "NOUN", "house": "NOUN", "sees": "VERB", "runs": "VERB"}


def write_sentences(path: Path, n: int, seed: int = 0) -> Path:
    """A TSV of words and tags; a word after "to" is a verb, whatever it is elsewhere."""
    rng = np.random.default_rng(seed)
    lines = ["text\ttags"]
    for _ in range(n):
        words = [str(word) for word in rng.choice([*WORDS, "to"], rng.integers(2, 9))]
        tags = [
            "PART" if word == "to" else "VERB" if before == "to" else WORDS[word]
            for before, word in zip(["", *words], words, strict=False)
        ]
        lines.append(f"{' '.join(words)}\t{' '.join(tags)}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    """Register the task for these tests only: others assert which tasks there are."""
    register(Tag)
    yield
    del TASKS.registered[Tag.name]
    TASK_NAMES.remove(Tag.name)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagging")
    (folder / "tag.toml").write_text(RECIPE, encoding="utf-8")
    write_sentences(folder / "train.tsv", 600)
    write_sentences(folder / "test.tsv", 60, seed=1)
    return folder


def command(place: Path, *arguments: str) -> Command:
    """The command with the task registered, in a process of its own."""
    return small_runs.command(place / f"said-{time.monotonic_ns()}", *arguments, before=register_tag)


@pytest.fixture(scope="module")
def whole(place: Path) -> Path:
    """A run of the task, trained by the command."""
    code, output = command(place, "train", *arguments_of(place), "--out", f"{place}/whole").wait(240)
    assert code == 0, output
    return place / "whole"


def arguments_of(place: Path) -> list[str]:
    return [f"{place}/tag.toml", "--train-file", f"{place}/train.tsv", "--test-file", f"{place}/test.tsv"]


def test_its_data_is_checked(place: Path, capsys) -> None:
    assert main(["data", "check", *arguments_of(place)]) == 0
    assert "examples in train" in capsys.readouterr().out
    wrong = place / "wrong.tsv"
    wrong.write_text("text\ttags\nthe dog\tDET NOUN\nthe cat\tDET\n", encoding="utf-8")
    assert main(["data", "check", f"{place}/tag.toml", "--train-file", str(wrong)]) == DataError.exit_code
    assert "wrong.tsv:3: 2 words, but 1 tags" in capsys.readouterr().out


def test_a_killed_run_goes_on_to_the_same_weights(place: Path, whole: Path) -> None:
    killed = command(place, "train", *arguments_of(place), "--out", f"{place}/killed")
    killed.until(lambda: any((place / "killed" / "checkpoints").glob("step-*")))
    killed.send(signal.SIGKILL)
    killed.wait(60)
    assert not (place / "killed" / "evaluation.json").exists()
    code, output = command(place, "train", "--resume", f"{place}/killed").wait(240)
    assert code == 0 and "resumed at step" in output, output
    for name in ("model/model.safetensors", "predictions.jsonl"):
        assert (place / "killed" / name).read_bytes() == (whole / name).read_bytes(), name


def test_it_is_loaded_used_and_scored(place: Path, whole: Path) -> None:
    run = glassformer.load(whole)
    assert isinstance(run.task, Tag)
    assert run.predict("the dog runs to house") == {"text": "the dog runs to house", "tags": "DET NOUN VERB PART VERB"}
    assert run.evaluate()["tag_accuracy"] >= 0.95
    assert run.task.report.scoring({"tag_accuracy": 1}).metric == "tag_accuracy"
    others = DataConfig(files=FilesConfig(test_file=str(write_sentences(place / "more.tsv", 20, seed=2))))
    assert run.evaluate(data=others)["tag_accuracy"] >= 0.95
    with pytest.raises(UsageError, match="task toy-tag cannot be explained"):
        run.explain("the dog")


def test_it_is_reported_and_compared(whole: Path, capsys) -> None:
    rows = [json.loads(line) for line in (whole / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    validations = [row["valid"] for row in rows if "valid" in row]
    assert len(validations) == 24 and set(validations[0]) == {"loss", "tag_accuracy"}
    report = (whole / "report.md").read_text(encoding="utf-8")
    assert "A tagger trained on own data" in report and "Tag accuracy on the test split: **" in report
    assert (whole / "plots" / "metric.png").is_file()
    card = (whole / "model" / "README.md").read_text(encoding="utf-8")
    assert "It knows the tags of its training data" in card
    assert main(["predict", str(whole), "a cat", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tags"] == "DET NOUN"
    assert main(["compare", str(whole), str(shutil.copytree(whole, whole.parent / "copy"))]) == 0
    assert "tag_accuracy" in capsys.readouterr().out
    assert main(["doctor", str(whole)]) == 0


def test_no_module_but_the_tasks_spells_a_tasks_name() -> None:
    """What differs between tasks is asked of the task."""
    package = ROOT / "src" / "glassformer"
    names = set(TASKS) - {Tag.name}
    assert names == {"classify", "multilabel", "regress", "tag", "translate", "lm", "pretrain", "embed"}
    found: list[str] = []
    for path in package.rglob("*.py"):
        relative = path.relative_to(package).as_posix()
        if relative.startswith("tasks/") or relative in (
            "config/recipes.py",
            "config/validation.py",
            "interop/hf_reader.py",  # which tensors make which task
            "interop/import_check.py",
            "sklearn/base.py",  # which recipe an estimator trains
            "sklearn/classifier.py",
            "sklearn/regressor.py",
        ):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names:
                found.append(f"{relative}:{node.lineno} {node.value}")
    assert not found


def test_the_page_spells_no_tasks_name() -> None:
    """It goes by what it is told of a text: which streams there are, and whether a prediction has a position."""
    spelled = re.compile(rf"""["'`]({"|".join(sorted(set(TASKS) - {Tag.name}))})["'`]""")
    sources = [*(ROOT / "web" / "src").rglob("*.ts*")]
    assert len(sources) > 50
    assert not [path for path in sources if spelled.search(path.read_text(encoding="utf-8"))]
