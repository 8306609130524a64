"""Write the model that learned an answer as a new run; the run that it was copied from stays as it is.

It has the settings and the record of the data of that run, so that it is evaluated on the same splits and learns again
with the same optimizer; it has no log, no checkpoint and no scores, and cannot be resumed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from glassformer.config.recipes import config_to_dict
from glassformer.errors import UsageError
from glassformer.explain.learn.learning import training_settings
from glassformer.runs.folder import LEARNED_RECORD, RunFolder
from glassformer.runs.model_folder import TOKENIZER, read_description, read_origin, save_model
from glassformer.runs.records import JsonObject
from glassformer.tasks.restoring import SETTINGS
from glassformer.utils.atomic_io import write_folder_atomically, write_json
from glassformer.utils.formatting import cell_text, code, counted

if TYPE_CHECKING:
    from glassformer.explain.explanation import Explanation


def keep(explanation: Explanation, out: Path | str) -> Path:
    """Write the model after the steps of learning into a new run folder, whole or not at all; return its path.

    Of an ensemble the other members stay as they are.

    Raises:
        UsageError: no step was taken, or `out` is not empty.
        ResourceError: the disk is full, or cannot be written.
    """
    facts, out, run = explanation.learning, Path(out), RunFolder(explanation.run.path)
    if facts is None or facts.learned is None:
        raise UsageError("no step of learning was taken that could be kept", "as in: run.learn(text, answer, steps=1)")
    if out.resolve().is_relative_to(run.path.resolve()):
        message = f"{out} lies in the folder of the run that learned, whose files stay as they are"
        raise UsageError(message, "name a folder outside of it")
    if out.is_symlink() or RunFolder(out).not_empty:
        raise UsageError(f"{out} is {'a link' if out.is_symlink() else 'not empty'}", "name a new folder")
    source = run.require_model_folder()
    tokenizers = {TOKENIZER: (source / TOKENIZER).read_bytes()}
    config, _ = read_description(source)
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.is_dir():
        out.rmdir()  # it is empty
    with write_folder_atomically(out) as building:
        weights, record = learned_weights(explanation), learned_record(explanation)
        save_model(RunFolder(building).model, config, weights, tokenizers, _card(record, source))
        write_json(building / LEARNED_RECORD, record)
        if run.data.is_file():
            (building / run.data.name).write_bytes(run.data.read_bytes())
    return out


def learned_weights(explanation: Explanation) -> dict[str, Tensor]:
    """Return the weights of the whole run, with those that have learned in their place."""
    view, labels = explanation.subject, explanation.labels
    weights = {name: p.detach() for name, p in view.weights.named_parameters()}
    prefix = f"members.{view.member}." if view.together else ""
    learned = {f"{prefix}{name}": p.detach() for name, p in view.model.named_parameters()}
    # Of several labels the one that learned has a row of the head; the tag of a word shares the whole head.
    if labels is not None and labels.each[labels.shown].threshold is not None:
        for name in (f"{prefix}head.weight", f"{prefix}head.bias"):
            rows = weights[name].clone()
            rows[labels.shown] = learned[name][0]
            learned[name] = rows
    return weights | learned


def learned_record(explanation: Explanation) -> JsonObject:
    """Return what was learned and how, and the settings of the run whose model learned it, as JSON data."""
    facts, request = explanation.learning, explanation.request
    assert facts is not None and facts.learned is not None
    settings = training_settings(explanation.subject, request)
    return {
        "run": explanation.run.path.resolve().name,
        "checkpoint": request.checkpoint,
        "member": None if explanation.together is None else request.member,
        "members": None if explanation.together is None else explanation.together.size,
        "text": request.text,
        "answer": facts.answer,
        "steps": len(facts.learned.steps),
        "optimizer": settings.optimizer,
        "lr": settings.lr,
        "loss_before": facts.loss,
        "loss_after": facts.learned.loss,
        "smoothing": facts.smoothing,
        "left_out": facts.left_out,
        SETTINGS: config_to_dict(explanation.run.task.config),
    }


def _card(record: JsonObject, source: Path) -> str:
    origin = read_origin(source)
    head = ["library_name: glassformer", *(origin.front_matter() if origin else [])]
    steps, of = counted(record["steps"], "steps"), "The model"
    if record["member"] is not None:
        of = f"Member {record['member']} of the {record['members']} models"
    text = [
        "\n".join(["---", *head, "tags:", "- transformer", "---"]),
        f"# {cell_text(record['run'])} after {steps} on one text",
        f"{of} of {code(record['run'])} ({code(record['checkpoint'])}), after {steps} of {record['optimizer']} with "
        f"learning rate {record['lr']:g} on the text below alone. Its loss went from {record['loss_before']:.4g} to "
        f"{record['loss_after']:.4g} (label smoothing {record['smoothing']:g}). It was not evaluated.",
        "| text | answer |\n| --- | --- |\n"
        f"| {cell_text(record['text'], 1000)} | {cell_text(record['answer'], 1000)} |",
    ]
    if record["left_out"]:
        text.append(f"Left out of these steps: {'; '.join(record['left_out'])}.")
    return "\n\n".join([*text, *(origin.of_descendant() if origin else [])]) + "\n"
