"""Multi30k, task 1 (Elliott et al. 2016): descriptions of pictures in English, German and French.

29,000 training pairs, 1,014 validation pairs, and the 1,000 test pairs of test_2016_flickr, as raw text. Files are
plain or gzipped, one sentence per line.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from glassformer.config import DataConfig
from glassformer.data.download import MAX_FILE_BYTES, Remote, cache_dir, check_published, fetch, find, read_text
from glassformer.data.splits import TEST_IS_VALIDATION, Published, Split, TextData
from glassformer.errors import DataError, UsageError

LANGUAGES = ("en", "de", "fr")
PARTS = ("train", "val", "test_2016_flickr")
URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1"
# Of the unpacked files.
SHA256 = {
    "train.en": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
    "train.de": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
    "train.fr": "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d",
    "val.en": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    "val.de": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
    "val.fr": "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc",
    "test_2016_flickr.en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    "test_2016_flickr.de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
    "test_2016_flickr.fr": "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6",
    "train.lc.norm.tok.en": "08925f8e0572bcd5a006702fc5fe20e2d77c6917d4eebd576fc20de6693c2119",
    "train.lc.norm.tok.de": "cb5a23529b65ec2061f1dc446192a9c37382b63cc75f81a0be59d34894b3a505",
    "train.lc.norm.tok.fr": "8fa41bb718412bcb7c5dfa58603842810a01543eae86a51279f9886b901266e1",
    "val.lc.norm.tok.en": "46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec",
    "val.lc.norm.tok.de": "97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00",
    "val.lc.norm.tok.fr": "b303e301aa21fe7822a846b2b3fb2d5a1121ec807cd5b1d006fb7b2b5507168a",
    "test_2016_flickr.lc.norm.tok.en": "5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2",
    "test_2016_flickr.lc.norm.tok.de": "c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4",
    "test_2016_flickr.lc.norm.tok.fr": "1463bd5960f9bfe098ec3cd752d3df0c49c84dc646fb518964a29232658cd836",
}


def load(data: DataConfig) -> TextData:
    """Return the three parts, with `src_lang` as text and `tgt_lang` as target.

    Raises:
        UsageError: a language that task 1 does not have, or the same one twice.
        DataError: the files are damaged or misaligned, or cannot be found or fetched.
    """
    pair = src, tgt = data.multi30k.src_lang, data.multi30k.tgt_lang
    for language in pair:
        if language not in LANGUAGES:
            raise UsageError(f'Multi30k has no language "{language}"', f"choose from {', '.join(LANGUAGES)}")
    if src == tgt:
        raise UsageError(f'src_lang and tgt_lang are both "{src}"', "choose two languages")
    names = {part: [f"{part}.{language}" for language in pair] for part in PARTS}
    files = [name for both in names.values() for name in both]
    folder = find(data, "multi30k", partial(_probe, names=files), f"Multi30k ({files[0]}.gz, …)")
    if folder is None:
        folder = cache_dir() / "data" / "multi30k"
        for name in files:
            check = partial(check_published, name=name, sha256=SHA256[name])
            fetch(Remote(f"{URL}/raw/{name}.gz", f"{name}.gz", MAX_FILE_BYTES, check), folder)
    hashes: dict[str, str] = {}
    splits = []
    for part, both in names.items():
        text, answer = (_lines(folder, name, hashes) for name in both)
        if len(text) != len(answer):
            what = f"{part} has {len(text):,} lines in {src}, but {len(answer):,} in {tgt}"
            raise DataError(f"{folder}: {what}", "a file is truncated: fetch it again")
        splits.append(Split(text, answer, f"multi30k/{part}.{src}-{tgt}", _published(folder, part, tgt)))
    train, valid, test = splits
    notes = []
    if other := [name for name, sha256 in hashes.items() if sha256 != SHA256[name]]:
        notes.append(f"these files differ from the published data set: {', '.join(other)}")
    if data.use_test_as_validation:
        valid = test
        notes.append(TEST_IS_VALIDATION)
    return TextData(train, valid, test, notes, hashes)


def _published(folder: Path, part: str, language: str) -> Published | None:
    """Return the tokenised references of raw text, if the folder holds the published ones."""
    hashes: dict[str, str] = {}
    name = f"{part}.lc.norm.tok.{language}"
    lines = _lines(folder, name, hashes) if _plain_or_gzipped(folder, name) else []
    return Published(lines, language) if hashes.get(name) == SHA256[name] else None


def _probe(folder: Path, names: list[str]) -> Path | None:
    """Return `folder` if it holds every file; an incomplete download is continued, not read."""
    return folder if all(_plain_or_gzipped(folder, name) for name in names) else None


def _plain_or_gzipped(folder: Path, name: str) -> Path | None:
    """Return the file of that name, or with .gz; None if neither exists."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _lines(folder: Path, name: str, hashes: dict[str, str]) -> list[str]:
    r"""Split at "\n" alone: other line ends of Unicode would misalign the sides."""
    text, hashes[name] = read_text(_plain_or_gzipped(folder, name) or folder / name)
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
