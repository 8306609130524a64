"""Write the model that learned an answer as a new run; the run that it was copied from stays as it is.

It has the settings and the record of the data of that run, so that it is evaluated on the same splits and learns again
with the same optimizer; it has no log, no checkpoint and no scores, and cannot be resumed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.config.recipes import config_to_dict
from glassformer.errors import UsageError
from glassformer.explain.learn.learning import LEFT_OUT, training_settings
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
    facts, out = explanation.learning, Path(out)
    if facts is None or facts.learned is None:
        raise UsageError("no step of learning was taken that could be kept", "as in: run.learn(text, answer, steps=1)")
    if out.resolve().is_relative_to(explanation.run.path.resolve()):
        message = f"{out} lies in the folder of the run that learned, whose files stay as they are"
        raise UsageError(message, "name a folder outside of it")
    if out.is_symlink():
        raise UsageError(f"{out} is a link", "name a new folder")
    if RunFolder(out).not_empty:
        raise UsageError(f"{out} is not empty", "name a new folder")
    source = RunFolder(explanation.run.path).require_model_folder()
    view = explanation.subject
    weights = {name: p.detach() for name, p in view.weights.named_parameters()}
    prefix = f"members.{view.member}." if view.together else ""
    learned = {f"{prefix}{name}": p.detach() for name, p in view.model.named_parameters()}
    labels = explanation.labels
    # Of several labels the one that learned has a row of the head; the tag of a word shares the whole head.
    if labels is not None and labels.each[labels.shown].threshold is not None:
        for name in (f"{prefix}head.weight", f"{prefix}head.bias"):
            rows = weights[name].clone()
            rows[labels.shown] = learned[name][0]
            learned[name] = rows
    weights |= learned
    config, _ = read_description(source)
    tokenizers = {TOKENIZER: (source / TOKENIZER).read_bytes()}
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.is_dir():
        out.rmdir()  # it is empty
    data = RunFolder(explanation.run.path).data
    with write_folder_atomically(out) as building:
        save_model(RunFolder(building).model, config, weights, tokenizers, _card(explanation, source))
        write_json(building / LEARNED_RECORD, learned_record(explanation))
        if data.is_file():
            (building / data.name).write_bytes(data.read_bytes())
    return out


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
        "left_out": facts.left_out,
        SETTINGS: config_to_dict(explanation.run.task.config),
    }


def _card(explanation: Explanation, source: Path) -> str:
    facts, origin, record = explanation.learning, read_origin(source), learned_record(explanation)
    assert facts is not None and facts.learned is not None
    head = ["library_name: glassformer", *(origin.front_matter() if origin else [])]
    steps, who = counted(record["steps"], "steps"), f"The model of {code(record['run'])}"
    if record["member"] is not None:
        who = f"Member {record['member']} of the {record['members']} models of {code(record['run'])}"
    text = [
        "\n".join(["---", *head, "tags:", "- transformer", "---"]),
        f"# {cell_text(record['run'])} after {steps} on one text",
        f"{who} ({code(record['checkpoint'])}), after {steps} of {record['optimizer']} with learning rate "
        f"{record['lr']:g} on the text below alone. Its loss went from {facts.loss:.4g} to {facts.learned.loss:.4g} "
        f"{'nats per label' if facts.target is None else 'as a squared error'}. It was not evaluated.",
        f"| text | answer |\n| --- | --- |\n"
        f"| {cell_text(explanation.request.text, 1000)} | {cell_text(facts.answer, 1000)} |",
    ]
    if facts.left_out:
        text.append(f"Left out of these steps: {'; '.join(LEFT_OUT[name] for name in facts.left_out)}.")
    return "\n\n".join([*text, *(origin.of_descendant() if origin else [])]) + "\n"
