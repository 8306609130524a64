"""Own files in, a run folder out, for the three tasks: train, load elsewhere, predict, evaluate, resume."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import glassformer
from glassformer.config import DataConfig, FilesConfig
from glassformer.errors import CheckpointError, DataError, UsageError

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


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of these tests ends in the user's cache."""
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))


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


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    glassformer.train("classify", out=folder / "run", train_file=write_reviews(folder / "r.csv"), **TINY)
    return folder / "run"


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("translator")
    src, tgt = write_pairs(folder)
    glassformer.train("translate", out=folder / "run", src_file=src, tgt_file=tgt, **TINY)
    return folder / "run"


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lm")
    (folder / "b.txt").write_text("the cat sat on the mat.\nthe dog sat on the log.\n" * 60, encoding="utf-8")
    glassformer.train("lm", out=folder / "run", train_file=folder / "b.txt", **TINY)
    return folder / "run"


def test_a_run_folder_is_complete(classifier: Path) -> None:
    expected = {
        "config.toml",
        "env.json",
        "data.json",
        "metrics.jsonl",
        "checkpoints",
        "model",
        "plots",
        "report.md",
        "tokenizer.json",
        "evaluation.json",
        "predictions.jsonl",
    }
    assert expected <= {p.name for p in classifier.iterdir()}
    assert {p.name for p in (classifier / "model").iterdir()} >= {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "README.md",
    }
    lines = [json.loads(line) for line in (classifier / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    assert any("valid" in line for line in lines)


def test_config_toml_is_a_recipe_that_gives_the_same_weights(classifier: Path, tmp_path: Path) -> None:
    again = glassformer.train(str(classifier / "config.toml"), out=tmp_path / "again")
    assert again is not None
    a = (classifier / "model" / "model.safetensors").read_bytes()
    assert a == (tmp_path / "again" / "model" / "model.safetensors").read_bytes()


def test_a_moved_run_works_without_its_data(classifier: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(classifier / "model", tmp_path / "elsewhere")
    here, there = glassformer.load(classifier), glassformer.load(moved)
    texts = ["film plot great", "", "awful awful \U0001f600", "x" * 500]
    assert here.predict(texts) == there.predict(texts)
    first = here.predict(texts[0])
    assert set(first) == {"text", "label", "probability", "probabilities"}
    assert sum(first["probabilities"].values()) == pytest.approx(1.0)
    assert first["probability"] == max(first["probabilities"].values())


def test_predictions_do_not_depend_on_company(classifier: Path, translator: Path, language_model: Path) -> None:
    """Alone, in a list, in a stream, in another order: the same answer."""
    texts = ["abc d", "a", "bad cab dad", "d c b a d c b a"]
    for path, key in ((classifier, "label"), (translator, "translation")):
        run = glassformer.load(path)
        together = run.predict(texts)
        for text, expected in zip(texts, together, strict=True):
            alone = run.predict(text)
            assert alone[key] == expected[key]
            for number in ("probability", "score"):
                assert alone.get(number, 0.0) == pytest.approx(expected.get(number, 0.0), abs=1e-5)
        assert [r[key] for r in run.predict_stream(iter(texts))] == [r[key] for r in together]
        assert [r[key] for r in run.predict(texts[::-1])] == [r[key] for r in together][::-1]
    run = glassformer.load(language_model)
    prompts = ["the cat", "the", "dog sat on"]
    together = run.predict(prompts, max_new_tokens=30, decode_seed=3)
    assert run.predict(prompts[0], max_new_tokens=30, decode_seed=3) == together[0]
    assert list(run.predict_stream(iter(prompts), max_new_tokens=30, decode_seed=3)) == together


def test_samples_of_a_stream_are_numbered_through(translator: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few texts are taken at a time, and with an empty one among them: one list of samples."""
    run, texts = glassformer.load(translator), ["abc d", "abc d", "", "abc d", "abc d"]
    options = {"sample": True, "temperature": 2.0}
    together = [r["translation"] for r in run.predict(texts, **options)]
    assert len(set(together)) > 2 and together[2] == ""
    monkeypatch.setattr("glassformer.run.PREDICTED_TOGETHER", 2)
    assert [r["translation"] for r in run.predict_stream(iter(texts), **options)] == together
    texts[2] = "a"
    assert [r["translation"] for r in run.predict(texts, **options)][3:] == together[3:]


def test_evaluate_own_files(classifier: Path, translator: Path, language_model: Path, tmp_path: Path) -> None:
    test = DataConfig(files=FilesConfig(test_file=str(write_reviews(tmp_path / "t.csv", 40))))
    scores = glassformer.load(classifier).evaluate(data=test)
    assert scores["n"] == 40 and scores["accuracy"] > scores["baselines"]["majority"]["accuracy"]
    src, tgt = write_pairs(tmp_path, 30)
    pairs = DataConfig(files=FilesConfig(test_src_file=str(src), test_tgt_file=str(tgt)))
    scores = glassformer.load(translator).evaluate(data=pairs)
    assert {"bleu", "bleu_signature", "chrf", "exact_match"} <= scores.keys() and scores["n"] == 30
    (tmp_path / "u.txt").write_text("the cat sat on the log.\n" * 9, encoding="utf-8")
    text = DataConfig(files=FilesConfig(test_file=str(tmp_path / "u.txt")))
    scores = glassformer.load(language_model).evaluate(data=text)
    assert {"nats_per_token", "bits_per_char", "perplexity"} <= scores.keys()
    assert 0 < scores["nats_per_token"] < np.log(300)


def test_translations_keep_empty_lines_and_n_best(translator: Path) -> None:
    run = glassformer.load(translator)
    found = run.predict(["ab", "", "cd"], beam_size=4, n_best=3)
    assert found[1]["translation"] == ""
    assert len(found[0]["n_best"]) == 3
    scores = [h["score"] for h in found[0]["n_best"]]
    assert scores == sorted(scores, reverse=True)


def test_dry_run_and_overfit_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_reviews(tmp_path / "r.csv")
    monkeypatch.chdir(tmp_path)
    glassformer.dry_run("classify", train_file=file, **TINY)
    assert glassformer.overfit_batch("classify", train_file=file, **TINY) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["r.csv"]


def test_refusals_say_what_to_do(classifier: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not empty") as caught:
        glassformer.train("classify", out=classifier, train_file=tmp_path / "r.csv", **TINY)
    assert "--resume" in caught.value.hint
    with pytest.raises(CheckpointError, match="no trained model"):
        glassformer.load(tmp_path)
    with pytest.raises(CheckpointError, match="no run"):
        glassformer.resume(tmp_path)
    with pytest.raises(DataError):
        glassformer.train("classify", out=tmp_path / "x", train_file=tmp_path / "none.csv", **TINY)
    with pytest.raises(UsageError, match="n_bestt"):
        glassformer.load(classifier).predict("a", n_bestt=3)


def test_a_run_leaves_the_callers_settings_alone(classifier: Path) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    torch.use_deterministic_algorithms(True)
    try:
        run = glassformer.load(classifier)
        run.predict("a film")
        run.evaluate("valid")
        run.explain("a film").attribute()
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.set_float32_matmul_precision(before)
        torch.use_deterministic_algorithms(False)


def test_resume_refuses_changed_data(tmp_path: Path) -> None:
    file = write_reviews(tmp_path / "r.csv")
    glassformer.train("classify", out=tmp_path / "run", train_file=file, **TINY)
    write_reviews(file, 121)
    with pytest.raises(DataError, match="has changed since the run began"):
        glassformer.resume(tmp_path / "run")


def test_a_swapped_tokenizer_is_refused(classifier: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(classifier / "model", tmp_path / "model")
    tokenizer = moved / "tokenizer.json"
    text = tokenizer.read_text(encoding="utf-8")
    tokenizer.write_text(text.replace("film", "flim"), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        glassformer.load(moved)


def test_a_long_text_is_announced_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reviews = write_reviews(tmp_path / "r.csv")
    monkeypatch.setattr("glassformer.training.preparation.SLOW_CHARS", len(reviews.read_text(encoding="utf-8")))
    glassformer.train("classify", out=tmp_path / "short", train_file=reviews, **TINY | {"steps": 1})
    assert "reading " not in capsys.readouterr().err  # the file has more in it than its texts
    monkeypatch.setattr("glassformer.training.preparation.SLOW_CHARS", 1000)
    glassformer.train("classify", out=tmp_path / "long", train_file=reviews, **TINY | {"steps": 1})
    message = capsys.readouterr().err.splitlines()
    assert "million characters: tokenizer and encoding can take minutes" in message[0]
