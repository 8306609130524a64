"""A folder of shards as training text, and what was held out of it as validation text."""

from __future__ import annotations

from pathlib import Path

from glassformer.config import DataConfig
from glassformer.data.documents import read_documents
from glassformer.data.download import cache_dir
from glassformer.data.forms import Form
from glassformer.data.reading import Findings
from glassformer.data.shards import INDEX, Shards
from glassformer.data.splits import TEST_IS_VALIDATION, Split, TextData
from glassformer.errors import DataError, UsageError


def load_shards(form: Form, data: DataConfig, findings: Findings) -> TextData:
    """What `glassformer data encode` wrote. Files of text for validation and test may be named beside it.

    Raises:
        UsageError: the task reads no running text.
        DataError: the shards are unfinished or damaged, or nothing is there to validate on.
    """
    path = Path(str(data.files.train_file))
    if form.answers:
        told = f"{path} holds running text, and {form.task} needs texts with {form.answers}s"
        raise UsageError(told, "shards are for lm and pretrain; name a table")
    if data.limit is not None:
        raise UsageError("limit counts examples, and a running text has none", "use --steps instead")
    shards = Shards.read(path)
    shards.check(cache_dir() / "verified")
    findings.hashes[(path / INDEX).as_posix()] = shards.sha256
    train = Split([], source=str(path), shards=shards)
    named = {"valid": data.files.valid_file, "test": data.files.test_file}
    parts = {
        name: Split([text for _, text in read_documents(Path(file), findings)], source=file)
        for name, file in named.items()
        if file
    }
    findings.raise_if_any()
    if "valid" not in parts and data.use_test_as_validation and "test" in parts:
        parts["valid"] = parts["test"]
        findings.notes.append(TEST_IS_VALIDATION)
    elif "valid" not in parts:
        if not (held_out := shards.read_held_out()):
            told = f"{path} was encoded without anything held out, so there is nothing to validate on"
            raise DataError(told, "give --valid-file, or encode with a --valid-fraction")
        parts["valid"] = Split(held_out, source=f"{path} (held out)")
        findings.notes.append(f"validation: {len(held_out):,} pieces held out when {path} was encoded")
    tokenizer = shards.read_tokenizer()
    return TextData(train, parts["valid"], parts.get("test"), findings.notes, findings.hashes, (), tokenizer)
