"""Model folders, sealed folders, tensors and run folders: read only as they were written, by one owner."""

import json
import math
import os
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers.for_each import for_each
from tests.helpers.hostile import edit_json, peak_bytes, reseal
from tests.helpers.small_runs import SMALL, write_table
from torch import Tensor

import glassformer
from glassformer.config import Config, ModelConfig, TextConfig
from glassformer.errors import CheckpointError, DivergedError, ResourceError
from glassformer.models import LanguageModel, TextClassifier, Translator
from glassformer.report.findings import diagnose
from glassformer.report.run_record import load_run_record
from glassformer.runs.folder import CONTINUE, PAUSE, Control, ControlFile, RunFolder
from glassformer.runs.model_folder import (
    read_description,
    read_shapes,
    read_tensors,
    read_weights,
    save_model,
    tensor_chunks,
)
from glassformer.runs.records import DataRecord, Evaluation, SplitRecord, StepMetrics
from glassformer.runs.sealed_folder import is_intact, read_manifest, read_sealed_file, write_sealed_folder
from glassformer.tasks.encoder import Classify
from glassformer.tasks.restoring import load_model_folder
from glassformer.text.tokenizer import Tokenizer
from glassformer.training import trainer
from glassformer.utils.safe_read import LIMITS

MODEL = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_ff=16)
FACTS: dict[str, Any] = {
    "task": "classify",
    "label_names": ["neg", "pos"],
    "vocab_size": 20,
    "text": asdict(TextConfig(max_len=12)),
    "model": asdict(MODEL),
}


def weights() -> dict[str, Tensor]:
    return {name: p.detach() for name, p in TextClassifier(MODEL, 20, 2, 12).named_parameters()}


def save_whole(folder: Path, facts: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    """Save a model with a tokenizer that can be read, as a run does."""
    tokenizer = Tokenizer.train(["abcdefghijklmno"], TextConfig(tokenizer="char", vocab_size=20))
    facts = {"recipe": "", "decode": {}, "precision": "fp32", "vocab_size": tokenizer.vocab_size} | facts
    save_model(folder, facts, tensors, {"tokenizer.json": tokenizer.to_json().encode()})
    return folder


# Tokenizer and model


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), r"should hold config\.json"),
        (lambda folder: (folder / "model.pkl").write_bytes(b"cos\nsystem\n"), r"should not hold model\.pkl"),
    ],
)
def test_other_files_than_a_model_has_are_refused(tmp_path, change, message):
    folder = save_whole(tmp_path / "model", FACTS, weights())
    change(folder)
    reseal(folder)
    with pytest.raises(CheckpointError, match=message):
        read_description(folder), read_weights(folder)


# Sizes are believed only as far as the weights go


VALUES = {
    "model.d_model": (1 << 30, 16, 10**40, 8.0, 5),
    "model.n_layers": (10**9, 1000, None),
    "model.n_heads": (10**9, 0),
    **dict.fromkeys(("model.d_head", "model.d_ff"), (10**9,)),
    "model.ensemble_size": (100,),
    "text.max_len": (10**12,),
    "vocab_size": (1, 10**15),
    "task": ("other", "regress"),
    "model": (None,),
    "precision": ("float1",),
    "label_names": ([""] * 1000, ["pos", "pos"], [{}, {}], None, "REMOVED"),
    "recipe": (5,),
    "decode": ([],),
}
CHANGES = [{key: value} for key, values in VALUES.items() for value in values]
CHANGES += [{"model.d_model": 65536, "model.n_layers": 1000, "model.ensemble_size": 100}]


@pytest.mark.parametrize("changes", CHANGES, ids=lambda changes: str(changes)[:40])
def test_a_configuration_of_another_model_is_refused(tmp_path, changes):
    folder, before = save_whole(tmp_path / "model", FACTS, weights()), peak_bytes()

    def change(config: dict[str, Any]) -> None:
        for key, value in changes.items():
            section, _, name = key.rpartition(".")
            (config[section] if section else config)[name] = value
        if changes == {"label_names": "REMOVED"}:
            del config["label_names"]

    edit_json(folder / "config.json", change)
    reseal(folder)
    with pytest.raises(CheckpointError, match=r"config\.json|tokenizer"):
        load_model_folder(RunFolder(folder))
    assert peak_bytes() < before + (1 << 29)


@pytest.mark.parametrize(
    "options",
    [
        {"d_head": 16, "d_ff": 4, "n_layers": 3},
        {"d_head": 1, "bias": False, "norm": "rms", "activation": "swiglu", "pooling": "mean+max"},
        {"positions": "learned", "tie_embeddings": False},
    ],
    ids=str,
)
def test_every_honest_model_passes(tmp_path, options):
    config = ModelConfig(**dict[str, Any](n_layers=1, d_model=8, n_heads=2) | options)
    models = {"classify": TextClassifier(config, 20, 5, 12), "translate": Translator(config, 20, 13)}
    for task, model in (models | {"lm": LanguageModel(config, 20, 12)}).items():
        tensors = {name: p.detach() for name, p in model.named_parameters()}
        labels = list("abcde") if task == "classify" else None
        facts = FACTS | {"task": task, "model": asdict(config), "label_names": labels}
        restored, found = load_model_folder(RunFolder(save_whole(tmp_path / task, facts, tensors)))
        assert restored.config.model == config and found.keys() == tensors.keys()


# What a manifest lists is read only where it is what was written, and lies in the folder


KIND, NAMES = "a kind", ("state.json", "empty")


def save_sealed(folder: Path) -> Path:
    write_sealed_folder(folder, KIND, {"state.json": [b"{", memoryview(b"}")], "empty": []})
    return folder


def read_sealed(folder: Path, kind: str = KIND) -> dict[str, bytes]:
    sealed = read_manifest(folder, kind, NAMES)
    return {name: read_sealed_file(folder / name, file) for name, file in sealed.items()}


def refuse(folder: Path, pattern: str | None = None) -> None:
    with pytest.raises(CheckpointError, match=pattern):
        read_sealed(folder)
    assert not is_intact(folder, KIND)


def test_round_trip_of_one_kind(tmp_path):
    """Files that are not listed do not matter."""
    (save_sealed(tmp_path / "f") / ".DS_Store").write_bytes(b"x")
    assert read_sealed(tmp_path / "f") == {"state.json": b"{}", "empty": b""} and is_intact(tmp_path / "f", KIND)
    with pytest.raises(CheckpointError, match="is not a different kind, and holds a a kind"):
        read_sealed(tmp_path / "f", "different kind")


def test_a_file_that_grew_is_not_summed_and_a_folder_is_no_file(tmp_path):
    """As one of many bytes that takes no place on the disk."""
    os.truncate(save_sealed(tmp_path / "f") / "state.json", 1 << 40)
    refuse(tmp_path / "f", "at most 2 bytes")
    (save_sealed(tmp_path / "g") / "empty").unlink()
    (tmp_path / "g" / "empty").mkdir()
    refuse(tmp_path / "g", "is a folder")


@for_each(
    "change",
    [
        {"files": None},
        {"files": {"state.json": "0" * 64, "empty": ""}},
        {"files": {"state.json": {"bytes": 2, "sha256": "0" * 64}, "empty": {"bytes": -1, "sha256": ""}}},
    ],
)
def test_other_manifests_are_refused(tmp_path, change):
    path = save_sealed(tmp_path / "f") / "manifest.json"
    path.write_bytes(json.dumps(json.loads(path.read_text("utf-8")) | change).encode())
    refuse(path.parent)


# Safetensors: ours and the library's agree, and a hostile file is refused before it takes memory


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
TENSORS = {
    "x": X,
    "the same memory": X,
    "transposed": X.t(),
    "scalar": torch.tensor(2.5),
    "empty": torch.empty(0, 4),
    "half": X.bfloat16(),
    "bytes": torch.arange(5, dtype=torch.uint8),
    "mask": torch.tensor([True, False]),
    "long": torch.tensor([-1, 2**40]),
}


def test_the_safetensors_library_agrees_on_the_format():
    theirs = safetensors.torch.load(b"".join(tensor_chunks(TENSORS)))
    ours = read_tensors(safetensors.torch.save({n: t.clone().contiguous() for n, t in TENSORS.items()}), Path("x"))
    assert theirs.keys() == ours.keys() == TENSORS.keys()
    assert all(torch.equal(theirs[name], x) and torch.equal(ours[name], x) for name, x in TENSORS.items())
    assert read_tensors(b"".join(tensor_chunks({})), Path("x")) == {}


def header(text: str) -> bytes:
    return len(text).to_bytes(8, "little") + text.encode()


def of_x(kind: str, shape: list[int], offsets: list[int]) -> bytes:
    return header(json.dumps({"x": {"dtype": kind, "shape": shape, "data_offsets": offsets}})) + b"\0" * 4


HOSTILE = {
    "empty": b"",
    "not JSON": header("pickle"),
    "huge shape": of_x("F32", [1099511627776, 1099511627776], [0, 4]),
    "offsets beyond the file": of_x("F32", [2], [0, 8]),
    "unknown type": of_x("CODE", [1], [0, 4]),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_tensor_files_are_refused(data, tmp_path):
    with pytest.raises(CheckpointError, match=r"bad\.safetensors"):
        read_tensors(data, Path("bad.safetensors"))
    (tmp_path / "bad.safetensors").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"bad\.safetensors"):
        read_shapes(tmp_path / "bad.safetensors")


@given(st.binary(max_size=200), st.integers(0, 120))
def test_no_bytes_at_all_get_past_the_reader(noise, n_header):
    for data in (noise, n_header.to_bytes(8, "little") + noise):
        try:
            tensors = read_tensors(data, Path("noise"))
        except CheckpointError:
            continue
        assert b"".join(tensor_chunks(tensors))[:8]  # an empty header is a sound file


# A run folder has one owner: its states, and what it reads back


# What is written comes back


def begun(path: Path) -> RunFolder:
    folder = RunFolder(path)
    tokenizer = Tokenizer.train(["a b", "b a"], TextConfig(tokenizer="char"))
    splits = {"train": SplitRecord(2, n_tokens=7, unknown_rate=0.0), "test": SplitRecord(1)}
    data = DataRecord("classify", "accuracy", "files", "x.csv", splits, ["a", "b"], {"x.csv": "0f"}, ["a note"])
    folder.begin(Config(recipe="imdb"), {"device": "cpu"}, data, tokenizer)
    return folder


def test_states_and_values(tmp_path):
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
    (folder.model / "config.json").write_text("{}", "utf-8")
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


def test_the_log_is_cut_to_the_bit_and_read_line_by_line(tmp_path):
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
        *((file, content) for file in ("evaluation.json", "env.json") for content in ("{", "[]")),
    ],
)
def test_damaged_files_are_named(tmp_path, file, content):
    folder = RunFolder(tmp_path)
    (tmp_path / file).write_text(content, "utf-8")
    with pytest.raises(CheckpointError, match=file):
        getattr(folder, f"read_{file.partition('.')[0]}")()


# A run's end


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    return SMALL | {"steps": 6, "train_file": write_table(tmp_path)}


def test_a_kill_while_evaluating_costs_no_model_and_what_is_missing_alone_is_made_again(
    settings, tmp_path, monkeypatch
):
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


# The file control.json: what it asks, when it is read, and what is not obeyed


def test_it_pauses_until_a_later_step_is_asked_for(tmp_path):
    path = tmp_path / "control.json"
    reader, writer = ControlFile(path), ControlFile(path)
    assert not reader.pauses(1)
    writer.write(PAUSE)
    assert reader.pauses(5) and reader.pauses(5), "as often as it is asked"
    writer.write(Control(until=7))  # two clicks, of which the first was never seen
    assert [reader.pauses(step) for step in (5, 6, 7, 7)] == [False, False, True, True]
    writer.write(Control(until=8))
    assert [reader.pauses(step) for step in (7, 8)] == [False, True]
    writer.write(CONTINUE)
    assert not reader.pauses(9)
    writer.write(PAUSE)
    assert reader.pauses(20)
    writer.close()
    assert not reader.pauses(20)


@for_each("content", ["{", '{"until": -1}', json.dumps({"until": 1}) + " " * LIMITS["record"]])
def test_what_is_not_sound_changes_nothing(tmp_path, capsys, content):
    path = tmp_path / "control.json"
    reader = ControlFile(path)
    path.write_text(content, "utf-8")
    assert not reader.pauses(1) and not reader.pauses(2)
    assert capsys.readouterr().err.count("it is ignored") == 1
    reader.write(PAUSE)
    assert reader.pauses(3), "a sound one is obeyed again"
    path.write_text(content, "utf-8")
    assert reader.pauses(3), "and stays what is asked"


def test_a_link_is_removed_alone_and_no_pipe_is_waited_for(tmp_path):
    target, path = tmp_path / "elsewhere.json", tmp_path / "control.json"
    target.write_text("{}", "utf-8")
    reader = ControlFile(path)
    for make in (lambda: path.symlink_to(target), path.mkdir, lambda: os.mkfifo(path)):
        make()
        assert not reader.pauses(1)
        reader.close()
        path.rmdir() if path.is_dir() else None
        assert not os.path.lexists(path) and target.is_file()
