"""Write the model that learned an answer as a new run; the run that it was copied from stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.errors import UsageError
from glassformer.explain.subject import with_checkpoint
from glassformer.models.ensemble import Ensemble
from glassformer.runs.folder import RunFolder
from glassformer.runs.model_folder import TOKENIZERS, read_description, save_model
from glassformer.runs.origin import read_origin
from glassformer.utils.atomic_io import write_folder_atomically
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
    if RunFolder(out).not_empty:
        raise UsageError(f"{out} is not empty", "name a new folder")
    source = RunFolder(explanation.run.path).require_model_folder()
    whole = with_checkpoint(explanation.run, explanation.request.checkpoint).model
    weights = {name: p.detach() for name, p in whole.named_parameters()}
    prefix = f"members.{explanation.request.member - 1}." if isinstance(whole, Ensemble) else ""
    learned = {f"{prefix}{name}": p.detach() for name, p in explanation.subject.model.named_parameters()}
    if (labels := explanation.labels) is not None:  # of which one learned: its row of the head
        for name in (f"{prefix}head.weight", f"{prefix}head.bias"):
            rows = weights[name].clone()
            rows[labels.shown] = learned[name][0]
            learned[name] = rows
    weights |= learned
    config, _ = read_description(source)
    tokenizers = {name: (source / name).read_bytes() for name in TOKENIZERS if (source / name).exists()}
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.is_dir():
        out.rmdir()  # it is empty
    with write_folder_atomically(out) as building:
        save_model(RunFolder(building).model, config, weights, tokenizers, _card(explanation, source))
    return out


def _card(explanation: Explanation, source: Path) -> str:
    facts, origin = explanation.learning, read_origin(source)
    assert facts is not None and facts.learned is not None
    steps, settings = facts.learned.steps, explanation.subject.task.config.train
    optimizer = explanation.request.optimizer or settings.optimizer
    lr = settings.lr if explanation.request.lr is None else explanation.request.lr
    head = ["library_name: glassformer", *(origin.front_matter() if origin else [])]
    text = [
        "\n".join(["---", *head, "tags:", "- transformer", "---"]),
        f"# {cell_text(explanation.run.path.resolve().name)} after {counted(len(steps), 'steps')} on one text",
        f"The model of {code(explanation.run.path.resolve().name)} ({code(explanation.request.checkpoint)}), after "
        f"{counted(len(steps), 'steps')} of {optimizer} with learning rate {lr:g} on the text below alone. Its loss "
        f"went from {facts.loss:.4g} to {facts.learned.loss:.4g} nats per label. It was not evaluated.",
        f"| text | answer |\n| --- | --- |\n"
        f"| {cell_text(explanation.request.text, 1000)} | {cell_text(facts.answer, 1000)} |",
    ]
    return "\n\n".join([*text, *(origin.of_descendant() if origin else [])]) + "\n"
