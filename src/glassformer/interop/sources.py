"""Read a pretrained model from a folder of another library, by what is in it."""

from __future__ import annotations

from pathlib import Path

from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.ctranslate2_reader import read_ctranslate2
from glassformer.interop.hf_reader import read_hf
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
    if _is_ctranslate2(folder):
        return read_ctranslate2(folder.path, max_len)
    if is_exported(folder.path) and not folder.has("config.json"):
        message = f"{source} is an export to a form that is not read again; those to hf and ctranslate2 are"
        raise UsageError(message, "export its run to one of these, or use the run")
    if not folder.has("config.json"):
        inner = next((name for name in ("0_Transformer",) if folder.has(name)), "")
        hint = f"give {source}/{inner}" if inner else "give the folder that save_pretrained wrote"
        raise CheckpointError(f"{source} holds no config.json", hint)
    return read_hf(folder, folder.json("config.json"), max_len)


def _is_ctranslate2(folder: SourceFolder) -> bool:
    """Return whether a folder holds a model of CTranslate2, whose `config.json` names no model type."""
    return folder.has("model.bin") and "model_type" not in folder.json_if_there("config.json")
