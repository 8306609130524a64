"""A pretrained model of another library as a run folder: the one form that every reader gives, and how it is written.

A reader (of a Hugging Face folder, of a CTranslate2 folder) returns an `ImportedModel`; `write_imported` makes of it a
run like any other, without a training: `RUN/model/`, sealed, and `RUN/import.json`, which says where it came from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor

from glassformer.config import Config, DecodeConfig, ModelConfig, TextConfig
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.export_facts import CheckResult
from glassformer.interop.new_folder import new_folder
from glassformer.models.build import without_memory
from glassformer.runs.folder import IMPORT_RECORD, TOKENIZER, RunFolder
from glassformer.runs.model_folder import check_shapes, save_model, shapes_of
from glassformer.runs.records import IMPORT, Origin
from glassformer.tasks import Task, task_class
from glassformer.text.decision import Decision
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.finalize import model_metadata
from glassformer.utils.atomic_io import write_json
from glassformer.utils.formatting import cell_text

MAX_WEIGHTS = 1 << 32
"""Most weights of a model that is imported: 16 GiB in float32."""


@dataclass(frozen=True)
class ImportSource:
    """Where a pretrained model came from.

    Attributes:
        library: whose format it is: "transformers", "ctranslate2".
        family: the kind of model there: "bert", "gpt2", "TransformerSpec".
        name: the name of the folder, or that of its card.
        files: SHA-256 of each file that was read, by name.
        license: the identifier of its licence, as its card says; empty where it says none.
        base_model: the model that it was made from, as its card says; empty where it says none.
    """

    library: str
    family: str
    name: str
    files: Mapping[str, str]
    license: str = ""
    base_model: str = ""


@dataclass(frozen=True)
class ImportedModel:
    """A pretrained model in the terms of this package.

    Attributes:
        task: "classify", "tag", "pretrain" (a masked language model), "lm", "translate", or "embed" (a bare encoder).
        model: the settings of its Transformer.
        tokenizer: made with `Tokenizer.imported`, special tokens by role, prefix and suffix in it.
        max_len: most tokens of a text, with what is around it.
        state: weights in float32 by the names of this package's modules, as in `named_parameters()`.
        source: where it came from.
        labels: the classes of a classifier, in the order of the logits.
        notes: what was repeated, permuted or folded, and what was left out; one sentence each.
        decode: settings of decoding.
        truncate: which part of a text that is too long is kept.
        decision: how probabilities become answers.
    """

    task: str
    model: ModelConfig
    tokenizer: Tokenizer
    max_len: int
    state: Mapping[str, Tensor]
    source: ImportSource
    labels: list[str] | None = None
    notes: tuple[str, ...] = ()
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    truncate: Literal["head", "tail", "head+tail"] = "head"
    decision: Decision = field(default_factory=Decision)

    def make_task(self) -> Task:
        """Return the task of the run."""
        text = TextConfig(
            tokenizer="imported" if self.tokenizer.special else cast(Any, self.tokenizer.kind),
            vocab_size=max(6, self.tokenizer.vocab_size),
            lowercase=bool(self.tokenizer.lowercases),
            max_len=self.max_len,
            truncate=self.truncate,
            ngrams=len(self.tokenizer.ngrams.ngrams) if self.tokenizer.ngrams else 0,
            bigrams=len(self.tokenizer.bigrams),
        )
        config = Config(task=self.task, text=text, model=self.model, decode=self.decode)
        task = task_class(self.task)(config, self.tokenizer, self.labels)
        task.decision = self.decision
        return task


def restore_imported(imported: ImportedModel) -> tuple[Task, torch.nn.Module]:
    """Return the task and the model with the weights of an import, in evaluation mode.

    Sizes are compared before any memory is taken.

    Raises:
        UsageError: there is no room for a token of a text.
        CheckpointError: a weight is missing, is not one of the model's, has another shape, or is not finite.
    """
    task, where = imported.make_task(), imported.source.name
    if (room := imported.tokenizer.room(imported.max_len)) < 1:
        n = len(imported.tokenizer.framed([]))
        message = f"max_len {imported.max_len} leaves {room} tokens for a text, which has {n} around it"
        raise UsageError(message, f"use --max-len {n + 1} or more")
    try:
        with without_memory():
            expected = shapes_of(task.build_model())
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(f"{where} describes no model: {str(error)[:200]}") from error
    if (n := sum(map(math.prod, expected.values()))) > MAX_WEIGHTS:
        raise CheckpointError(f"{where} describes a model of {n:,} weights, more than {MAX_WEIGHTS:,}")
    check_shapes(expected, {name: tuple(tensor.shape) for name, tensor in imported.state.items()})
    for name, tensor in imported.state.items():
        if not bool(tensor.isfinite().all()):
            raise CheckpointError(f"{where} holds NaN or infinity in {name}", "use another copy of the model")
    with torch.random.fork_rng(devices=[]):
        model = task.build_model()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(imported.state[name])
    return task, model.eval()


def write_imported(
    imported: ImportedModel,
    out: Path | str,
    check: CheckResult | None = None,
    restored: tuple[Task, torch.nn.Module] | None = None,
) -> Path:
    """Write a run folder of a pretrained model, whole or not at all; return its path.

    Args:
        imported: the model.
        out: a new or an empty folder.
        check: the comparison with the source library; None if it was not made.
        restored: what `restore_imported` returned, if that was done before.

    Raises:
        UsageError: `out` is not empty.
        CheckpointError: as `restore_imported`.
        ResourceError: the disk is full, or cannot be written.
    """
    out = Path(out)
    if RunFolder(out).not_empty:
        raise UsageError(f"{out} is not empty", "name a new folder")
    task, model = restored or restore_imported(imported)
    tokenizers = {TOKENIZER: task.tokenizer.to_json().encode("utf-8")}
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    facts = {IMPORT: import_record(imported, check)}
    with new_folder(out) as building:
        building.mkdir()
        config = model_metadata(task) | facts
        save_model(RunFolder(building).model, config, weights, tokenizers, import_card(imported, task, check))
        write_json(building / IMPORT_RECORD, facts[IMPORT])
    return out


def import_record(imported: ImportedModel, check: CheckResult | None) -> dict[str, Any]:
    """Return what is known of an import as JSON data."""
    return {
        **asdict(replace(imported.source, files=dict(imported.source.files))),
        "task": imported.task,
        "notes": list(imported.notes),
        "check": None if check is None else asdict(check),
    }


def import_card(imported: ImportedModel, task: Task, check: CheckResult | None) -> str:
    """Return the card of an imported model as Markdown."""
    origin = Origin(**import_record(imported, check))
    head = ["library_name: glassformer", *origin.front_matter()]
    lines = [
        "\n".join(["---", *head, "tags:", "- transformer", "---"]),
        f"# {cell_text(origin.name)}",
        f"A pretrained {task.report.model_name}, {origin.title}, read by Glassformer. "
        "Its weights are those of its source; it was not trained here.",
        f"It reads texts up to {imported.max_len:,} tokens.",
        "## Check",
        check.words if check else "Not compared with the library it came from.",
    ]
    return "\n\n".join([*lines, "## Source", *origin.source()]) + "\n"
