"""`dates`: reproducible, disjoint, right, and never ambiguous within a locale."""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from functools import cache

import pytest
from tests.helpers.for_each import for_each

from glassformer.config import Config, DataConfig
from glassformer.config.recipes import override
from glassformer.data.datasets.dates import FIRST_DAY, LAST_DAY, LOCALES, load, patterns_of, write_date
from glassformer.data.splits import TextData
from glassformer.errors import UsageError


@cache
def data() -> TextData:
    return load(DataConfig(dataset="dates", n_dates=3000))


def test_parts_have_their_sizes_and_share_neither_a_source_nor_a_date():
    splits = (data().train, data().valid, data().test)
    assert [*map(len, splits)] == [3000, 2000, 2000] and len(LOCALES) >= 30
    assert data().extra_tokens == tuple(f"[{locale}]" for locale in LOCALES)
    for text, target in [pair for split in splits for pair in zip(split.text, split.answer, strict=True)]:
        locale_tag, _, written = text.partition(" ")
        assert locale_tag in data().extra_tokens and 6 <= len(written) <= 40 and written == written.strip()
        assert FIRST_DAY <= datetime.date.fromisoformat(target) <= LAST_DAY
    for column in ("text", "answer"):
        train, valid, test = (set(getattr(split, column)) for split in splits)
        assert train.isdisjoint(valid) and train.isdisjoint(test) and valid.isdisjoint(test)
    assert all(len(set(split.text)) == len(split) for split in splits)


def test_the_same_arguments_give_the_same_pairs_and_the_held_out_parts_never_change():
    again = load(DataConfig(dataset="dates", n_dates=3000))
    assert (again.train, again.hashes) == (data().train, data().hashes)
    other = load(DataConfig(dataset="dates", split_seed=7, n_dates=500))
    assert (other.valid, other.test) == (data().valid, data().test)
    assert set(other.train.text) != set(data().train.text[:500])


def test_locales_are_chosen_by_name_in_any_order():
    chosen = load(DataConfig(dataset="dates", n_dates=300, locales="de_DE, en_US"))
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
        load(DataConfig(dataset="dates", n_dates=n, locales=locales))

    for impossible in (0, 1_000_001):
        with pytest.raises(UsageError, match="n_dates"):
            override(Config(), {"dataset": "dates", "n_dates": impossible})


def test_the_locale_of_fewest_patterns_has_enough_pairs():
    locale = min(LOCALES, key=lambda name: len(patterns_of(name)))
    assert len(load(DataConfig(dataset="dates", n_dates=2000, locales=locale)).test) == 2000


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
