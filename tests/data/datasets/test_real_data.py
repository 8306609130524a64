"""The published data sets themselves, where GLASSFORMER_DATA names a folder with copies; elsewhere, no tests."""

from __future__ import annotations

import os

import pytest
from tests.helpers.for_each import for_each

from glassformer.config import DataConfig, Multi30kConfig, TextConfig
from glassformer.data.datasets.local_files import load_text_data
from glassformer.tasks import TASKS
from glassformer.text.tokenizer import Tokenizer

pytestmark = pytest.mark.slow

if os.environ.get("GLASSFORMER_DATA"):

    def test_imdb_is_the_published_one(tmp_path, monkeypatch):
        monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path))
        data = load_text_data(TASKS["classify"].schema, DataConfig(dataset="imdb"))
        assert (len(data.train), len(data.valid), len(data.test)) == (22_500, 2_500, 25_000)
        assert data.test.answers.count("pos") == 12_500
        assert not any("differ" in note for note in data.notes)
        assert load_text_data(TASKS["classify"].schema, DataConfig(dataset="imdb")) == data

    @for_each(("src", "tgt"), [("en", "de"), ("en", "fr"), ("de", "en")])
    def test_multi30k_is_the_published_one(src, tgt):
        config = DataConfig(dataset="multi30k", multi30k=Multi30kConfig(src_lang=src, tgt_lang=tgt))
        data = load_text_data(TASKS["translate"].schema, config)
        assert (len(data.train), len(data.valid), len(data.test)) == (29_000, 1_014, 1_000)
        assert data.notes == []

    @for_each("kind", ["char", "byte-bpe", "bpe"])
    def test_a_joint_vocabulary_restores_every_training_sentence(kind):
        train = load_text_data(TASKS["translate"].schema, DataConfig(dataset="multi30k")).train
        texts = [*train.text, *train.answer]
        tokenizer = Tokenizer.train(texts, TextConfig(tokenizer=kind, vocab_size=6000))
        assert [tokenizer.decode(ids) for ids in tokenizer.encode_batch(texts)] == texts
        assert Tokenizer.train(texts, TextConfig(tokenizer=kind, vocab_size=6000)).sha256 == tokenizer.sha256

    def test_tiny_shakespeare_is_the_published_one():
        data = load_text_data(TASKS["lm"].schema, DataConfig(dataset="shakespeare"))
        lengths = [len(split.text[0]) for split in (data.train, data.valid, data.test)]
        assert lengths == [903_469, 100_385, 111_540]
        assert not any("differs" in note for note in data.notes)
