"""Shards as training data: damaged, foreign and useless ones are refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from glassformer.config import DataConfig, FilesConfig, TextConfig
from glassformer.data import shards as shards_module
from glassformer.data.corpus import pretokenized_corpus
from glassformer.data.datasets.columns import DataSchema
from glassformer.data.datasets.local_files import load_text_data
from glassformer.data.shards import PretokenizeConfig, ShardIndex, encode_text
from glassformer.errors import DataError, UsageError
from glassformer.text.tokenizer import Tokenizer

CONFIG = PretokenizeConfig(valid_fraction=0.2, vocab_size=300)


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of text encoded ahead; its text is in a.txt in the same folder."""
    monkeypatch.setattr(shards_module, "SEGMENT_BYTES", 128)
    lines = "".join(f"{i} and {i * i}, that is the question\n" for i in range(400))
    (tmp_path / "a.txt").write_text(lines, encoding="utf-8")
    return encode_text(tmp_path / "out", [tmp_path / "a.txt"], CONFIG).path


def load(path: Path):
    return load_text_data(DataSchema("lm"), DataConfig(files=FilesConfig(train_file=str(path))))


def test_shards_are_one_running_text(shards):
    data = load(shards)
    assert data.train.shards is not None and data.tokenizer is not None and not data.train.text
    assert len(data.train) == data.train.shards.counts["documents"]
    corpus = pretokenized_corpus(data.train.shards, data.tokenizer)
    assert corpus.is_running_text and corpus.stats["n_tokens"] == corpus.lengths.sum() == len(corpus.ids[0])
    assert data.valid.text == data.train.shards.read_held_out()


@pytest.mark.parametrize("name", ["ids.bin", "held-out.jsonl"])
def test_a_damaged_file_is_named(shards, name):
    whole = (shards / name).read_bytes()
    for damaged in (whole[:-2], whole[:-2] + b".."):
        (shards / name).write_bytes(damaged)
        with pytest.raises(DataError, match=f"{name} is damaged"):
            load(shards)
    (shards / name).unlink()
    with pytest.raises(DataError, match=f"{name} cannot be read: No such file"):
        load(shards)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"format": "other"}', '{"format": "other", "dtype": "<u2"}'])
def test_an_index_that_is_not_one_is_an_error(shards, content):
    (shards / "index.json").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"index\.json"):
        ShardIndex.read(shards)


def test_the_tokenizer_must_be_that_of_the_ids(shards):
    Tokenizer.train(["abc"], TextConfig(tokenizer="char")).save(shards / "tokenizer.json")
    with pytest.raises(DataError, match="encoded with another tokenizer"):
        load(shards)
    (shards / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"tokenizer\.json"):  # of a folder of data every error is one of data
        load(shards)


def test_shards_are_refused_where_they_are_of_no_use(shards, tmp_path):
    data = DataConfig(files=FilesConfig(train_file=str(shards)))
    from glassformer.tasks import TASKS

    with pytest.raises(UsageError, match="classify needs texts with labels"):
        load_text_data(TASKS["classify"].schema, data)
    with pytest.raises(UsageError, match="limit counts examples"):
        load_text_data(DataSchema("lm"), replace(data, limit=3))
    encode_text(tmp_path / "none", [tmp_path / "a.txt"], replace(CONFIG, valid_fraction=0.0))
    with pytest.raises(DataError, match="nothing to validate on"):
        load(tmp_path / "none")
