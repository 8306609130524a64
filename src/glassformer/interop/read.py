"""Read a pretrained model from a folder of another library, check it against that library, and write a run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.check import check_import
from glassformer.interop.export_facts import CheckResult
from glassformer.interop.imported import ImportedModel, import_record, restore_imported, write_imported
from glassformer.interop.source_folder import SourceFolder
from glassformer.runs.folder import RunFolder, is_exported

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Import:
    """A finished import."""

    out: Path
    model: ImportedModel
    check: CheckResult | None

    def to_json(self) -> dict[str, Any]:
        """Return what `import.json` holds, and the folder."""
        return {"out": str(self.out), **import_record(self.model, self.check)}


def read_source(source: Path | str, labels: Sequence[str] | None = None, max_len: int | None = None) -> ImportedModel:
    """Return the model of a folder, by what is in it.

    Raises:
        UsageError, CheckpointError: it is of a kind that is not read, or damaged.
    """
    folder = SourceFolder(source)
    if folder.has("model/manifest.json") or (folder.has("manifest.json") and not is_exported(folder.path)):
        raise UsageError(f"{source} is a run of Glassformer already", "use it as it is")
    if _is_ctranslate2(folder):
        from glassformer.interop.ctranslate2_reader import read_ctranslate2

        imported, facts = read_ctranslate2(folder.path, max_len), folder.card_facts()
        return replace(imported, source=replace(imported.source, name=folder.name(), **facts))
    if is_exported(folder.path) and not folder.has("config.json"):
        message = f"{source} is an export to a form that is not read again; those to hf and ctranslate2 are"
        raise UsageError(message, "export its run to one of these, or use the run")
    if not folder.has("config.json"):
        raise CheckpointError(f"{source} holds no config.json", "give the folder that save_pretrained wrote")
    from glassformer.interop.hf_reader import read_hf

    return read_hf(folder, folder.json("config.json"), labels, max_len)


def _is_ctranslate2(folder: SourceFolder) -> bool:
    """Return whether a folder holds a model of CTranslate2, whose `config.json` names no model type."""
    return folder.has("model.bin") and "model_type" not in folder.json_if_there("config.json")


def import_folder(
    source: Path | str, out: Path | str, labels: Sequence[str] | None = None, max_len: int | None = None
) -> Import:
    """Write a run folder of the pretrained model in a folder; see `glassformer.import_model`."""
    if RunFolder(out).not_empty:
        raise UsageError(f"{out} is not empty", "name a new folder")
    imported = read_source(source, labels, max_len)
    restored = restore_imported(imported)
    logger.info("comparing with the library that it came from")
    compared = imported, restored
    if imported.untrained:  # of which the rest is compared, in the form that the source has
        compared = (own := read_source(source, None, max_len)), restore_imported(own)
    check = check_import(compared[0], *compared[1], Path(source))
    return Import(write_imported(imported, out, check, restored), imported, check)
