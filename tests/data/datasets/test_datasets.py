"""The built-in data sets on made files: what they hold, what is missing or damaged, and what is fetched."""

import datetime
import gzip
import io
import re
import tarfile
from collections import defaultdict
from functools import cache, partial

import pytest
from tests.helpers.for_each import for_each

from glassformer.config import Config, DataConfig
from glassformer.config.recipes import override
from glassformer.data.datasets import imdb, multi30k, shakespeare
from glassformer.data.datasets.dates import FIRST_DAY, LAST_DAY, LOCALES, patterns_of, write_date
from glassformer.data.datasets.dates import load as load_dates
from glassformer.data.datasets.local_files import load_text_data
from glassformer.data.splits import TextData
from glassformer.errors import DataError, UsageError
from glassformer.tasks import TASKS, task_class

SIZES = {"train": 30, "val": 4, "test_2016_flickr": 5}


@pytest.fixture(autouse=True)
def no_data_but_ours(monkeypatch):
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


def load(task, dataset, place="", **options):
    return load_text_data(task_class(task).schema, DataConfig(dataset=dataset, data_dir=str(place) or None, **options))


load_pairs, load_text = partial(load, "translate", "multi30k"), partial(load, "lm", "shakespeare")
load_reviews, load_reviews_alone = partial(load, "classify", "imdb"), partial(load, "pretrain", "imdb-texts")


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


def test_what_is_missing_is_fetched_with_its_hash(pairs, monkeypatch):
    requested = []

    def fetch(url, name, sha256):
        requested.append((url, name, sha256))
        return pairs / url.rpartition("/")[2]

    monkeypatch.setattr(multi30k, "fetch", fetch)
    monkeypatch.setattr(shakespeare, "fetch", fetch)
    assert len(load_pairs().train) == 30 and len(requested) == 6
    address = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/train.en.gz"
    assert requested[0] == (address, "multi30k", multi30k.SHA256["train.en.gz"])
    (pairs / "input.txt").write_text("words, words, words\n" * 50, "utf-8")
    assert "input.txt: other than the published data set" in load_text().notes
    assert requested[-1] == (shakespeare.URL, "tinyshakespeare", shakespeare.SHA256)


def test_shakespeare_parts_are_consecutive_and_the_last_tenth_is_the_test(tmp_path):
    text = "".join(chr(97 + i % 26) for i in range(1003)) + "é\n"
    (tmp_path / "input.txt").write_text(text, encoding="utf-8", newline="")
    data = load_text(tmp_path, valid_fraction=0.1)
    (train,), (valid,), (test,) = data.train.text, data.valid.text, data.test.text
    assert valid + train + test == text, "training runs up to the test part"
    assert (len(train), len(valid), len(test)) == (814, 90, 101)
    whole = load_text(tmp_path, use_test_as_validation=True)
    assert whole.train.text[0] == text[:904] and whole.valid.text == [test]


def test_shakespeare_names_what_is_wrong(tmp_path):
    with pytest.raises(DataError, match=r"there is no input\.txt here"):
        load_text(tmp_path)
    (tmp_path / "input.txt").write_bytes(b"a\nb\nc\xff\n" * 50)
    with pytest.raises(DataError, match=r"input\.txt cannot be read"):
        load_text(tmp_path)
    with pytest.raises(UsageError, match="limit counts examples"):
        load_text(tmp_path, limit=3)
    with pytest.raises(UsageError, match="valid_fraction"):
        override(Config(), {"dataset": "shakespeare", "data_dir": str(tmp_path), "valid_fraction": 0})


@for_each(
    ("task", "dataset", "message"),
    [
        ("lm", "imdb", "holds texts with labels, and lm needs running text"),
        ("classify", "imdb-texts", "holds texts alone, and classify needs texts with labels"),
        ("sing", "imdb", "no task 'sing'"),
    ],
)
def test_what_does_not_fit_is_a_usage_error(task, dataset, message):
    with pytest.raises(UsageError, match=message):
        load(task, dataset)


# IMDB from a tiny archive of the official layout: texts by number, films never part.

N, N_FILMS = 40, 10
ARCHIVE = "aclImdb.tar.gz"


def review_files():
    for side, number in (("train", "tt1"), ("test", "tt9")):
        for label in ("neg", "pos", "unsup") if side == "train" else ("neg", "pos"):
            urls = [f"http://www.imdb.com/title/{number}{i % N_FILMS:07}/usercomments" for i in range(N)]
            yield f"aclImdb/{side}/urls_{label}.txt", "\n".join(urls) + "\n"
            for i in range(N):
                text = f"{side} {label} {i} film{i % N_FILMS}<br /><br />É „gut“\u2028"
                yield f"aclImdb/{side}/{label}/{i}_{i % 10}.txt", text


def write_archive(folder, **changed):
    """Write an archive; `changed` has the content of files, by what is in their names, and None removes them."""
    with tarfile.open(folder / ARCHIVE, "w:gz") as tar:
        for name, text in [*sorted(review_files()), ("aclImdb/README", "not wanted")]:
            [raw] = [content for part, content in changed.items() if part in name] or [text.encode("utf-8")]
            if raw is not None:
                info = tarfile.TarInfo(name)
                info.size = len(raw)
                tar.addfile(info, io.BytesIO(raw))
    return folder


@pytest.fixture
def reviews(tmp_path):
    (tmp_path / "imdb").mkdir()
    return write_archive(tmp_path / "imdb")


@pytest.mark.row("2.1")
def test_parts_labels_and_texts(reviews):
    data = load_reviews(reviews)
    assert TASKS["classify"].classes_of(data.train) == ["neg", "pos"]
    assert (len(data.train), len(data.valid), len(data.test)) == (72, 8, 80)
    for split, side in ((data.train, "train"), (data.valid, "train"), (data.test, "test")):
        for text, label in zip(split.text, split.answers, strict=True):
            assert text.startswith(f"{side} {label} ")
            assert text.endswith("<br /><br />É „gut“\u2028")
    assert data.test.text[2].startswith("test neg 2 ")  # by number, not by name
    whole = load_reviews(reviews.parent, use_test_as_validation=True)
    assert len(whole.train) == 80 and whole.valid == whole.test
    assert any("other than the published" in note for note in data.notes)


def test_what_is_missing_or_damaged_is_named(reviews):
    with pytest.raises(DataError, match=r"there is no aclImdb\*\.tar\.gz here"):
        load_reviews(reviews / "none")
    with pytest.raises(DataError, match=r"aclImdb\.tar\.gz cannot be read: 'utf-8' codec"):
        load_reviews(write_archive(reviews, **{"test/neg/7_7.txt": b"caf\xe9"}))
    with pytest.raises(DataError, match="no reviews in test/pos"):
        load_reviews(write_archive(reviews, **{"test/pos": None}))
    whole = (write_archive(reviews) / ARCHIVE).read_bytes()
    for size in range(0, len(whole) - 40, len(whole) // 40):
        (reviews / ARCHIVE).write_bytes(whole[:size])
        with pytest.raises(DataError, match=r"cannot be read|no reviews in"):
            load_reviews(reviews)


def test_no_link_of_an_archive_is_followed(reviews, tmp_path):
    (tmp_path / "secret").write_text("secret", "utf-8")
    with tarfile.open(reviews / ARCHIVE, "w:gz") as tar:
        for kind, target in ((tarfile.SYMTYPE, str(tmp_path / "secret")), (tarfile.LNKTYPE, "../../secret")):
            for name in imdb.LABELLED:
                info = tarfile.TarInfo(f"aclImdb/{name}/0_{kind.decode()}.txt")
                info.type, info.linkname = kind, target
                tar.addfile(info)
    with pytest.raises(DataError):
        load_reviews(reviews)


def test_texts_to_pretrain_on_hold_nothing_that_is_scored_later_and_no_film_of_validation(reviews):
    data, labelled = (load_some(reviews, valid_fraction=0.3) for load_some in (load_reviews_alone, load_reviews))
    assert data.valid.text == labelled.valid.text and data.test is None and data.train.answer is None
    assert labelled.train.text and {*labelled.train.text} < {*data.train.text}
    assert any(text.startswith("train unsup") for text in data.train.text)
    films = [{text.split("<")[0].split()[3] for text in split.text} for split in (data.train, data.valid)]
    assert all(films) and films[0].isdisjoint(films[1]) and any("by film" in note for note in labelled.notes)
    assert "aclImdb/train/unsup" in data.hashes
    assert load_reviews_alone(reviews, valid_fraction=0.3) == data, "the same each time"


def test_a_review_of_the_test_split_is_not_pretrained_on_under_another_name(reviews):
    same = b"a review that stands in several places"
    write_archive(reviews, **dict.fromkeys(("test/pos/3_3.txt", "train/unsup/4_4.txt", "train/neg/5_5.txt"), same))
    assert not {*load_reviews_alone(reviews).train.text} & {*load_reviews(reviews).test.text}


def test_an_archive_without_unlabelled_reviews_still_classifies_and_its_labelled_ones_are_texts(reviews):
    write_archive(reviews, **{"train/unsup": None})
    assert len(load_reviews(reviews).test) == 80 and len(load("pretrain", "imdb", reviews).train) == 72
    with pytest.raises(DataError, match="no reviews in train/unsup"):
        load_reviews_alone(reviews)


# `dates`: reproducible, disjoint, right, and never ambiguous within a locale


@cache
def dates() -> TextData:
    return load_dates(DataConfig(dataset="dates", n_dates=3000))


def test_parts_have_their_sizes_and_share_neither_a_source_nor_a_date():
    splits = (dates().train, dates().valid, dates().test)
    assert [*map(len, splits)] == [3000, 2000, 2000] and len(LOCALES) >= 30
    assert dates().extra_tokens == tuple(f"[{locale}]" for locale in LOCALES)
    for text, target in [pair for split in splits for pair in zip(split.text, split.answer, strict=True)]:
        locale_tag, _, written = text.partition(" ")
        assert locale_tag in dates().extra_tokens and 6 <= len(written) <= 40 and written == written.strip()
        assert FIRST_DAY <= datetime.date.fromisoformat(target) <= LAST_DAY
    for column in ("text", "answer"):
        train, valid, test = (set(getattr(split, column)) for split in splits)
        assert train.isdisjoint(valid) and train.isdisjoint(test) and valid.isdisjoint(test)
    assert all(len(set(split.text)) == len(split) for split in splits)


def test_the_same_arguments_give_the_same_pairs_and_the_held_out_parts_never_change():
    again = load_dates(DataConfig(dataset="dates", n_dates=3000))
    assert (again.train, again.hashes) == (dates().train, dates().hashes)
    other = load_dates(DataConfig(dataset="dates", split_seed=7, n_dates=500))
    assert (other.valid, other.test) == (dates().valid, dates().test)
    assert set(other.train.text) != set(dates().train.text[:500])


def test_locales_are_chosen_by_name_in_any_order():
    chosen = load_dates(DataConfig(dataset="dates", n_dates=300, locales="de_DE, en_US"))
    assert chosen.extra_tokens == ("[en_US]", "[de_DE]") and "in 2 locales" in chosen.notes[0]
    for split in (chosen.train, chosen.valid, chosen.test):
        assert {text.split()[0] for text in split.text} == set(chosen.extra_tokens)
    assert (len(chosen.train), len(chosen.test)) == (300, 2000)


@for_each(
    ("locales", "n", "message"),
    [
        ("en_US,en_AU", 9, "not 'en_AU'"),
        ("", 9, "not ''"),
        ("en_US,", 9, "not ''"),
        ("en_US", 1_000_000, "1 locale can give"),
    ],
)
def test_unknown_locales_and_more_pairs_than_they_have_are_refused(locales, n, message):
    with pytest.raises(UsageError, match=message):
        load_dates(DataConfig(dataset="dates", n_dates=n, locales=locales))

    for impossible in (0, 1_000_001):
        with pytest.raises(UsageError, match="n_dates"):
            override(Config(), {"dataset": "dates", "n_dates": impossible})


def test_the_locale_of_fewest_patterns_has_enough_pairs():
    locale = min(LOCALES, key=lambda name: len(patterns_of(name)))
    assert len(load_dates(DataConfig(dataset="dates", n_dates=2000, locales=locale)).test) == 2000


@for_each("locale", LOCALES)
def test_no_text_of_a_locale_means_two_dates(locale):
    """If two formats put numbers in another order, some of these dates, all of small numbers, would collide."""
    small = [datetime.date(2000 + y, m, d) for y in range(1, 10, 2) for m in range(1, 13) for d in range(1, 13, 2)]
    others = [datetime.date(1950 + i, 1 + i % 12, 13 + i % 16) for i in range(100)]
    meaning: dict[str, set[datetime.date]] = defaultdict(set)
    for date in small + others:
        for pattern in patterns_of(locale):
            meaning[write_date(date, pattern, locale)].add(date)
    assert [text for text, dates in meaning.items() if len(dates) > 1] == []
    for pattern in patterns_of(locale):  # nothing of which is left
        texts = [write_date(datetime.date(2014, month, 9), pattern, locale) for month in range(1, 13)]
        assert len(set(texts)) == 12
        assert not re.search(r"['{}\ue000\u200e\u200f\u00a0\u202f]|MM|EEE", "".join(texts).replace("d'", ""))


@for_each(
    ("locale", "pattern", "day", "expected"),
    [
        ("de_DE", "EEEE, d. MMMM y", 3, "Mittwoch, 3. September 2014"),
        ("en_GB", "{d} 'of' MMMM y", 2, "2nd of September 2014"),
        ("en_GB", "{d} MMMM y", 12, "12th September 2014"),
        ("en_US", "MMMM {d}, y", 21, "September 21st, 2014"),
        ("fr_FR", "{d} MMMM y", 1, "1er septembre 2014"),
        ("fr_FR", "{d} MMMM y", 2, "2 septembre 2014"),
        ("ar_EG", "d MMMM y", 3, "٣ سبتمبر ٢٠١٤"),
        ("vi_VN", "'ngày' d 'tháng' M 'năm' y", 3, "ngày 3 tháng 9 năm 2014"),
    ],
)
def test_dates_read_as_people_write_them(locale, pattern, day, expected):
    assert pattern in patterns_of(locale)
    assert write_date(datetime.date(2014, 9, day), pattern, locale) == expected
