"""The door to the data, and the two small data sets behind it, on made files."""

from __future__ import annotations

import gzip

import pytest
from tests.helpers.for_each import for_each

from glassformer.config import Config, DataConfig
from glassformer.config.recipes import override
from glassformer.data.datasets import multi30k, shakespeare
from glassformer.data.datasets.local_files import load_text_data
from glassformer.errors import DataError, UsageError
from glassformer.tasks import TASKS, task_class

SIZES = {"train": 30, "val": 4, "test_2016_flickr": 5}


@pytest.fixture(autouse=True)
def no_data_but_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GLASSFORMER_DATA", raising=False)


@pytest.fixture
def pairs(tmp_path):
    folder = tmp_path / "multi30k"
    folder.mkdir()
    for part, n in SIZES.items():
        for language in multi30k.LANGUAGES:
            raw = "".join(f"{part} {language} {i} a\u2028b\x0c\n" for i in range(n)).encode()
            (folder / f"{part}.{language}.gz").write_bytes(gzip.compress(raw, mtime=0))
    return folder


def load_pairs(place, **options):
    config = override(Config(), {"dataset": "multi30k", "data_dir": place, **options})
    return load_text_data(TASKS["translate"].schema, config.data)


@for_each(("src", "tgt"), [("en", "de"), ("de", "en"), ("en", "fr")])
def test_multi30k_pairs_are_parallel_and_lines_end_at_newline_alone(pairs, src, tgt):
    data = load_pairs(pairs.parent, src_lang=src, tgt_lang=tgt)
    for split, (part, n) in zip((data.train, data.valid, data.test), SIZES.items(), strict=True):
        assert split.text == [f"{part} {src} {i} a\u2028b\x0c" for i in range(n)]
        assert split.answer == [f"{part} {tgt} {i} a\u2028b\x0c" for i in range(n)]
    assert len(data.hashes) == 6
    assert any("other than the published" in note for note in data.notes)
    data = load_pairs(pairs, use_test_as_validation=True, limit=7)
    assert all("train en " in text for text in data.train.text)
    assert len(data.train) == 7 and data.valid == data.test
    assert any("7 of 30 training examples are used, drawn by seed" in found.matter for found in data.findings)


def test_multi30k_names_what_is_wrong(pairs):
    for language in ("cs", "de"):
        with pytest.raises(UsageError, match=f'no pairs of the languages "{language}" and "de"'):
            load_pairs(pairs, src_lang=language)
    (pairs / "val.fr.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    with pytest.raises(DataError, match="val has 4 lines in en, but 2 in fr"):
        load_pairs(pairs, tgt_lang="fr")
    (pairs / "val.fr.gz").write_bytes(gzip.compress(b"one\ntw\xff\n\n\n"))
    with pytest.raises(DataError, match=r"val\.fr\.gz cannot be read: 'utf-8' codec"):
        load_pairs(pairs, tgt_lang="fr")
    (pairs / "val.fr.gz").unlink()
    with pytest.raises(DataError, match=r"there is no train\.en\.gz, train\.fr\.gz, val\.en\.gz"):
        load_pairs(pairs, tgt_lang="fr")


def test_what_is_missing_is_fetched_with_its_hash(pairs, tmp_path, monkeypatch):
    requested = []

    def fetch(url, name, sha256):
        requested.append((url, name, sha256))
        return pairs / url.rpartition("/")[2]

    monkeypatch.setattr(multi30k, "fetch", fetch)
    monkeypatch.setattr(shakespeare, "fetch", fetch)
    data = load_text_data(TASKS["translate"].schema, DataConfig(dataset="multi30k"))
    assert len(data.train) == 30 and len(requested) == 6
    address = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/train.en.gz"
    assert requested[0] == (address, "multi30k", multi30k.SHA256["train.en.gz"])
    (pairs / "input.txt").write_text("words, words, words\n" * 50, encoding="utf-8")
    data = load_text_data(TASKS["lm"].schema, DataConfig(dataset="shakespeare"))
    assert requested[-1] == (shakespeare.URL, "tinyshakespeare", shakespeare.SHA256)
    assert "input.txt: other than the published data set" in data.notes


def test_shakespeare_parts_are_consecutive_and_the_last_tenth_is_the_test(tmp_path):
    text = "".join(chr(97 + i % 26) for i in range(1003)) + "é\n"
    (tmp_path / "input.txt").write_text(text, encoding="utf-8", newline="")
    config = DataConfig(dataset="shakespeare", data_dir=str(tmp_path), valid_fraction=0.1)
    data = load_text_data(TASKS["lm"].schema, config)
    (train,), (valid,), (test,) = data.train.text, data.valid.text, data.test.text
    assert valid + train + test == text, "training runs up to the test part"
    assert (len(train), len(valid), len(test)) == (814, 90, 101)
    whole = load_text_data(
        TASKS["lm"].schema, DataConfig(dataset="shakespeare", data_dir=str(tmp_path), use_test_as_validation=True)
    )
    assert whole.train.text[0] == text[:904] and whole.valid.text == [test]


def test_shakespeare_names_what_is_wrong(tmp_path):
    config = DataConfig(dataset="shakespeare", data_dir=str(tmp_path))
    with pytest.raises(DataError, match=r"there is no input\.txt here"):
        load_text_data(TASKS["lm"].schema, config)
    (tmp_path / "input.txt").write_bytes(b"a\nb\nc\xff\n" * 50)
    with pytest.raises(DataError, match=r"input\.txt cannot be read"):
        load_text_data(TASKS["lm"].schema, config)
    with pytest.raises(UsageError, match="limit counts examples"):
        load_text_data(TASKS["lm"].schema, DataConfig(dataset="shakespeare", data_dir=str(tmp_path), limit=3))
    with pytest.raises(UsageError, match="valid_fraction"):
        override(Config(), {"dataset": "shakespeare", "data_dir": str(tmp_path), "valid_fraction": 0})


@for_each(
    ("task", "dataset", "message"),
    [("lm", "imdb", "holds texts with labels, and lm needs running text"), ("sing", "imdb", "no task 'sing'")],
)
def test_what_does_not_fit_is_a_usage_error(task, dataset, message):
    with pytest.raises(UsageError, match=message):
        load_text_data(task_class(task).schema, DataConfig(dataset=dataset))
