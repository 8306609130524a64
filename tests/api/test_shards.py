"""A run on text that was encoded ahead is the run on the text itself.

It resumes, and refuses what does not belong to it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.api.test_end_to_end import TINY

import glassformer
from glassformer.cli.main import main
from glassformer.data import shards
from glassformer.data.datasets.local_files import load_text_data
from glassformer.errors import DataError, UsageError
from glassformer.text.tokenizer import Tokenizer

TEXT = "".join(f"the {'cat dog cow'.split()[i % 3]} sat on {i % 7} mats, and the {i % 5}th log.\n" for i in range(900))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of these tests ends in the user's cache; of little text there are many segments."""
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(shards, "SEGMENT_BYTES", 1024)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text, one to validate on, a run on both, and the shards of the text by that run's tokenizer."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "train.txt").write_text(TEXT, encoding="utf-8")
    (folder / "valid.txt").write_text(TEXT[:900], encoding="utf-8")
    train(folder / "run", folder / "train.txt", folder / "valid.txt")
    tokenizer = str(folder / "run" / "tokenizer.json")
    encode(folder / "shards", folder / "train.txt", "--tokenizer", tokenizer, "--valid-fraction", "0")
    return folder


def encode(out: Path, *words: str | Path) -> None:
    assert main(["data", "encode", "--out", str(out), *map(str, words)]) == 0


def train(out: Path, source: Path, valid: Path | None, **more: Any) -> Path:
    named = {"train_file": source} | ({"valid_file": valid} if valid else {})
    glassformer.train("lm", out=out, **TINY | {"epochs": 2} | named | more)
    return out


def curve(run: Path) -> list[tuple[float, ...]]:
    """What the clock has no part in."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [tuple(line[n] for n in ("step", "epoch", "loss", "lr", "grad_norm")) for line in lines]


def test_shards_and_their_text_give_the_same_run(files: Path, tmp_path: Path) -> None:
    run = train(tmp_path / "run", files / "shards", files / "valid.txt")
    assert curve(run) == curve(files / "run")
    weights = "model/model.safetensors"
    assert (run / weights).read_bytes() == (files / "run" / weights).read_bytes()
    scores = [json.loads((path / "evaluation.json").read_text(encoding="utf-8")) for path in (run, files / "run")]
    # Shards keep no text to compare with that of training.
    compared = {name: scores[1].pop(name) for name in ("also_in_training", "compared_with_training")}
    assert scores[0] == scores[1] and min(compared.values()) > 0
    config = glassformer.load(run).config
    assert config.text == glassformer.load(files / "run").config.text or config.text.vocab_size <= 300


def test_a_run_on_shards_goes_on_at_the_very_window(files: Path, tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", files / "shards", files / "valid.txt", save_every=5)

    def stop(report: Any) -> None:
        if report.step == 13:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "cut", files / "shards", files / "valid.txt", save_every=5, on_step=stop)
    glassformer.resume(tmp_path / "cut")
    assert curve(tmp_path / "cut") == curve(whole)
    assert (tmp_path / "cut/model/model.safetensors").read_bytes() == (whole / "model/model.safetensors").read_bytes()


def test_text_encoded_ahead_brings_its_tokenizer_and_what_was_held_out(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encode(tmp_path / "shards", files / "train.txt", "--kind", "char", "--lowercase", "--valid-fraction", "0.3")
    run = train(tmp_path / "run", tmp_path / "shards", None)
    output = capsys.readouterr().err
    assert "taken from" in output and "tokenizer char" in output and "held out when" in output
    config = glassformer.load(run).config.text
    assert (config.tokenizer, config.lowercase) == ("char", True)
    assert Tokenizer.load(run / "tokenizer.json").sha256 == Tokenizer.load(tmp_path / "shards/tokenizer.json").sha256
    loaded = glassformer.load(run)
    assert loaded.evaluate("valid")["n"] > 100
    with pytest.raises(DataError, match="split whose text is kept"):
        loaded.evaluate("train")
    assert main(["evaluate", str(run), "--test-file", str(files / "valid.txt")]) == 0


def test_another_tokenizer_than_that_of_the_shards_is_refused(files: Path, tmp_path: Path) -> None:
    encode(tmp_path / "shards", files / "train.txt", "--vocab-size", "280", "--valid-fraction", "0.5")
    with pytest.raises(DataError, match="encoded with another tokenizer"):
        train(tmp_path / "run", tmp_path / "shards", None, init_from=str(files / "run"))


def test_shards_that_change_under_a_run_stop_it(files: Path, tmp_path: Path) -> None:
    shutil.copytree(files / "shards", tmp_path / "shards")
    train(tmp_path / "run", tmp_path / "shards", files / "valid.txt")
    shutil.rmtree(tmp_path / "shards")
    other = tmp_path / "other.txt"
    other.write_text(TEXT * 2, encoding="utf-8")
    tokenizer = str(files / "run" / "tokenizer.json")
    encode(tmp_path / "shards", other, "--tokenizer", tokenizer, "--valid-fraction", "0")
    with pytest.raises(DataError, match=r"index\.json has changed since the run began"):
        glassformer.resume(tmp_path / "run")


def test_the_commands_that_look_at_data_look_at_shards(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encode(tmp_path / "shards", files / "train.txt", "--vocab-size", "280", "--valid-fraction", "0.3")
    capsys.readouterr()
    for what in ("check", "show"):
        assert main(["data", what, "lm", "--train-file", str(tmp_path / "shards")]) == 0
        assert "valid" in capsys.readouterr().out
    shard = tmp_path / "shards" / "ids.bin"
    shard.write_bytes(bytes(shard.stat().st_size))
    assert main(["data", "check", "lm", "--train-file", str(tmp_path / "shards")]) == DataError.exit_code
    assert "is damaged" in capsys.readouterr().err
    classify = ["train", "classify", "--train-file", str(tmp_path / "shards"), "--out", str(tmp_path / "run")]
    assert main(classify) == UsageError.exit_code


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "data encode needs files of text"),
        (["a.txt"], "data encode needs files of text, and --out"),
        (["nowhere.txt", "--out", "x"], "there is no such file"),
        (["a.txt", "--out", "x", "--valid-fraction", "1"], "--valid-fraction must be in [0, 1), got 1"),
        (["a.txt", "--out", "x", "--kind", "bpe"], "kind must be one of"),
        (["a.txt", "--out", "x", "--vocab-size", "3"], "--vocab-size must be 6 or more"),
        (["a.txt", "--out", "x", "--separators", ""], "no flag --separators"),
    ],
)
def test_what_cannot_be_encoded_is_a_sentence(argv, message, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["data", "encode", *argv]) == UsageError.exit_code
    assert message in capsys.readouterr().err


def test_encoding_tells_what_it_did(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encode(tmp_path / "shards", files / "train.txt", "--vocab-size", "280", "--valid-fraction", "0.3", "--json")
    facts = json.loads(capsys.readouterr().out)
    assert facts["tokens"] > 1000 and facts["held out"] >= 1


def test_a_tokenizer_that_reads_more_than_ids_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from glassformer.config import TextConfig

    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    words = Tokenizer.train([TEXT], TextConfig(tokenizer="word", ngrams=50))
    words.save(tmp_path / "tokenizer.json")
    argv = ["data", "encode", str(tmp_path / "a.txt"), "--out", str(tmp_path / "x"), "--tokenizer", str(tmp_path)]
    assert main(argv) == UsageError.exit_code
    assert "n-grams or pairs" in capsys.readouterr().err


def test_a_text_encoder_is_pretrained_on_shards_in_windows(files: Path, tmp_path: Path) -> None:
    """Each token is in one window an epoch, and what comes out begins a classifier."""
    encode(tmp_path / "shards", files / "train.txt", "--kind", "word", "--valid-fraction", "0.3")
    model = {"n_layers": 1, "d_model": 32, "n_heads": 2, "d_ff": 64}
    small = {"model": model, "max_len": 40, "epochs": 3, "lr": 1e-2, "device": "cpu", "max_tokens": 256}
    run = glassformer.train("pretrain", out=tmp_path / "run", train_file=tmp_path / "shards", score_train=True, **small)
    assert run is not None and (run.config.text.tokenizer, run.config.text.ngrams) == ("word", 0)
    losses = [loss for _, _, loss, *_ in curve(tmp_path / "run")]
    assert sum(losses[-10:]) < 0.9 * sum(losses[:10])
    answer = run.predict("the cat sat on [MASK] mats")
    assert answer["guesses"]
    corpus = run.task.encode(load_text_data(run.task.schema, run.config.data).train, training=True)
    seen = [run.task.make_batch(corpus, index).ids.flatten() for index in run.task.epoch_batches(corpus, 0)]
    assert sum(len(ids[ids != 0]) for ids in seen) == corpus.stats["n_tokens"]
