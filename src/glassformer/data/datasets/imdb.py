"""IMDB: the Large Movie Review Dataset (Maas et al. 2011), read from its archive or its folder in one pass.

25,000 reviews to train on, 25,000 to test on, half of each positive, and 50,000 without labels, to pretrain on. Texts
stay as they are, line breaks of HTML included. What was read once is kept in the cache.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from glassformer.config import DataConfig
from glassformer.data.download import Remote, cache_dir, fetch, find, read_members
from glassformer.data.splits import TEST_IS_VALIDATION, Split, TextData, group_split
from glassformer.errors import DataError, GlassformerError

LABELS = ["neg", "pos"]
ARCHIVES = ("aclImdb_v1.tar.gz", "aclImdb.tar.gz")
URL = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"
MAX_ARCHIVE_BYTES = 100 << 20
# Of the texts in the order of their numbers, each after its length in bytes, so that borders count.
SHA256 = {
    "train/neg": "13349f6a7a424e963b101ca8bce4a1855531fd1f666e4c916b6bf9674e0fd837",
    "train/pos": "5ef06e000db12340fefa78bbcf7e2ab8211cf5feebd75e903380788528ef46f5",
    "test/neg": "8f545bcb91d48200c7e9ccef9caff8b32e5a88ac8fe8adbeef359cb7b3c6f93d",
    "test/pos": "77cd7b02291ee46a6348d24523e7b98bc1f56ef469b411ee4f60e541392c5a88",
    "train/unsup": "cbd93af92f9a4dff2e9c33280f49b8e8babeabcbb8171ca34f17f9e289de43f9",
}
LABELLED = ("train/neg", "train/pos", "test/neg", "test/pos")
UNLABELLED = ("train/unsup",)
_REVIEW = re.compile(r"(?:^|.*/)(train|test)/(neg|pos|unsup)/(\d+)_\d+\.txt$")
_URLS = re.compile(r"(?:^|.*/)(train|test)/urls_(neg|pos|unsup)\.txt$")
_CACHE_VERSION = 1


@dataclass(frozen=True)
class _Part:
    """One folder of reviews in the order of their numbers, and the film of each."""

    texts: list[str]
    films: list[str]
    sha256: str


def load(data: DataConfig) -> TextData:
    """Load the labelled reviews: training, validation (a seeded share of training with no film in both) and test.

    Raises:
        DataError: the data set is damaged, or cannot be found or fetched.
    """
    parts = _load_parts(data)
    everything, films = _labelled(parts, "train")
    test, _ = _labelled(parts, "test")
    notes = [note] if (note := _deviation(parts)) else []
    if data.use_test_as_validation:
        train, valid = everything, test
        notes.append(TEST_IS_VALIDATION)
    else:
        in_train, in_valid = group_split(films, None, data.valid_fraction, data.split_seed)
        train = everything.take(in_train, "aclImdb/train")
        valid = everything.take(in_valid, "aclImdb/train, set aside")
        share = f"{len(valid):,} of {len(everything):,} training reviews"
        notes.append(f"validation: {share}, seed {data.split_seed}, by film")
    return TextData(train, valid, test, notes, _hashes(parts))


def load_texts(data: DataConfig) -> TextData:
    """Load the training reviews and the unlabelled ones, for pretraining; validation is the part that `load` holds out.

    There is no test split, and nothing that a classifier is scored on later is seen: unlabelled reviews of films in
    validation, and reviews with the text of one in validation or test, are dropped.

    Raises:
        DataError: as `load`.
    """
    parts = _load_parts(data)
    (everything, films), (test, _) = _labelled(parts, "train"), _labelled(parts, "test")
    in_train, in_valid = group_split(films, None, data.valid_fraction, data.split_seed)
    valid = Split([everything.text[i] for i in in_valid], source="aclImdb/train, set aside")
    parts |= _load_parts(data, UNLABELLED)
    more, films_held_out = parts["train/unsup"], {films[i] for i in in_valid}
    candidates = [everything.text[i] for i in in_train]
    candidates += [text for text, film in zip(more.texts, more.films, strict=True) if film not in films_held_out]
    scored_later = {*valid.text, *test.text}
    train = Split([t for t in candidates if t not in scored_later], source="aclImdb/train and unsup")
    n_left = len(everything) + len(more.texts) - len(valid) - len(train)
    notes = [note] if (note := _deviation(parts)) else []
    notes.append(
        f"{len(train):,} reviews without labels; validation: {len(valid):,}, seed {data.split_seed}, by film; "
        f"{n_left:,} dropped, since their films are in validation or their texts in validation or test"
    )
    return TextData(train, valid, None, notes, _hashes(parts))


def _hashes(parts: dict[str, _Part]) -> dict[str, str]:
    return {f"aclImdb/{name}": part.sha256 for name, part in parts.items()}


def _labelled(parts: dict[str, _Part], side: str) -> tuple[Split, list[str]]:
    """Return both labels' reviews of training or test, and their films."""
    both = [(label, parts[f"{side}/{label}"]) for label in LABELS]
    texts = [text for _, part in both for text in part.texts]
    labels = [label for label, part in both for _ in part.texts]
    return Split(texts, labels, f"aclImdb/{side}"), [film for _, part in both for film in part.films]


def _deviation(parts: dict[str, _Part]) -> str:
    """Return a sentence on the splits that differ from the published ones; empty if none does."""
    other = [name for name, part in parts.items() if part.sha256 != SHA256[name]]
    return f"these reviews differ from the published data set: {', '.join(other)}" if other else ""


def _load_parts(data: DataConfig, names: tuple[str, ...] = LABELLED) -> dict[str, _Part]:
    """Load parts by name, from the cache if they were read before, else from the archive or folder."""
    source = find(data, "imdb", _probe, "IMDB (aclImdb/, aclImdb_v1.tar.gz or aclImdb.tar.gz)")
    if source is None:
        remote = Remote(URL, ARCHIVES[0], MAX_ARCHIVE_BYTES, _check)
        source = fetch(remote, cache_dir() / "data" / "imdb")
    kind = "labelled" if names == LABELLED else "unlabelled"
    cached = cache_dir() / "parsed" / f"imdb-{kind}-{_fingerprint(source, names)[:16]}.json"
    parts = _read_cache(cached)
    if parts is None:
        files = read_members(source) if source.is_file() else _read_folder(source, names)
        parts = _parse(files, str(source), names)
        _write_cache(cached, parts)
    return parts


def _probe(place: Path) -> Path | None:
    """Return the archive or the extracted folder at `place` or directly inside it."""
    if place.is_file():
        return place if place.name.endswith((".tar.gz", ".tgz", ".tar")) else None
    for folder in (place, place / "aclImdb"):
        if (folder / "train" / "pos").is_dir() and (folder / "test" / "pos").is_dir():
            return folder
    return next((place / name for name in ARCHIVES if (place / name).is_file()), None)


def _check(archive: Path) -> None:
    """Read a download through and compare every review with the published ones."""
    if wrong := _deviation(_parse(read_members(archive), str(archive))):
        raise DataError(f"{archive}: {wrong}", hint="fetch it again; its source may have changed")


def _fingerprint(source: Path, parts: Iterable[str]) -> str:
    """Return a fingerprint of the archive's bytes, or of the names, sizes and times of a folder's files."""
    if source.is_file():
        with open(source, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256()
    for part in parts:
        folder = source / part
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            facts = path.stat()
            digest.update(f"{part}/{path.name} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _read_folder(folder: Path, parts: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    for part in parts:
        side, label = part.split("/")
        urls = folder / side / f"urls_{label}.txt"
        for path in [*([urls] if urls.is_file() else []), *sorted((folder / part).glob("*.txt"))]:
            yield path.relative_to(folder).as_posix(), path.read_bytes()


def _parse(files: Iterator[tuple[str, bytes]], source: str, wanted: Iterable[str] = LABELLED) -> dict[str, _Part]:
    """Sort reviews into the wanted parts by name; those of others, and whatever else there is, are passed over."""
    reviews: dict[str, dict[int, str]] = {part: {} for part in wanted}
    urls: dict[str, list[str]] = {}
    for name, content in files:
        if (match := _REVIEW.match(name)) and f"{match[1]}/{match[2]}" in reviews:
            reviews[f"{match[1]}/{match[2]}"][int(match[3])] = _text(content, f"{source}: {name}")
        elif match := _URLS.match(name):
            urls[f"{match[1]}/{match[2]}"] = _text(content, f"{source}: {name}").split("\n")
    if missing := [part for part, texts in reviews.items() if not texts]:
        raise DataError(
            f"{source}: no reviews in {', '.join(missing)}", "check that this is the whole aclImdb data set"
        )
    return {part: _in_order(texts, urls.get(part, [])) for part, texts in reviews.items()}


def _in_order(texts: dict[int, str], urls: list[str]) -> _Part:
    """Sort the reviews by number.

    Line i of the list of addresses is the film of review i; without a list each review is its own film.
    """
    ordered, films, digest = [], [], hashlib.sha256()
    for i, text in sorted(texts.items()):
        url = urls[i] if i < len(urls) and urls[i] else f"review {i}"
        film = re.search(r"tt\d+", url)
        films.append(film[0] if film else url.strip())
        ordered.append(text)
        raw = text.encode("utf-8")
        digest.update(b"%d\n%b" % (len(raw), raw))
    return _Part(ordered, films, digest.hexdigest())


def _text(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: byte {error.start} is not UTF-8", "fetch the data set again") from error


def _read_cache(path: Path) -> dict[str, _Part] | None:
    """Read the output of `_write_cache`; None if it is missing or damaged, since it is only a cache."""
    try:
        head, _, body = path.read_bytes().partition(b"\n")
        if head.decode("ascii") != f"{_CACHE_VERSION} {hashlib.sha256(body).hexdigest()}":
            return None
        return {name: _Part(**part) for name, part in json.loads(body).items()}
    except (OSError, ValueError, TypeError):
        return None


def _write_cache(path: Path, parts: dict[str, _Part]) -> None:
    from glassformer.utils.atomic_io import atomic_write_bytes

    body = json.dumps({name: vars(part) for name, part in parts.items()}, ensure_ascii=False).encode("utf-8")
    head = f"{_CACHE_VERSION} {hashlib.sha256(body).hexdigest()}\n".encode("ascii")
    try:
        atomic_write_bytes(path, head + body)
    except (OSError, GlassformerError):
        return  # a full or read-only disk costs the next start some seconds, and this run nothing
