"""Export a run: choose what it becomes, write it, load it again with its library, and compare."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, cast

from torch import nn

from glassformer.errors import UsageError
from glassformer.explain.ensemble_member import with_member
from glassformer.interop.card import card
from glassformer.interop.check import CheckResult, check_export
from glassformer.interop.choose import TARGETS, Choice, Target, choose
from glassformer.interop.ctranslate2_writer import write_ctranslate2
from glassformer.interop.exported import FACTS, KIND, ExportFacts, load_exported
from glassformer.models import LanguageModel, Translator
from glassformer.models.ensemble import members_of
from glassformer.runs.folder import TOKENIZER, RunFolder
from glassformer.runs.sealed_folder import update_sealed_folder, write_sealed_folder
from glassformer.tasks import Task

logger = logging.getLogger(__name__)

CARD = "README.md"
QUANTIZATIONS = ("int8", "float16", "bfloat16")


class Exportable(Protocol):
    """What is exported; a `Run` is one."""

    path: Path
    task: Task
    model: nn.Module


@dataclass(frozen=True)
class Export:
    """A finished export, or what one would be.

    Attributes:
        out: the folder.
        facts: its description.
        not_checked: why the comparison was not made; empty if it was.
    """

    out: Path
    facts: ExportFacts
    not_checked: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON data."""
        return {"out": str(self.out), **asdict(self.facts), "not_checked": self.not_checked}


def targets_of(run: Exportable, member: int | None = None) -> dict[Target, Choice | UsageError]:
    """Return for each library what the run becomes there, or the reason why not."""
    found: dict[Target, Choice | UsageError] = {}
    for target in TARGETS:
        try:
            found[target] = choose(run.task.explain_as, run.task.config.model, _n_exported(run, member), target)
        except UsageError as error:
            found[target] = error
    return found


def export(
    run: Exportable,
    target: Target,
    out: Path,
    *,
    quantization: str | None = None,
    member: int | None = None,
    license: str | None = None,
    dry_run: bool = False,
) -> Export:
    """Write a run in the form of another library, and compare what was written with the run.

    Args:
        run: a loaded run.
        target: the library.
        out: a new or empty folder; written whole or not at all.
        quantization: numbers of the weights: "int8", "float16", "bfloat16"; None for float32.
        member: which model of an ensemble, counted from 1.
        license: the identifier of a licence, for the card.
        dry_run: choose, and write nothing.

    Raises:
        UsageError: the library cannot hold this model, or is not installed; or `out` is not empty.
        ResourceError: the disk is full, or cannot be written.
    """
    out = Path(out)
    if RunFolder(out).not_empty:
        raise UsageError(f"{out} is not empty", "name a new folder")
    if quantization not in (None, *QUANTIZATIONS):
        raise UsageError(f"there is no quantization {quantization!r}", f"there are {', '.join(QUANTIZATIONS)}")
    choice = choose(run.task.explain_as, run.task.config.model, _n_exported(run, member), target)
    chosen = run if member is None else with_member(cast(Any, run), member)
    model = cast("Translator | LanguageModel", members_of(chosen.model)[0])
    task, facts = run.task, _facts(run, target, choice, model.max_len, quantization)
    if dry_run:
        return Export(out, facts, "nothing was written")
    report, evaluation = task.report, RunFolder(run.path).read_evaluation()

    def described(facts: ExportFacts) -> dict[str, list[bytes]]:
        return {FACTS: [facts.to_json()], CARD: [card(facts, report, evaluation, license).encode("utf-8")]}

    files = {name: [data] for name, data in write_ctranslate2(model, task.tokenizer.vocabulary(), quantization)}
    tokenizer = task.tokenizer.to_json().encode("utf-8")
    write_sealed_folder(out, KIND, files | {TOKENIZER: [tokenizer]} | described(facts))
    checked = check_export(task, model, load_exported(out, "cpu"))
    if isinstance(checked, CheckResult):
        facts = replace(facts, check=checked.to_json())
        update_sealed_folder(out, KIND, described(facts))
        checked = ""
    return Export(out, facts, checked)


def _facts(run: Exportable, target: Target, choice: Choice, context: int, quantization: str | None) -> ExportFacts:
    """Return the description of the folder, before it is compared with the run."""
    rounded = [] if quantization is None else [f"weights are rounded to {quantization}, so some answers differ"]
    return ExportFacts(
        target=target,
        architecture=choice.architecture,
        task=run.task.name,
        kind=str(run.task.explain_as),
        run=run.path.resolve().name,
        max_len=run.task.config.text.max_len,
        context=context,
        dtype=quantization or "float32",
        decode=asdict(run.task.config.decode),
        notes=[*choice.notes, *rounded],
    )


def _n_exported(run: Exportable, member: int | None) -> int:
    return 1 if member is not None else len(members_of(run.model))
