"""IMDB from a tiny archive of the official layout: archive and folder agree, films never part."""

from __future__ import annotations

import io
import tarfile

import pytest

from glassformer.config import DataConfig
from glassformer.data.datasets import imdb
from glassformer.data.datasets.local_files import load_text_data
from glassformer.errors import DataError, UsageError
from glassformer.tasks import TASKS

N = 40
N_FILMS = 10


def files():
    for side in ("train", "test"):
        for label in ("neg", "pos", "unsup") if side == "train" else ("neg", "pos"):
            urls = [f"http://www.imdb.com/title/tt{side == 'test'}{i % N_FILMS:07}/usercomments" for i in range(N)]
            urls = [url.replace("ttTrue", "tt9").replace("ttFalse", "tt1") for url in urls]
            yield f"aclImdb/{side}/urls_{label}.txt", "\n".join(urls) + "\n"
            for i in range(N):
                text = f"{side} {label} {i} film{i % N_FILMS}<br /><br />É „gut“\u2028"
                yield f"aclImdb/{side}/{label}/{i}_{i % 10}.txt", text


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GLASSFORMER_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "data" / "imdb" / "aclImdb.tar.gz"
    path.parent.mkdir(parents=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, text in [*sorted(files()), ("aclImdb/README", "not wanted")]:
            raw = text.encode("utf-8")
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    return path


@pytest.fixture
def folder(tmp_path):
    for name, text in files():
        path = tmp_path / "extracted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    return tmp_path / "extracted"


def load(place, **options):
    data = DataConfig(dataset="imdb", data_dir=str(place), **options)
    return load_text_data(TASKS["classify"].schema, data)


@pytest.mark.row("2.1")
def test_parts_labels_and_texts(archive):
    data = load(archive)
    assert TASKS["classify"].classes_of(data.train) == ["neg", "pos"]
    assert (len(data.train), len(data.valid), len(data.test)) == (72, 8, 80)
    for split, side in ((data.train, "train"), (data.valid, "train"), (data.test, "test")):
        for text, label in zip(split.text, split.answers, strict=True):
            assert text.startswith(f"{side} {label} ")
            assert text.endswith("<br /><br />É „gut“\u2028")
    assert data.test.text[2].startswith("test neg 2 ")  # by number, not by name


def test_no_film_is_in_training_and_validation(archive):
    data = load(archive, valid_fraction=0.3)
    train, valid = ({text.split("<")[0].split()[3] for text in split.text} for split in (data.train, data.valid))
    assert train and valid and train.isdisjoint(valid)
    assert any("by film" in note for note in data.notes)


def test_archive_parent_and_extracted_folder_agree(archive, folder):
    expected = load(archive)
    assert load(archive.parent) == load(archive.parent.parent) == expected
    assert load(folder) == load(folder / "aclImdb") == expected


def test_the_environment_variable_is_searched(archive, monkeypatch):
    monkeypatch.setenv("GLASSFORMER_DATA", str(archive.parent.parent))
    assert imdb.load(DataConfig(dataset="imdb")).hashes == load(archive).hashes


def test_a_second_start_reads_the_cache_and_a_damaged_cache_is_read_anew(archive, own_cache, monkeypatch):
    first = load(archive)
    with monkeypatch.context() as patch:
        patch.setattr(imdb, "read_members", lambda path: pytest.fail("the archive was read again"))
        assert load(archive) == first
    (cached,) = (own_cache / "parsed").iterdir()
    raw = bytearray(cached.read_bytes())
    for position in (0, 10, len(raw) // 2, len(raw) - 3):
        raw[position] ^= 1
        cached.write_bytes(raw)
        assert load(archive) == first


def test_a_changed_folder_is_read_anew(folder):
    before = load(folder)
    (folder / "aclImdb/train/pos/3_3.txt").write_text("changed and longer", encoding="utf-8")
    after = load(folder)
    assert "changed and longer" in after.train.text + after.valid.text
    assert before.hashes["aclImdb/train/pos"] != after.hashes["aclImdb/train/pos"]


def test_use_test_as_validation_keeps_all_of_training_and_says_so(archive):
    data = load(archive, use_test_as_validation=True)
    assert len(data.train) == 80 and data.valid == data.test
    assert any("TEST" in note for note in data.notes)


def test_limit_keeps_both_labels(archive):
    data = load(archive, limit=20)
    assert len(data.train) == 20 and len(data.test) == 80
    assert 3 <= data.train.answers.count("pos") <= 17
    assert load(archive, limit=20) == data


def test_a_data_set_other_than_the_published_one_is_noted(archive):
    assert any("differ from the published" in note for note in load(archive).notes)


def test_missing_parts_and_bad_bytes_name_the_place(tmp_path, folder):
    with pytest.raises(DataError, match="there is no IMDB"):
        load(tmp_path)
    (folder / "aclImdb/test/neg/7_7.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=r"test/neg/7_7\.txt: byte 3 is not UTF-8"):
        load(folder)
    for path in (folder / "aclImdb/test/pos").iterdir():
        path.unlink()
    (folder / "aclImdb/test/neg/7_7.txt").write_bytes(b"cafe")
    with pytest.raises(DataError, match="no reviews in test/pos"):
        load(folder)


def test_a_cache_that_cannot_be_written_costs_nothing(archive, own_cache):
    own_cache.write_text("a file where the folder should be", encoding="utf-8")
    assert len(load(archive).train) == 72


def test_a_download_is_checked_against_the_published_texts(archive, monkeypatch):
    with pytest.raises(DataError, match="differ from the published"):
        imdb._check(archive)
    parts = imdb._parse(imdb.read_members(archive), "x")
    monkeypatch.setattr(imdb, "SHA256", {name: part.sha256 for name, part in parts.items()})
    imdb._check(archive)
    assert not any("differ" in note for note in load(archive).notes)


def test_the_large_tables_of_the_official_archive_are_passed_over(archive, tmp_path):
    """The official archive also holds bags of words, the largest of 41 MB."""
    with tarfile.open(tmp_path / "aclImdb_v1.tar.gz", "w:gz", compresslevel=1) as tar:
        info = tarfile.TarInfo("aclImdb/train/unsupBow.feat")
        info.size = 42_000_000
        tar.addfile(info, io.BytesIO(bytes(info.size)))
        with tarfile.open(archive) as small:
            for member in small:
                tar.addfile(member, small.extractfile(member))
    assert load(tmp_path / "aclImdb_v1.tar.gz") == load(archive)


def test_texts_to_pretrain_on_hold_nothing_that_is_scored_later(archive):
    schema, options = TASKS["pretrain"].schema, {"data_dir": str(archive), "valid_fraction": 0.3}
    data = load_text_data(schema, DataConfig(dataset="imdb-texts", **options))
    labelled = load(archive, valid_fraction=0.3)
    assert data.valid.text == labelled.valid.text and data.test is None and data.train.answer is None
    assert {*labelled.train.text} < {*data.train.text}
    assert any(text.startswith("train unsup") for text in data.train.text)
    films = [{text.split("<")[0].split()[3] for text in split.text} for split in (data.train, data.valid)]
    assert films[0].isdisjoint(films[1])
    assert "aclImdb/train/unsup" in data.hashes
    assert load_text_data(schema, DataConfig(dataset="imdb-texts", **options)) == data  # from the cache


def test_a_review_of_the_test_split_is_not_pretrained_on_under_another_name(folder):
    test, unsup = folder / "aclImdb/test/pos/3_3.txt", folder / "aclImdb/train/unsup/4_4.txt"
    unsup.write_bytes(test.read_bytes())
    (folder / "aclImdb/train/neg/5_5.txt").write_bytes(test.read_bytes())
    data = load_text_data(
        TASKS["pretrain"].schema, DataConfig(dataset="imdb-texts", data_dir=str(folder), valid_fraction=0.1)
    )
    assert not {*data.train.text} & {*load(folder).test.text}


def test_a_folder_without_unlabelled_reviews_still_classifies(folder):
    for path in (folder / "aclImdb/train/unsup").iterdir():
        path.unlink()
    assert len(load(folder).test) == 80
    with pytest.raises(DataError, match="no reviews in train/unsup"):
        load_text_data(TASKS["pretrain"].schema, DataConfig(dataset="imdb-texts", data_dir=str(folder)))


def test_labelled_reviews_can_be_pretrained_on_and_unlabelled_ones_not_classified(archive):
    data = load_text_data(TASKS["pretrain"].schema, DataConfig(dataset="imdb", data_dir=str(archive)))
    assert len(data.train) == 72
    with pytest.raises(UsageError, match="holds texts alone, and classify needs texts with labels"):
        load_text_data(TASKS["classify"].schema, DataConfig(dataset="imdb-texts", data_dir=str(archive)))
