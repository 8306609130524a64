"""Own files in, a run folder out, for the three tasks: train, load elsewhere, predict, evaluate, resume."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.tiny_runs import Runs

import glassformer
from glassformer.errors import CheckpointError, DivergedError, UsageError

TINY = {
    "model": {"n_layers": 1, "d_model": 32, "n_heads": 2, "d_ff": 64, "ensemble_size": 1},
    "text": {"vocab_size": 300, "max_len": 40},
    "epochs": 3,
    "minutes": None,
    "max_tokens": 256,
    "lr": 5e-3,
    "device": "cpu",
    "precision": "fp32",
}


def write_reviews(path: Path, n: int = 120) -> Path:
    """A CSV whose label is a word in its text."""
    rng = np.random.default_rng(0)
    with open(path, "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "text", "label"])
        for i in range(n):
            label = ["awful", "fine", "great"][rng.integers(3)]
            words = " ".join(rng.choice(["film", "plot", "actor", "scene", "the", "a"], 6))
            rows.writerow([i, f'{words}, "{label}"\nsaid I', label])
    return path


def write_pairs(folder: Path, n: int = 150) -> tuple[Path, Path]:
    """Parallel files: the target says the source in capitals."""
    rng = np.random.default_rng(0)
    lines = ["".join(rng.choice(list("abcd "), 8)).strip() or "a" for _ in range(n)]
    src, tgt = folder / "s.txt", folder / "t.txt"
    src.write_text("".join(f"{x}\n" for x in lines), encoding="utf-8")
    tgt.write_text("".join(f"{x.upper()}\n" for x in lines), encoding="utf-8")
    return src, tgt


def test_a_run_folder_is_complete(runs: Runs) -> None:
    before = {"config.toml", "env.json", "data.json", "metrics.jsonl", "tokenizer.json", "checkpoints"}
    after = {"model", "plots", "report.md", "evaluation.json", "predictions.jsonl"}
    assert before | after <= {p.name for p in runs.classify.iterdir()}
    files = {"config.json", "model.safetensors", "tokenizer.json", "README.md"}
    assert files <= {p.name for p in (runs.classify / "model").iterdir()}
    lines = [json.loads(line) for line in (runs.classify / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    assert any("valid" in line for line in lines)


def test_a_moved_run_works_without_its_data(runs: Runs, tmp_path: Path) -> None:
    moved = shutil.copytree(runs.classify / "model", tmp_path / "elsewhere")
    here, there = glassformer.load(runs.classify), glassformer.load(moved)
    texts = ["a good film", "", "bad bad \U0001f600", "x" * 500]
    assert here.predict(texts) == there.predict(texts)


def test_predictions_do_not_depend_on_company(runs: Runs) -> None:
    """Alone, in a list, in a stream, in another order: the same answer."""
    texts = ["abc d", "a", "bad cab dad", "d c b a d c b a"]
    for path, key in ((runs.classify, "label"), (runs.translate, "translation")):
        run = glassformer.load(path)
        together = run.predict(texts)
        for text, expected in zip(texts, together, strict=True):
            alone = run.predict(text)
            assert alone[key] == expected[key]
            number = "probability" if key == "label" else "score"
            assert alone[number] == pytest.approx(expected[number], abs=1e-5)
        assert [r[key] for r in run.predict_stream(iter(texts))] == [r[key] for r in together]
        assert [r[key] for r in run.predict(texts[::-1])] == [r[key] for r in together][::-1]
    run = glassformer.load(runs.lm)
    options: Any = {"max_new_tokens": 12, "decode_seed": 3}
    together = run.predict(texts, **options)
    assert run.predict(texts[0], **options) == together[0]
    assert list(run.predict_stream(iter(texts), **options)) == together


def test_samples_of_a_stream_are_numbered_through(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few texts are taken at a time, and with an empty one among them: one list of samples."""
    run, texts = glassformer.load(runs.translate), ["abc d", "abc d", "", "abc d", "abc d"]
    options = {"sample": True, "temperature": 2.0}
    together = [r["translation"] for r in run.predict(texts, **options)]
    assert len(set(together)) > 2 and together[2] == ""
    monkeypatch.setattr("glassformer.run.PREDICTED_TOGETHER", 2)
    assert [r["translation"] for r in run.predict_stream(iter(texts), **options)] == together
    texts[2] = "a"
    assert [r["translation"] for r in run.predict(texts, **options)][3:] == together[3:]


def test_dry_run_and_overfit_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_reviews(tmp_path / "r.csv")
    monkeypatch.chdir(tmp_path)
    glassformer.dry_run("classify", train_file=file, **TINY)
    assert glassformer.overfit_batch("classify", train_file=file, **TINY) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["r.csv"]


def test_refusals_say_what_to_do(runs: Runs, tmp_path: Path) -> None:
    for call, error, message in (
        (lambda: glassformer.load(tmp_path), CheckpointError, "no trained model"),
        (lambda: glassformer.resume(tmp_path), CheckpointError, "no run"),
        (lambda: glassformer.load(runs.classify).predict("a", n_bestt=3), UsageError, "n_bestt"),
    ):
        with pytest.raises(error, match=message):
            call()


def test_nan_is_no_answer(runs: Runs) -> None:
    for path in (runs.classify, runs.translate, runs.lm):
        run = glassformer.load(path)
        with torch.no_grad():
            for parameter in run.model.parameters():
                parameter.fill_(1e38)
        with pytest.raises(DivergedError, match="logits are NaN"):
            run.predict("a good film")
        with pytest.raises(DivergedError, match="logits are NaN"):
            list(run.predict_stream(iter(["a good film"])))
