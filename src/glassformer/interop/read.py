"""Read a pretrained model from a folder of another library, check it against that library, and write a run."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.errors import UsageError
from glassformer.interop.check import check_import
from glassformer.interop.export_facts import CheckResult
from glassformer.interop.imported import ImportedModel, import_record, restore_imported, write_imported
from glassformer.interop.sources import read_source
from glassformer.runs.folder import RunFolder

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


def import_folder(source: Path | str, out: Path | str, max_len: int | None = None) -> Import:
    """Write a run folder of the pretrained model in a folder; see `glassformer.import_model`."""
    if RunFolder(out).not_empty:
        raise UsageError(f"{out} is not empty", "name a new folder")
    imported = read_source(source, max_len)
    restored = restore_imported(imported)
    logger.info("comparing with the library that it came from")
    check = check_import(imported, *restored, Path(source))
    return Import(write_imported(imported, out, check, restored), imported, check)
