"""Tiny Shakespeare: 1,115,394 characters of plays, as one document (Karpathy 2015).

The last tenth of the characters is the test part, the same that published character models report as their
validation part. Validation here is the beginning of the text, not what precedes the test part: that is the first
half of a play whose second half is tested, and a model should have met its people, as published ones have.
"""

from __future__ import annotations

from glassformer.config import DataConfig
from glassformer.data.download import fetch, find, note_differences, read_text
from glassformer.data.splits import Split, TextData
from glassformer.utils.atomic_io import sha256_file

NAME = "input.txt"
URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
TRAIN_SHARE = 0.9


def load(data: DataConfig) -> TextData:
    """Load validation, training and test, each a contiguous part of the text.

    The test split begins at character int(0.9 · n). Validation is the first `valid_fraction` of what precedes it, or,
    with `use_test_as_validation`, the test split; the rest is training.

    Raises:
        DataError: the file is damaged, or cannot be found or fetched.
    """
    [path] = find(data, "tinyshakespeare", [NAME]) or [fetch(URL, "tinyshakespeare", SHA256)]
    text, hashes = read_text(path), {NAME: sha256_file(path)}
    test_from = int(len(text) * TRAIN_SHARE)
    train_from = int(test_from * data.valid_fraction)
    test = Split([text[test_from:]], source="tinyshakespeare, last tenth")
    notes = note_differences(hashes, {NAME: SHA256})
    if data.use_test_as_validation:
        train_from, valid = 0, test
    else:
        valid = Split([text[:train_from]], source="tinyshakespeare, set aside")
        notes.append(f"validation: the first {train_from:,} characters, none drawn at random")
    train = Split([text[train_from:test_from]], source="tinyshakespeare")
    return TextData(train, valid, test, notes=notes, hashes=hashes)
