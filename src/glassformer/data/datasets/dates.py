"""Dates as people write them, to ISO 8601: a translation task with an exact answer, made on the spot.

"[de_DE] Mittwoch, 3. September 2014" → "2014-09-03". The first token names the locale, which settles what the
text alone cannot ("3/9/14" is March or September). How each locale writes dates is in `date_formats.py`.
"""

from __future__ import annotations

import datetime
import hashlib

import numpy as np

from glassformer.config import DataConfig
from glassformer.data.datasets.date_formats import LOCALES, patterns_of, tag, write_date
from glassformer.data.splits import TEST_IS_VALIDATION, Split, TextData

FIRST_DAY, LAST_DAY = datetime.date(1950, 1, 1), datetime.date(2049, 12, 31)
"""A hundred years, so that a year of two digits means one year only: 50–99 are 19.., 00–49 are 20..."""
N_HELD_OUT = 2_000
HELD_OUT_SHARE = 0.06
SEED = 20170612


def load(data: DataConfig) -> TextData:
    """Return `n_dates` training pairs, and 2,000 each for validation and test.

    No date of one split occurs in another, in any format, and no source occurs twice in a split. Validation and test
    are always the same, so that scores are comparable; training is drawn with `split_seed`.
    """
    from importlib.metadata import version

    days = np.arange(FIRST_DAY.toordinal(), LAST_DAY.toordinal() + 1)
    n_held_out = round(len(days) * HELD_OUT_SHARE)
    valid_days, test_days, train_days = np.split(
        np.random.default_rng(SEED).permutation(days), [n_held_out, 2 * n_held_out]
    )
    train = _draw(train_days, data.dates.n_dates, [SEED, 0, data.split_seed], "dates/train")
    valid = _draw(valid_days, N_HELD_OUT, [SEED, 1], "dates/valid")
    test = _draw(test_days, N_HELD_OUT, [SEED, 2], "dates/test")
    notes = [
        f"dates of {FIRST_DAY.year}–{LAST_DAY.year} in {len(LOCALES)} locales, generated with Babel "
        f"{version('babel')}; no date is in two parts"
    ]
    hashes = {}
    for part in (train, valid, test):
        lines = "".join(f"{text}\t{target}\n" for text, target in zip(part.text, part.answers, strict=True))
        hashes[part.source] = hashlib.sha256(lines.encode("utf-8")).hexdigest()
    if data.use_test_as_validation:
        valid = test
        notes.append(TEST_IS_VALIDATION)
    return TextData(train, valid, test, notes, hashes, tuple(map(tag, LOCALES)))


def _draw(days: np.ndarray, n: int, seed: list[int], source: str) -> Split:
    """Draw `n` different pairs: a day, then a locale, then one of its formats, each uniformly."""
    rng = np.random.default_rng(seed)
    locales = list(LOCALES)
    pairs: dict[str, str] = {}
    while len(pairs) < n:
        size = n - len(pairs)
        draws = rng.choice(days, size), rng.integers(len(locales), size=size), rng.random(size)
        for day, number, share in zip(*draws, strict=True):
            date, locale = datetime.date.fromordinal(int(day)), locales[number]
            patterns = patterns_of(locale)
            pattern = patterns[int(share * len(patterns))]
            pairs[f"{tag(locale)} {write_date(date, pattern, locale)}"] = date.isoformat()
    return Split(list(pairs), list(pairs.values()), source)
