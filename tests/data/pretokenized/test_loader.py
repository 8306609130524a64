"""Shards as training data: damaged, foreign and useless ones are refused by name; ids are read as one array."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from glassformer.config import DataConfig, FilesConfig, TextConfig
from glassformer.data import shard_documents, shard_writer
from glassformer.data.corpus import pretokenized_corpus
from glassformer.data.datasets.columns import DataSchema
from glassformer.data.datasets.local_files import load_pretokenized
from glassformer.data.diagnostics import Diagnostics
from glassformer.data.shard_writer import PretokenizedWriter
from glassformer.data.shards import PretokenizeConfig, ShardedIds, ShardIndex
from glassformer.errors import DataError, UsageError
from glassformer.text.tokenizer import Tokenizer

CONFIG = PretokenizeConfig(valid_fraction=0.2, shard_mb=2, vocab_size=300)


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished folder of several shards; its text is in a.txt beside it."""
    monkeypatch.setattr(shard_documents, "SEGMENT_BYTES", 128)
    monkeypatch.setattr(shard_writer, "BATCH_CHARS", 1024)
    lines = "".join(f"{i} and {i * i}, that is the question\n" for i in range(400))
    (tmp_path / "a.txt").write_text(lines, encoding="utf-8")
    assert len(list(PretokenizedWriter(tmp_path / "out", [tmp_path / "a.txt"], CONFIG, None).write())) > 3
    return tmp_path / "out"


def load(path: Path):
    return load_pretokenized(DataSchema("lm"), DataConfig(files=FilesConfig(train_file=str(path))), Diagnostics())


def test_shards_are_one_running_text(shards):
    data = load(shards)
    assert data.train.shards is not None and data.tokenizer is not None and not data.train.text
    assert len(data.train) == data.train.shards.counts["documents"]
    corpus = pretokenized_corpus(data.train.shards, data.tokenizer)
    assert corpus.is_running_text and corpus.stats["n_tokens"] == corpus.lengths.sum() == len(corpus.ids[0])
    assert data.valid.text == data.train.shards.read_held_out()


@pytest.mark.parametrize("name", ["shard-00001.bin", "held-out-00001.jsonl"])
def test_a_damaged_file_is_named(shards, name):
    whole = (shards / name).read_bytes()
    (shards / name).write_bytes(whole[:-2])
    with pytest.raises(DataError, match=rf"{name}: expected [\d,]+ bytes, got [\d,]+"):
        load(shards)
    (shards / name).write_bytes(whole[:-2] + b"..")
    with pytest.raises(DataError, match=f"{name} is damaged"):
        load(shards)
    (shards / name).unlink()
    with pytest.raises(DataError, match=f"{name} is missing"):
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


def test_an_unfinished_folder_is_refused(shards):
    index = json.loads((shards / "index.json").read_text(encoding="utf-8"))
    (shards / "index.json").write_text(json.dumps(index | {"finished": False}), encoding="utf-8")
    with pytest.raises(DataError, match="not finished"):
        load(shards)


def test_shards_are_refused_where_they_are_of_no_use(shards, tmp_path):
    data = DataConfig(files=FilesConfig(train_file=str(shards)))
    from glassformer.tasks import TASKS

    with pytest.raises(UsageError, match="classify needs texts with labels"):
        load_pretokenized(TASKS["classify"].schema, data, Diagnostics())
    with pytest.raises(UsageError, match="limit counts examples"):
        load_pretokenized(DataSchema("lm"), replace(data, limit=3), Diagnostics())
    config = replace(CONFIG, valid_fraction=0.0)
    list(PretokenizedWriter(tmp_path / "none", [tmp_path / "a.txt"], config, None).write())
    with pytest.raises(DataError, match="nothing to validate on"):
        load(tmp_path / "none")


def test_ids_in_several_arrays_are_read_as_one():
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 60_000, n).astype(np.uint16) for n in (5, 1, 300, 2)]
    ids, whole = ShardedIds(arrays), np.concatenate(arrays)
    assert len(ids) == len(whole) and ids.dtype == whole.dtype
    for shape in ((0,), (1,), (50,), (4, 9)):
        places = rng.integers(0, len(whole), shape)
        assert np.array_equal(ids[places], whole[places])
    assert np.array_equal(ids[3:308:7], whole[3:308:7]) and np.array_equal(ids[:], whole)
