"""IMDB: the Large Movie Review Dataset (Maas et al. 2011), read from its archive in one pass.

25,000 reviews to train on, 25,000 to test on, half of each positive, and 50,000 without labels, to pretrain on. Texts
stay as they are, line breaks of HTML included.
"""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Collection
from typing import TypeAlias

from glassformer.config import DataConfig
from glassformer.data.download import fetch, find, note_differences
from glassformer.data.splits import Split, TextData, group_split
from glassformer.errors import DataError

LABELS = ["neg", "pos"]
URL = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"
ARCHIVE_HASH = "md5:7c2ac02c03563afcf9b574c7e56c153a"
# `Split.sha256` of the texts in the order of their numbers.
SHA256 = {
    "train/neg": "30d37c1190a2c4b0d4617798892e510eb217be64833da5e0dba08fcaf15ae138",
    "train/pos": "20539287cfbe00c9019fa8be4fb6911c2f52ad1ae66fcdc034e39429a3cb3ead",
    "test/neg": "868bdd0a847032808f5518d1166ad22e66ec4f23f45f70242256f3e9bc0468ff",
    "test/pos": "12a4545d8593b6be18e5787a4a0b461a50caaa5517f086249e97478a06e854cc",
    "train/unsup": "92cf43fd9582268e6ebbdd869be381d3c9cd456126f357b3fb2daad78e498bce",
}
LABELLED = ("train/neg", "train/pos", "test/neg", "test/pos")
_REVIEW = re.compile(r"(?:^|/)((?:train|test)/(?:neg|pos|unsup))/(\d+)_\d+\.txt$")
_URLS = re.compile(r"(?:^|/)(train|test)/urls_(neg|pos|unsup)\.txt$")


Part: TypeAlias = tuple[list[str], list[str]]
"""One folder of reviews in the order of their numbers, and the film of each."""


def load(data: DataConfig) -> TextData:
    """Load the labelled reviews: training, validation (a seeded share of training with no film in both) and test.

    Raises:
        DataError: the data set is damaged, or cannot be found or fetched.
    """
    parts = _load_parts(data, LABELLED)
    hashes, notes = _hashes(parts)
    (everything, films), (test, _) = _labelled(parts, "train"), _labelled(parts, "test")
    if data.use_test_as_validation:
        train, valid = everything, test
    else:
        in_train, in_valid = group_split(films, None, data.valid_fraction, data.split_seed)
        train = everything.take(in_train, "aclImdb/train")
        valid = everything.take(in_valid, "aclImdb/train, set aside")
        share = f"{len(valid):,} of {len(everything):,} training reviews"
        notes.append(f"validation: {share}, seed {data.split_seed}, by film")
    return TextData(train, valid, test, notes, hashes)


def load_texts(data: DataConfig) -> TextData:
    """Load the training reviews and the unlabelled ones, for pretraining; validation is the part that `load` holds out.

    There is no test split, and nothing that a classifier is scored on later is seen: unlabelled reviews of films in
    validation, and reviews with the text of one in validation or test, are dropped.

    Raises:
        DataError: as `load`.
    """
    parts = _load_parts(data, SHA256)
    hashes, notes = _hashes(parts)
    (everything, films), (test, _) = _labelled(parts, "train"), _labelled(parts, "test")
    more, their = parts["train/unsup"]
    in_train, in_valid = group_split(films, None, data.valid_fraction, data.split_seed)
    valid = Split([everything.text[i] for i in in_valid], source="aclImdb/train, set aside")
    films_held_out = {films[i] for i in in_valid}
    candidates = [everything.text[i] for i in in_train]
    candidates += [text for text, film in zip(more, their, strict=True) if film not in films_held_out]
    scored_later = {*valid.text, *test.text}
    train = Split([t for t in candidates if t not in scored_later], source="aclImdb/train and unsup")
    n_left = len(everything) + len(more) - len(valid) - len(train)
    notes.append(
        f"{len(train):,} reviews without labels; validation: {len(valid):,}, seed {data.split_seed}, by film; "
        f"{n_left:,} dropped, since their films are in validation or their texts in validation or test"
    )
    return TextData(train, valid, None, notes, hashes)


def _labelled(parts: dict[str, Part], side: str) -> tuple[Split, list[str]]:
    """Return both labels' reviews of training or test, and their films."""
    rows = [(*row, label) for label in LABELS for row in zip(*parts[f"{side}/{label}"], strict=True)]
    texts, films, labels = map(list, zip(*rows, strict=True))
    return Split(texts, labels, f"aclImdb/{side}"), films


def _hashes(parts: dict[str, Part]) -> tuple[dict[str, str], list[str]]:
    """Return the hash of each part, and a note on those that differ from the published ones."""
    hashes = {name: Split(texts).sha256 for name, (texts, _) in parts.items()}
    return {f"aclImdb/{name}": sha256 for name, sha256 in hashes.items()}, note_differences(hashes, SHA256)


def _load_parts(data: DataConfig, names: Collection[str]) -> dict[str, Part]:
    """Read the reviews of some parts, and their films: line i of a list of addresses is that of review i."""
    [archive] = find(data, "imdb", ["aclImdb*.tar.gz"]) or [fetch(URL, "imdb", ARCHIVE_HASH)]
    reviews, urls = {name: dict[int, str]() for name in names}, dict[str, list[str]]()
    try:
        with tarfile.open(archive, "r:gz") as tar:
            while (member := tar.next()) is not None:  # nothing is written to a path that an archive names
                tar.members = []  # pyright: ignore (it keeps a hundred thousand of them, for nothing)
                review, of_urls = _REVIEW.search(member.name), _URLS.search(member.name)
                if member.isreg() and ((review and review[1] in reviews) or of_urls):
                    file = tar.extractfile(member)
                    text = file.read().decode("utf-8") if file else ""
                    if review:
                        reviews[review[1]][int(review[2])] = text
                    elif of_urls:
                        urls[f"{of_urls[1]}/{of_urls[2]}"] = text.split("\n")
    except (tarfile.TarError, OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{archive} cannot be read: {error}", "delete it and fetch it again") from error
    if missing := [name for name, texts in reviews.items() if not texts]:
        raise DataError(f"{archive}: no reviews in {', '.join(missing)}", "check that this is the whole data set")
    return {name: _in_order(texts, urls.get(name, [])) for name, texts in reviews.items()}


def _in_order(texts: dict[int, str], urls: list[str]) -> Part:
    """Sort the reviews by number; a review without an address is a film of its own."""
    films = [re.search(r"tt\d+", urls[i]) if i < len(urls) else None for i in sorted(texts)]
    named = [film[0] if film else f"review {i}" for i, film in zip(sorted(texts), films, strict=True)]
    return [texts[i] for i in sorted(texts)], named
