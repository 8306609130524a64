"""Export a run to another library, and read a pretrained model from a folder of another library into a run.

Both write a new folder, whole, and compare what was written or read with the other library. An import is a run like
any other, without a training: `RUN/model/`, sealed, and `RUN/import.json`, which says where it came from.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from torch import nn

from glassformer.data.datasets.columns import Columns
from glassformer.errors import UsageError
from glassformer.interop.card import card, import_card
from glassformer.interop.check import check_export, check_import
from glassformer.interop.export_facts import (
    CARD,
    FACTS,
    KIND,
    RUN_TOKENIZER,
    CheckResult,
    ExportFacts,
    Target,
    choose,
    facts_of,
)
from glassformer.interop.exported import ExportedModel
from glassformer.interop.hf_tokenizer import tokenizer_files
from glassformer.interop.imported import ImportedModel, restore_imported
from glassformer.interop.sources import read_source
from glassformer.models.ensemble import member_of, members_of
from glassformer.report.run_record import load_run_record
from glassformer.runs.folder import IMPORT_RECORD, TOKENIZER, RunFolder
from glassformer.runs.model_folder import read_origin, save_model
from glassformer.runs.records import IMPORT, Origin
from glassformer.runs.sealed_folder import seal, write_files
from glassformer.tasks import Task
from glassformer.training.finalize import model_metadata
from glassformer.utils.atomic_io import write_folder_atomically, write_json

logger = logging.getLogger(__name__)

QUANTIZATIONS = ("int8", "float16", "bfloat16")
"""Number formats of weights that CTranslate2 can be given, in addition to float32."""


@dataclass(frozen=True)
class Export:
    """A finished export.

    `not_checked` says why the comparison was not made; it is empty if it was.
    """

    out: Path
    facts: ExportFacts
    not_checked: str = ""

    def check_text(self) -> str:
        """Return the result of the comparison in words."""
        return CheckResult(**self.facts.check).words if self.facts.check else self.not_checked

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON data."""
        return {"out": str(self.out), **asdict(self.facts), "not_checked": self.not_checked}


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yield a folder to fill, which becomes `out` at the end of the block; if that fails, nothing is left of it.

    Args:
        out: a path where there is nothing, or an empty folder; a link to one is followed.

    Raises:
        ResourceError: the disk cannot be written.
    """
    out = Path(os.path.realpath(out))
    with write_folder_atomically(out) as building:
        yield building
        if out.is_dir():
            out.rmdir()  # it is empty, or this fails


def export(
    run: Any,
    target: Target,
    out: Path,
    *,
    quantization: str | None = None,
    member: int | None = None,
    license: str | None = None,
) -> Export:
    """Write a run in the form of another library, and compare what was written with the run.

    Args:
        run: what is exported, a `Run` or what has its path, task and model.
        target: the library.
        out: a new or an empty folder, written whole or not at all.
        quantization: numbers of the weights, from `QUANTIZATIONS`; None for float32.
        member: which model of an ensemble, counted from 0; None for all.
        license: the identifier of a licence, for the card.

    Raises:
        UsageError: the library cannot hold this model, or is not installed; or `out` is not empty.
        ResourceError: the disk is full, or cannot be written.
    """
    out, task = Path(out), run.task
    if RunFolder(out).not_empty:
        raise UsageError(f"{out} is not empty", "name a new folder")
    known = QUANTIZATIONS if target == "ctranslate2" else ()
    if quantization not in (None, *known):
        hint = f"there are {', '.join(known)}" if known else "leave out --quantization"
        raise UsageError(f"{target} is not written with quantization {quantization!r}", hint)
    model = _on_cpu((run.model if member is None else member_of(run.model, member)).eval())
    members = members_of(model)
    model = model if members[1:] else members[0]
    architecture, notes = choose(task.explain_as, task.config, len(members), target, task.tokenizer)
    facts = _facts(run, target, architecture, notes, model, quantization)
    folder = RunFolder(run.path)
    record = load_run_record(run.path) if folder.resumable else None
    origin = folder.model_folder and read_origin(folder.model_folder)

    logger.info(f"writing for {target}, and comparing")  # torch takes 10 s to record an ONNX graph
    files = tokenizer_files(task.tokenizer, facts.kind == "masked_language_model")
    files[RUN_TOKENIZER] = task.tokenizer.to_json().encode("utf-8")
    files |= dict(_written(task, model, facts))
    with new_folder(out) as building:
        sums = write_files(building, {name: [data] for name, data in files.items()})
        exported = ExportedModel(building, facts, "cpu", task.tokenizer)
        checked = check_export(task, model, exported, run.path, bool(getattr(run, "allow_changed_data", False)))
        if isinstance(checked, CheckResult):
            facts, checked = replace(facts, check=asdict(checked)), ""
        text = card(facts, task, record, license, origin)
        described = {FACTS: [facts.to_json()], CARD: [text.encode("utf-8")]}
        seal(building, KIND, sums | write_files(building, described))
    return Export(out, facts, checked)


def _on_cpu(model: nn.Module) -> nn.Module:
    """Return a model whose numbers the libraries can be given; a copy where it is on another device."""
    return model if next(model.parameters()).is_cpu else copy.deepcopy(model).cpu()


def _written(task: Task, model: Any, facts: ExportFacts) -> Iterator[tuple[str, bytes]]:
    """Return the files of the library: their names and contents."""
    match facts.target:
        case "ctranslate2":
            from glassformer.interop.ctranslate2_model import write_ctranslate2

            quantization = None if facts.dtype == "float32" else facts.dtype
            return write_ctranslate2(model, task.tokenizer.vocabulary(), quantization, task.tokenizer.special)
        case "hf":
            from glassformer.interop.hf_model import write_hf

            return write_hf(model, task.tokenizer, task.config.decode, facts.architecture, facts.labels)
        case _:
            from glassformer.interop.onnx_writer import write_onnx

            return write_onnx(model, task.tokenizer, task.decision.scale if facts.kind == "regressor" else None)


def _facts(
    run: Any, target: Target, architecture: str, given: Sequence[str], model: nn.Module, quantization: str | None
) -> ExportFacts:
    """Return the description of the folder, before it is compared with the run."""
    notes = [*given]
    if between := list(run.task.tokenizer.separator):
        notes.append(f"each text is a pair: the ids of the first text, {between}, and the ids of the second")
    notes += [f"weights are rounded to {quantization}, so some answers differ"] if quantization else []
    folder, context = RunFolder(run.path), int(cast(Any, model).max_len)
    columns = Columns.from_json(folder.read_data().columns) if folder.resumable else None
    more = {"dtype": quantization or "float32", "notes": notes, "columns": columns}
    return facts_of(run.task, target, architecture, run.path, context, **more)


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
    check = check_import(imported, task, model, Path(source))
    origin = replace(imported.source, task=imported.task, notes=[*imported.notes], check=check and asdict(check))
    with new_folder(out) as building:
        metadata = model_metadata(task) | {IMPORT: asdict(origin)}
        tokenizer = {TOKENIZER: task.tokenizer.to_json().encode("utf-8")}
        weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
        save_model(RunFolder(building).model, metadata, weights, tokenizer, import_card(origin, task, check))
        write_json(building / IMPORT_RECORD, asdict(origin))
    return Import(out, imported, origin, check)
