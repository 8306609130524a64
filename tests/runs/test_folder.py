"""A run folder has one owner: its states, and what it reads back."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.small_runs import SMALL, write_table

import glassformer
from glassformer.config import Config, TextConfig
from glassformer.errors import CheckpointError, DivergedError, ResourceError
from glassformer.report.findings import diagnose
from glassformer.report.run_record import load_run_record
from glassformer.runs.folder import RunFolder
from glassformer.runs.records import DataRecord, Evaluation, SplitRecord, StepMetrics
from glassformer.tasks.encoder import Classify
from glassformer.text.tokenizer import Tokenizer
from glassformer.training import trainer

# What is written comes back


def begun(path: Path) -> RunFolder:
    folder = RunFolder(path)
    tokenizer = Tokenizer.train(["a b", "b a"], TextConfig(tokenizer="char"))
    splits = {"train": SplitRecord(2, n_tokens=7, unknown_rate=0.0), "test": SplitRecord(1)}
    data = DataRecord("classify", "accuracy", "files", "x.csv", splits, ["a", "b"], {"x.csv": "0f"}, ["a note"])
    folder.begin(Config(recipe="imdb"), {"device": "cpu"}, data, tokenizer)
    return folder


def test_states_and_values(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert not any((folder.not_empty, folder.resumable, folder.trained, folder.finished, folder.model_folder))
    folder = begun(tmp_path / "run")
    assert folder.not_empty and folder.resumable and not folder.trained and not folder.finished
    assert folder.read_config() == Config(recipe="imdb")
    assert folder.read_env()["device"] == "cpu" and folder.read_tokenizer().kind == "char"
    data = folder.read_data()
    assert data.train.n_tokens == 7 and data.splits["test"] == SplitRecord(1)
    assert json.loads(folder.data.read_text("utf-8"))["splits"]["test"] == {"n": 1}, "nothing that was not counted"
    assert folder.read_evaluation() is None and folder.read_predictions() is None
    scores = {"n": 1, "accuracy": 1.0, "ci95": [0.2, 1.0], "label_names": ["a", "b"]}
    evaluation = Evaluation("classify", "test", scores)
    folder.write_evaluation(evaluation, [{"label": "é\u2028"}])
    assert folder.finished and list(folder.read_predictions() or []) == [{"label": "é\u2028"}]
    assert folder.read_evaluation() == evaluation
    assert json.loads(folder.evaluation.read_text("utf-8")) == {"task": "classify", "split": "test", **scores}
    folder.model.mkdir()
    (folder.model / "config.json").write_text("{}", encoding="utf-8")
    assert folder.model_folder == RunFolder(folder.model).model_folder == folder.model


@pytest.mark.parametrize("n", range(4))
def test_a_kill_while_an_incomplete_start_is_removed_leaves_one(n, tmp_path, monkeypatch):
    folder, unlink, left = begun(tmp_path), Path.unlink, [1] * n
    folder.config.unlink()
    with monkeypatch.context() as patch, suppress(IndexError):
        patch.setattr(Path, "unlink", lambda path, missing_ok=False: (left.pop(), unlink(path, missing_ok)))
        folder.remove_incomplete_start()
    folder.remove_incomplete_start()
    folder.check_new()
    assert not folder.not_empty


def test_the_log_is_cut_to_the_bit_and_read_line_by_line(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    rows = [StepMetrics(step, epoch=0.5, loss=1 / step) for step in (1, 2, 3)]
    rows[1] = replace(rows[1], valid={"loss": 0.25})
    whole = "".join(row.line() for row in rows)
    folder.metrics.write_text(whole + '{"step": 4, "lo', encoding="utf-8", newline="\n")
    assert folder.read_metrics() == rows
    folder.truncate_metrics(2)
    assert folder.metrics.read_text("utf-8") == "".join(row.line() for row in rows[:2])
    folder.metrics.unlink()
    folder.truncate_metrics(2)
    assert folder.read_metrics() == []


@for_each(
    ("file", "content"),
    [
        *(("config.toml", content) for content in ("", "task = ", "task = 7", "tsak = 'lm'", "\x00")),
        *(("data.json", content) for content in ("{", "[]", '{"splits": 3}', '{"splits": {"train": []}}')),
        *(("evaluation.json", content) for content in ("{", "[]")),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, file: str, content: str) -> None:
    folder = RunFolder(tmp_path)
    (tmp_path / file).write_text(content, encoding="utf-8")
    read = {"config.toml": folder.read_config, "data.json": folder.read_data, "evaluation.json": folder.read_evaluation}
    with pytest.raises(CheckpointError, match=file):
        read[file]()


# A run's end


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    return SMALL | {"steps": 6, "train_file": write_table(tmp_path)}


def test_a_kill_while_evaluating_costs_no_model_and_what_is_missing_alone_is_made_again(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / "run")
    weights, card = folder.model / "model.safetensors", folder.model / "README.md"

    def killed(*_: Any, **__: Any) -> None:
        assert folder.trained, "the weights are on the disk before the evaluation begins"
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Classify, "evaluate", killed)
        with pytest.raises(KeyboardInterrupt):
            glassformer.train("classify", out=folder.path, **settings)
    assert not folder.finished and glassformer.load(folder.path).predict("good word1")
    before, whole = weights.stat().st_ino, weights.read_bytes()
    assert "not evaluated" in card.read_text("utf-8")
    glassformer.resume(folder.path)
    assert folder.finished and folder.trained and folder.report.is_file()
    assert "Accuracy on the" in card.read_text("utf-8")
    assert weights.stat().st_ino == before, "the weights were written once"
    scores = folder.evaluation.read_bytes()
    folder.report.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(Classify, "evaluate", None)  # nothing calls it
        glassformer.resume(folder.path)
    assert folder.report.is_file() and folder.evaluation.read_bytes() == scores
    weights.write_bytes(whole[:-1])
    assert not folder.trained
    glassformer.resume(folder.path)
    assert folder.trained and weights.read_bytes() == whole, "from the checkpoint"


def test_a_run_that_diverges_leaves_word_and_the_doctor_reads_it(settings, tmp_path, monkeypatch):
    folder, loss_sum, calls = RunFolder(tmp_path / "run"), Classify.loss_sum, list[int]()

    def broken(*args: Any) -> torch.Tensor:
        calls.extend([1] * folder.metrics.is_file())  # not those of the look ahead
        return loss_sum(*args) * (math.nan if len(calls) > 2 else 1.0)

    with monkeypatch.context() as patch, pytest.raises(DivergedError) as caught:
        patch.setattr(Classify, "loss_sum", broken)
        glassformer.train("classify", out=folder.path, adversarial=0.0, **settings)
    at = folder.read_divergence()
    assert at is not None and at.step == 3 and at.message == caught.value.message and "step 3 " in at.message
    (finding, *_) = diagnose(load_run_record(folder.path)).findings
    assert "stopped being a number at step 3" in finding.matter and "--lr" in finding.remedy
    glassformer.resume(folder.path)
    assert folder.read_divergence() is None and folder.finished


def test_a_full_disk_is_told_and_survived(settings, tmp_path, monkeypatch, capsys):
    def full(*_: object, **__: object) -> None:
        raise ResourceError("the disk is full")

    monkeypatch.setattr(trainer, "save_checkpoint", full)
    glassformer.train("classify", out=tmp_path / "run", **settings)
    assert "the disk is full; this checkpoint is not saved, the previous one stays" in capsys.readouterr().err
