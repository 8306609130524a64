"""The model of a folder of another library, read by what is in it."""

from __future__ import annotations

from pathlib import Path

from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.ctranslate2_model import read_ctranslate2
from glassformer.interop.hf_model import read_hf
from glassformer.interop.imported import ImportedModel
from glassformer.interop.source_folder import SourceFolder
from glassformer.runs.folder import is_exported


def read_source(source: Path | str, max_len: int | None = None) -> ImportedModel:
    """Return the model of a folder, by what is in it.

    Raises:
        UsageError, CheckpointError: it is of a kind that is not read, or damaged.
    """
    folder = SourceFolder(source)
    if folder.has("model/manifest.json") or (folder.has("manifest.json") and not is_exported(folder.path)):
        raise UsageError(f"{source} is a run of Glassformer already", "use it as it is")
    config = folder.json_if_there("config.json")
    if folder.has("model.bin") and "model_type" not in config:  # as CTranslate2 writes it
        return read_ctranslate2(folder, config, max_len)
    if folder.has("config.json"):
        return read_hf(folder, config, max_len)
    if is_exported(folder.path):
        raise UsageError(f"{source} is an export to a form that is not read again", "export to hf or ctranslate2")
    inner = f"{source}/0_Transformer" if folder.has("0_Transformer") else "the folder that save_pretrained wrote"
    raise CheckpointError(f"{source} holds no config.json", f"give {inner}")
