"""Read a pretrained model from a folder of another library, check it against that library, and write a run.

That is a run like any other, without a training: `RUN/model/`, sealed, and `RUN/import.json`, which says where it came
from.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from glassformer.errors import UsageError
from glassformer.interop.check import check_import
from glassformer.interop.export_facts import CheckResult
from glassformer.interop.imported import ImportedModel, import_card, restore_imported
from glassformer.interop.new_folder import new_folder
from glassformer.interop.sources import read_source
from glassformer.runs.folder import IMPORT_RECORD, TOKENIZER, RunFolder
from glassformer.runs.model_folder import save_model
from glassformer.runs.records import IMPORT, Origin
from glassformer.training.finalize import model_metadata
from glassformer.utils.atomic_io import write_json

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Import:
    """A finished import; `origin` is what `import.json` holds."""

    out: Path
    model: ImportedModel
    origin: Origin
    check: CheckResult | None

    def to_json(self) -> dict[str, Any]:
        """Return what `import.json` holds, and the folder."""
        return {"out": str(self.out), **asdict(self.origin)}


def import_folder(source: Path | str, out: Path | str, max_len: int | None = None) -> Import:
    """Write a run folder of the pretrained model in a folder, whole or not at all; see `glassformer.import_model`."""
    out = Path(out)
    if RunFolder(out).not_empty:
        raise UsageError(f"{out} is not empty", "name a new folder")
    imported = read_source(source, max_len)
    task, model = restore_imported(imported)
    logger.info("comparing with the library that it came from")
    check = check_import(imported, task, model, Path(source))
    origin = replace(imported.source, task=imported.task, notes=[*imported.notes], check=check and asdict(check))
    with new_folder(out) as building:
        metadata = model_metadata(task) | {IMPORT: asdict(origin)}
        tokenizer = {TOKENIZER: task.tokenizer.to_json().encode("utf-8")}
        weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
        save_model(RunFolder(building).model, metadata, weights, tokenizer, import_card(origin, task, check))
        write_json(building / IMPORT_RECORD, asdict(origin))
    return Import(out, imported, origin, check)
