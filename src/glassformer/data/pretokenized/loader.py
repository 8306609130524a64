"""Pretokenized text as training data, and the text held out from it as validation data."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from glassformer.config import DataConfig
from glassformer.data.corpus import EncodedCorpus, RaggedArray
from glassformer.data.datasets.documents import read_documents
from glassformer.data.diagnostics import Diagnostics
from glassformer.data.pretokenized.index import INDEX, ShardIndex, load_tokenizer
from glassformer.data.schema import DataSchema
from glassformer.data.splits import TEST_IS_VALIDATION, Split, TextData, with_reading
from glassformer.errors import DataError, UsageError
from glassformer.text.tokenizer import Tokenizer


def load_pretokenized(schema: DataSchema, data: DataConfig, diagnostics: Diagnostics) -> TextData:
    """Load the shards that `train_file` names; `valid_file` and `test_file` may name text beside them.

    Raises:
        UsageError: the task does not read running text.
        DataError: the shards are unfinished or damaged, or there is no text to validate on.
    """
    path = Path(str(data.files.train_file))
    if schema.target:
        message = f"{path} holds running text, and {schema.task} needs texts with {schema.target}s"
        raise UsageError(message, "use shards for lm and pretrain, and a table here")
    if data.limit is not None:
        raise UsageError("limit counts examples, and running text has none", "use --steps instead")
    index = ShardIndex.read(path)
    index.verify()
    diagnostics.hashes[(path / INDEX).as_posix()] = index.sha256
    parts = {
        name: Split([text for _, text in read_documents(Path(file), diagnostics)], source=file)
        for name, file in (("valid", data.files.valid_file), ("test", data.files.test_file))
        if file
    }
    diagnostics.raise_if_any()
    if "valid" not in parts and data.use_test_as_validation and "test" in parts:
        parts["valid"] = parts["test"]
        diagnostics.notes.append(TEST_IS_VALIDATION)
    elif "valid" not in parts:
        if not (held_out := index.read_held_out()):
            message = f"{path} was encoded without held-out text, so there is nothing to validate on"
            raise DataError(message, "give --valid-file, or encode with a --valid-fraction")
        parts["valid"] = Split(held_out, source=f"{path} (held out)")
        diagnostics.notes.append(f"validation: {len(held_out):,} pieces held out when {path} was encoded")
    train = Split([], source=str(path), shards=index)
    tokenizer = load_tokenizer(path)
    index.check_tokenizer(tokenizer)
    return with_reading(TextData(train, parts["valid"], parts.get("test"), tokenizer=tokenizer), diagnostics)


def pretokenized_corpus(index: ShardIndex, tokenizer: Tokenizer) -> EncodedCorpus:
    """Return the shards as one running text; a DataError says that their tokenizer is another one."""
    index.check_tokenizer(tokenizer)
    counts = index.counts
    stats = {"n": counts["documents"], "n_tokens": index.n_tokens, "n_unknown": counts["unknown"]}
    ids = RaggedArray(index.ids(), np.array([0, index.n_tokens]))
    return EncodedCorpus(ids, stats=stats, compute_sha256=lambda: index.sha256)
