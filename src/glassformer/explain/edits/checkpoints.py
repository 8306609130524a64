"""The effect of edits at every saved point of training: when the part that they change came to matter.

Every checkpoint reads the tokens of one model, the one that the request names (teacher forcing), so that edits of any
position fit, and the numbers of all checkpoints are of the same tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from glassformer.errors import UsageError
from glassformer.explain.edits.batch import followed
from glassformer.explain.edits.what_if import predictions_of, what_if
from glassformer.explain.explanation import Explanation
from glassformer.explain.inputs.masked_language_model import filled_answer
from glassformer.explain.predictions import readable, rows_of
from glassformer.explain.record_store import RecordStore
from glassformer.explain.subject import Subject, list_checkpoints, with_checkpoint, with_member
from glassformer.utils.cancellation import check_cancelled
from glassformer.utils.device import tuned


@dataclass(frozen=True)
class CheckpointEffect:
    """What edits change in one checkpoint of a run."""

    checkpoint: str
    """"model" or the name of a checkpoint."""
    step: int | None
    """Its training step."""
    answer_before: str
    """What it predicts without edits: the class; or after each of the tokens that all checkpoints read, the next."""
    answer_after: str
    """The same with edits."""
    log_prob_before: float
    """Log-probability of the tokens, or of the class, without edits, in nats."""
    log_prob_after: float
    """The same with edits."""


@dataclass(frozen=True)
class CheckpointsSweep:
    """What edits change in every checkpoint of a run."""

    checkpoints: list[CheckpointEffect]
    """The first training step first."""


def sweep_checkpoints(explanation: Explanation) -> CheckpointsSweep:
    """Return the effect of the edits of an explanation at each checkpoint of its run, the first training step first."""
    if explanation.base is None:
        raise UsageError("a sweep of checkpoints needs edits", "as in: explain(run, TraceRequest(text, edits=…))")
    base, other, request = explanation.base, explanation.other, explanation.request
    found = []
    for info in list_checkpoints(explanation.run):
        check_cancelled()
        model = with_member(with_checkpoint(explanation.run, info["name"]), request.member)
        at = _at(base, model)
        result = what_if(at, request.edits, None if other is None else _at(other, model), again=False)
        logits = [rows_of(one.records["logits"].value) for one in (at, result)]
        before, after = (_answer(base, one) for one in logits)
        log_probs = (float(followed(base, one[base.answered].double().log_softmax(dim=-1)).sum()) for one in logits)
        found.append(CheckpointEffect(info["name"], info["step"], before, after, *log_probs))
    return CheckpointsSweep(found)


def _at(explanation: Explanation, subject: Subject) -> Explanation:
    """Return the explanation of the same tokens by other weights."""
    with tuned(subject.device):
        records = RecordStore(subject.model, explanation.model_inputs, explanation.streams)
    moved = replace(explanation, subject=subject, records=records)
    return replace(moved, predictions=predictions_of(moved, records["logits"].value))


def _answer(explanation: Explanation, logits: Any) -> str:
    """Return what logits (P, C) predict, token by token."""
    task = explanation.subject.task
    best = logits[explanation.answered].argmax(dim=-1).tolist()
    if explanation.is_classifier:
        return readable(task, best[0])
    if explanation.generation.masked:
        return filled_answer(explanation.subject, explanation.request.text, logits[explanation.answered])["headline"]
    ends = [i for i, token in enumerate(best) if token == task.tokenizer.eos_id]
    return task.tokenizer.decode(best[: ends[-1]] if ends[-1:] == [len(best) - 1] else best)
