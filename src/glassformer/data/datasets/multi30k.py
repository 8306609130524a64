"""Multi30k, task 1 (Elliott et al. 2016): descriptions of pictures in English, German and French.

29,000 training pairs, 1,014 validation pairs, and the 1,000 test pairs of test_2016_flickr, as raw text: gzipped files
of one sentence a line.
"""

from __future__ import annotations

from pathlib import Path

from glassformer.config import DataConfig
from glassformer.data.download import fetch, find, note_differences, read_text
from glassformer.data.splits import Split, TextData
from glassformer.errors import DataError, UsageError
from glassformer.utils.atomic_io import sha256_file

LANGUAGES = ("en", "de", "fr")
URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
SHA256 = {
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.fr.gz": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
}


def load(data: DataConfig) -> TextData:
    """Return the three parts, with `src_lang` as text and `tgt_lang` as target.

    Raises:
        UsageError: a language that task 1 does not have, or the same one twice.
        DataError: the files are damaged or misaligned, or cannot be found or fetched.
    """
    src, tgt = data.src_lang, data.tgt_lang
    if len({src, tgt} & {*LANGUAGES}) < 2:
        message = f'Multi30k has no pairs of the languages "{src}" and "{tgt}"'
        raise UsageError(message, f"choose two of {', '.join(LANGUAGES)}")
    parts = ("train", "val", "test_2016_flickr")
    names = [f"{part}.{language}.gz" for part in parts for language in (src, tgt)]
    files = find(data, "multi30k", names) or [fetch(f"{URL}/{name}", "multi30k", SHA256[name]) for name in names]
    splits = []
    for part, source, target in zip(parts, files[::2], files[1::2], strict=True):
        text, answer = _lines(source), _lines(target)
        if len(text) != len(answer):
            what = f"{part} has {len(text):,} lines in {src}, but {len(answer):,} in {tgt}"
            raise DataError(f"{source.parent}: {what}", "a file is truncated: fetch it again")
        splits.append(Split(text, answer, f"multi30k/{part}.{src}-{tgt}"))
    train, valid, test = splits
    hashes = {path.name: sha256_file(path) for path in files}
    notes = note_differences(hashes, SHA256)
    return TextData(train, test if data.use_test_as_validation else valid, test, notes, hashes)


def _lines(path: Path) -> list[str]:
    r"""Split at "\n" alone: other line ends of Unicode would misalign the sides."""
    text = read_text(path)
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
