"""Dates as people write them, to ISO 8601: a translation task with an exact answer, made on the spot.

Formats are patterns of CLDR ("d. MMMM y"; UTS #35, Date Field Symbols), filled in by Babel. No text of a locale
means two dates: within a locale numbers keep one order, and years are those of `dates.py`. Calendars other than
the Gregorian are left out, and with them the locales that mostly use another one.

"[de_DE] Mittwoch, 3. September 2014" → "2014-09-03". The first token names the locale, which settles what the
text alone cannot ("3/9/14" is March or September).
"""

from __future__ import annotations

import datetime
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np

from glassformer.config import DataConfig
from glassformer.config.recipes import nearest
from glassformer.data.splits import Split, TextData
from glassformer.errors import UsageError
from glassformer.utils.formatting import counted

# "{d}" is the day as an ordinal, where the language has one: 3rd, 1er.
LOCALES: dict[str, tuple[str, ...]] = {
    "en_US": ("MM/dd/y", "M/d/y", "MMM d y", "MMMM {d}, y", "EEE, MMM d, y", "d MMM y"),
    "en_GB": ("d/M/y", "d/M/yy", "{d} MMMM y", "{d} 'of' MMMM y", "EEE d MMM y", "MMMM d, y"),
    "de_DE": ("d.M.y", "d.M.yy", "d. MMM y", "EEE, d. MMMM y", "EEEE, 'den' d. MMMM y"),
    "fr_FR": ("d/M/y", "dd/MM/yy", "{d} MMMM y", "'le' {d} MMMM y", "EEE d MMM y"),
    "es_ES": ("dd/MM/y", "d-M-y", "d MMMM y", "EEE d MMM y"),
    "it_IT": ("d/M/y", "dd.MM.y", "{d} MMMM y", "EEE d MMM y"),
    "pt_BR": ("d/M/y", "dd/MM/yy", "{d} 'de' MMMM 'de' y", "d MMM y"),
    "pt_PT": ("d/M/y", "dd-MM-y", "d MMM y", "d 'de' MMM 'de' y"),
    "nl_NL": ("d-M-y", "d-M-yy", "d/M/y", "EEE d MMM y"),
    "sv_SE": ("d/M y", "d.M.y", "'den' d MMMM y", "EEE d MMM y"),
    "da_DK": ("d.M.y", "d/M y", "d/M-y", "'den' d. MMMM y"),
    "nb_NO": ("d.M.y", "d.M.yy", "d/M-y", "EEE d. MMM y"),
    "fi_FI": ("d.M.yy", "dd.MM.y", "EEE d.M.y", "EEE d. MMMM y"),
    "is_IS": ("dd.MM.y", "d.M.yy", "d/M/y", "EEE d. MMM y"),
    "pl_PL": ("dd.MM.y", "d.MM.y 'r'.", "d MMMM y 'r'.", "EEE, d MMM y"),
    "cs_CZ": ("d.M.y", "dd.MM.y", "d. MMM y", "EEE d. M. y"),
    "sk_SK": ("d.M.y", "dd.MM.y", "EEE d. M. y", "'dňa' d. MMMM y"),
    "sl_SI": ("d.M.y", "dd.MM.y", "d. M. y", "EEE, d. M. y"),
    "hr_HR": ("d.M.y.", "dd.MM.y.", "d. M. y.", "EEE, d. MMMM y."),
    "hu_HU": ("y.MM.dd.", "y. M. d.", "y-MM-dd", "y. MMMM d. (EEEE)"),
    "ro_RO": ("d.M.y", "dd/MM/y", "EEE, d MMM y"),
    "bg_BG": ("dd.MM.y", "d.M.y", "d MMMM y", "EEE, d.MM.y"),
    "ru_RU": ("d.MM.y", "dd.MM.yy", "d MMMM y", "EEE, d MMM y"),
    "uk_UA": ("dd.MM.y", "d.MM.y", "d MMMM y", "EEE, d MMM y"),
    "el_GR": ("d/M/y", "dd/MM/y", "d-M-y", "EEE d MMM y"),
    "tr_TR": ("dd.MM.y", "d/M/y", "d.M.yy", "d MMM y EEE"),
    "et_EE": ("d.M.y", "dd.MM.y", "d. MMMM y'. a'"),
    "lv_LV": ("dd.MM.y.", "d.M.y.", "d.MM.y", "y. 'gada' d. MMMM, EEEE"),
    "lt_LT": ("y.MM.dd", "y MM dd", "y 'm'. MMM d 'd'."),
    "ca_ES": ("dd/MM/y", "d/M/y", "d-M-y", "d MMMM y"),
    "ga_IE": ("d/M/y", "d/M/yy", "d MMMM, y", "EEE d MMM y"),
    "he_IL": ("d/M/y", "dd/MM/y", "d.M.yy", "EEEE d.M.y"),
    "ar_EG": ("dd/MM/y", "y/M/d", "d-M-y", "EEEE d MMMM y"),
    "hi_IN": ("dd/MM/y", "d-M-y", "d MMMM, y", "EEE, d MMM y"),
    "id_ID": ("dd-MM-y", "d/M/y", "EEE, d MMM y", "'tanggal' d MMMM y"),
    "sw_KE": ("d/M/y", "d/M/yy", "'tarehe' d MMMM y"),
    "vi_VN": ("dd/MM/y", "d-M-y", "'ngày' d 'tháng' M 'năm' y"),
    "ja_JP": ("y/M/d", "y-MM-dd", "y.M.d", "y年M月d日(EEE)", "y/MM/dd(EEE)"),
    "ko_KR": ("y-MM-dd", "y.MM.dd", "y년 M월 d일(EEE)", "y년M월d일"),
    "zh_CN": ("y-MM-dd", "y/MM/dd", "y.M.d", "y年MM月dd日", "y年M月d日 EEEE"),
}
"""Locale → patterns besides the four of CLDR."""

ENDING = "\ue000"  # stands for the ending of an ordinal until the day is known; private, so in no pattern
ARABIC_DIGITS = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
# Marks of direction are not typed, and a keyboard's space is the plain one.
AS_TYPED = str.maketrans({"\u200e": None, "\u200f": None, "\u202f": " ", "\u00a0": " "})


@cache
def _locale(name: str) -> Any:
    from babel import Locale

    return Locale.parse(name)


@cache
def patterns_of(locale: str) -> tuple[str, ...]:
    """Return the distinct formats of a locale: CLDR's short, medium, long and full, and those of `LOCALES`."""
    formats = _locale(locale).date_formats
    unicode_s_own = [formats[length].pattern for length in ("short", "medium", "long", "full")]
    return tuple(dict.fromkeys([*unicode_s_own, *LOCALES[locale]]))


def write_date(date: datetime.date, pattern: str, locale: str) -> str:
    """Return `date` in one of the formats of `locale`, as a person types it.

    >>> write_date(datetime.date(2014, 9, 3), "EEEE, d. MMMM y", "de_DE")
    'Mittwoch, 3. September 2014'
    """
    from babel.dates import parse_pattern

    text = parse_pattern(pattern.replace("{d}", f"d{ENDING}")).apply(date, _locale(locale))
    text = text.replace(ENDING, _ordinal_ending(date.day, locale)).translate(AS_TYPED)
    return text.translate(ARABIC_DIGITS) if locale == "ar_EG" else text


def _ordinal_ending(day: int, locale: str) -> str:
    """Return the ordinal suffix of a day ("rd" for 3).

    The Romance languages here have one for the first of a month only.
    """
    if locale[:2] == "en":
        return "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return {"fr": "er", "it": "º", "pt": "º"}.get(locale[:2], "") if day == 1 else ""


FIRST_DAY, LAST_DAY = datetime.date(1950, 1, 1), datetime.date(2049, 12, 31)
"""A hundred years, so that a year of two digits means one year only: 50–99 are 19.., 00–49 are 20..."""
N_HELD_OUT = 2_000
SEED = 20170612


def load(data: DataConfig) -> TextData:
    """Return `n_dates` training pairs, and 2,000 each for validation and test.

    No date of one split occurs in another, in any format, and no source occurs twice in a split. Validation and test of
    the same locales are always the same, so that scores are comparable; training is drawn with `split_seed`.

    Raises:
        UsageError: an unknown locale, or more pairs than a few locales have.
    """
    chosen = LOCALES if data.locales is None else [name.strip() for name in data.locales.split(",")]
    if unknown := [name for name in chosen if name not in LOCALES]:
        message = f"expected locales of dates in data.locales, not {unknown[0]!r}"
        raise UsageError(message, f"{nearest(unknown[0], LOCALES)}choose among {', '.join(LOCALES)}")
    locales = [locale for locale in LOCALES if locale in chosen]
    days = np.arange(FIRST_DAY.toordinal(), LAST_DAY.toordinal() + 1)
    n_held_out = round(len(days) * 0.06)  # of validation, and of test
    days = np.random.default_rng(SEED).permutation(days)
    valid_days, test_days, train_days = np.split(days, [n_held_out, 2 * n_held_out])
    # Random draws find a quarter of all pairs soon; some patterns write a day alike.
    n, most = data.n_dates, len(train_days) * sum(len(patterns_of(locale)) for locale in locales) // 4
    if n > most:
        message = f"{counted(len(locales), 'locales')} can give {most:,} pairs, not {n:,}"
        raise UsageError(message, "choose more locales (data.locales) or fewer pairs (data.n_dates)")
    train = _draw(locales, train_days, n, [SEED, 0, data.split_seed], "dates/train")
    valid = _draw(locales, valid_days, N_HELD_OUT, [SEED, 1], "dates/valid")
    test = _draw(locales, test_days, N_HELD_OUT, [SEED, 2], "dates/test")
    of_years = f"dates of {FIRST_DAY.year}–{LAST_DAY.year} in {counted(len(locales), 'locales')}"
    notes = [f"{of_years}, generated with Babel {version('babel')}; no date is in two parts"]
    hashes = {part.source: part.sha256 for part in (train, valid, test)}
    tokens = tuple(f"[{locale}]" for locale in locales)
    return TextData(train, test if data.use_test_as_validation else valid, test, notes, hashes, tokens)


def _draw(locales: list[str], days: np.ndarray, n: int, seed: list[int], source: str) -> Split:
    """Draw `n` different pairs: a day, then a locale, then one of its formats, each uniformly."""
    rng = np.random.default_rng(seed)
    pairs: dict[str, str] = {}
    while len(pairs) < n:
        size = n - len(pairs)
        draws = rng.choice(days, size), rng.integers(len(locales), size=size), rng.random(size)
        for day, number, share in zip(*draws, strict=True):
            date, locale = datetime.date.fromordinal(int(day)), locales[number]
            patterns = patterns_of(locale)
            pattern = patterns[int(share * len(patterns))]
            pairs[f"[{locale}] {write_date(date, pattern, locale)}"] = date.isoformat()
    return Split(list(pairs), list(pairs.values()), source)
