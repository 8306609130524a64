"""IMDB from a tiny archive of the official layout: texts by number, films never part."""

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
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GLASSFORMER_DATA", raising=False)
    return tmp_path / "cache"


def write(path, **changed):
    """Write an archive; `changed` has the content of files, by what is in their names, and None removes them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, text in [*sorted(files()), ("aclImdb/README", "not wanted")]:
            found = [content for part, content in changed.items() if part in name]
            raw = text.encode("utf-8") if not found else found[0]
            if raw is not None:
                info = tarfile.TarInfo(name)
                info.size = len(raw)
                tar.addfile(info, io.BytesIO(raw))
    return path


@pytest.fixture
def archive(tmp_path):
    return write(tmp_path / "data" / "imdb" / "aclImdb.tar.gz")


def load(place, **options):
    data = DataConfig(dataset="imdb", data_dir=str(place.parent), **options)
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
    whole = load(archive, use_test_as_validation=True)
    assert len(whole.train) == 80 and whole.valid == whole.test
    assert any("other than the published" in note for note in data.notes)


def test_no_film_is_in_training_and_validation(archive):
    data = load(archive, valid_fraction=0.3)
    train, valid = ({text.split("<")[0].split()[3] for text in split.text} for split in (data.train, data.valid))
    assert train and valid and train.isdisjoint(valid)
    assert any("by film" in note for note in data.notes)


def test_what_is_missing_or_damaged_is_named(tmp_path, archive):
    with pytest.raises(DataError, match=r"there is no aclImdb\*\.tar\.gz here"):
        load(tmp_path / "none" / "x")
    with pytest.raises(DataError, match=r"aclImdb\.tar\.gz cannot be read: 'utf-8' codec"):
        load(write(archive, **{"test/neg/7_7.txt": b"caf\xe9"}))
    with pytest.raises(DataError, match="no reviews in test/pos"):
        load(write(archive, **{"test/pos": None}))
    whole = write(archive).read_bytes()
    for size in range(0, len(whole) - 40, len(whole) // 40):
        archive.write_bytes(whole[:size])
        with pytest.raises(DataError, match=r"cannot be read|no reviews in"):
            load(archive)


def test_no_link_of_an_archive_is_followed(archive, tmp_path):
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    with tarfile.open(archive, "w:gz") as tar:
        for kind, target in ((tarfile.SYMTYPE, str(tmp_path / "secret")), (tarfile.LNKTYPE, "../../secret")):
            for name in imdb.LABELLED:
                info = tarfile.TarInfo(f"aclImdb/{name}/0_{kind.decode()}.txt")
                info.type, info.linkname = kind, target
                tar.addfile(info)
    with pytest.raises(DataError):
        load(archive)


def test_texts_to_pretrain_on_hold_nothing_that_is_scored_later(archive):
    schema, options = TASKS["pretrain"].schema, {"data_dir": str(archive.parent), "valid_fraction": 0.3}
    data = load_text_data(schema, DataConfig(dataset="imdb-texts", **options))
    labelled = load(archive, valid_fraction=0.3)
    assert data.valid.text == labelled.valid.text and data.test is None and data.train.answer is None
    assert {*labelled.train.text} < {*data.train.text}
    assert any(text.startswith("train unsup") for text in data.train.text)
    films = [{text.split("<")[0].split()[3] for text in split.text} for split in (data.train, data.valid)]
    assert films[0].isdisjoint(films[1])
    assert "aclImdb/train/unsup" in data.hashes
    assert load_text_data(schema, DataConfig(dataset="imdb-texts", **options)) == data, "the same each time"


def test_a_review_of_the_test_split_is_not_pretrained_on_under_another_name(archive):
    same = b"a review that stands in several places"
    write(archive, **dict.fromkeys(("test/pos/3_3.txt", "train/unsup/4_4.txt", "train/neg/5_5.txt"), same))
    options = {"data_dir": str(archive.parent), "valid_fraction": 0.1}
    data = load_text_data(TASKS["pretrain"].schema, DataConfig(dataset="imdb-texts", **options))
    assert not {*data.train.text} & {*load(archive).test.text}


def test_an_archive_without_unlabelled_reviews_still_classifies(archive):
    write(archive, **{"train/unsup": None})
    assert len(load(archive).test) == 80
    with pytest.raises(DataError, match="no reviews in train/unsup"):
        load_text_data(TASKS["pretrain"].schema, DataConfig(dataset="imdb-texts", data_dir=str(archive.parent)))


def test_labelled_reviews_can_be_pretrained_on_and_unlabelled_ones_not_classified(archive):
    data = load_text_data(TASKS["pretrain"].schema, DataConfig(dataset="imdb", data_dir=str(archive.parent)))
    assert len(data.train) == 72
    with pytest.raises(UsageError, match="holds texts alone, and classify needs texts with labels"):
        load_text_data(TASKS["classify"].schema, DataConfig(dataset="imdb-texts", data_dir=str(archive.parent)))
