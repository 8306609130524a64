"""What a checkpoint says of a run's position, checked before training continues from it.

A checkpoint may be damaged by hand or made by someone else: each value must have its type, lie in its interval, and
agree with the others, so that training ends in bounded time and never continues with something that the run had not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from torch import Tensor

from glassformer.errors import CheckpointError
from glassformer.training.context import RunContext
from glassformer.training.loop import budget_used
from glassformer.training.state import Progress

LARGEST = 2**53
"""Counts beyond are not exact in the floats they are compared with."""
HINT = "restore the checkpoint from a copy, or remove it to resume from the one before"


def count_groups(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Return how many tensors of each group a state holds: model, optimizer and so on."""
    return dict(Counter(name.partition(":")[0] for name in tensors))


def check_groups(tensors: Mapping[str, Tensor], recorded: object, where: Path) -> None:
    """Compare the groups of tensors with the record of those that were saved.

    Raises:
        CheckpointError: some are missing, or were added.
    """
    now, before = count_groups(tensors), recorded if isinstance(recorded, dict) else {}
    differs = [name for name in sorted(now.keys() | before) if now.get(name) != before.get(name)]
    if differs:
        name, n = str(differs[0])[:100], str(before.get(differs[0], 0))[:20]
        message = f"{where}: {now.get(differs[0], 0)} tensors of the group {name!r} are there, {n} were saved"
        raise CheckpointError(message, HINT)


def read_progress(value: object, where: Path, context: RunContext) -> dict[str, Any]:
    """Return the fields of `Progress` after checking them against the run's settings and data.

    Raises:
        CheckpointError: a field is missing, unknown, of another type, or impossible.
    """
    names = [f.name for f in fields(Progress)]
    if not isinstance(value, dict) or value.keys() != {*names}:
        raise CheckpointError(f"{where}: progress has other fields than this version's", HINT)
    for name, kind in get_type_hints(Progress).items():
        if not _has_type(value[name], kind):
            raise CheckpointError(f"{where}: progress.{name} cannot be {str(value[name])[:100]!r}", HINT)
    progress = Progress(**value)
    for holds, rule in _rules(progress, where, context):
        if not holds:
            raise CheckpointError(f"{where}: progress is not that of this run: {rule}", HINT)
    return value


def _has_type(value: object, kind: Any) -> bool:
    """Return whether a JSON value is a finite number, in no case negative, or a string, as the field's type says."""
    kinds = get_args(kind) or (kind,)  # float | None: a metric, which may be negative or infinite
    if str in kinds:
        return isinstance(value, str)
    if type(None) in kinds:
        return value is None or (type(value) in (int, float))
    numbers = (int,) if int in kinds else (int, float)
    return type(value) in numbers and 0 <= value < LARGEST  # pyright: ignore[reportOperatorIssue]


def _rules(p: Progress, where: Path, context: RunContext) -> Iterator[tuple[bool, str]]:
    """Yield what must hold, each with words for where it does not; later ones rely on those before."""
    train = context.config.train
    yield where.parent.name == f"step-{p.step:08d}", f"step {p.step} in {where.parent.name}"
    yield 0 < p.step <= (train.steps or LARGEST), f"step {p.step} of {train.steps}"
    yield p.epoch <= min(p.step, math.ceil(train.epochs or p.step)), f"epoch {p.epoch} at step {p.step}"
    n_batches = len(context.task.epoch_batches(context.train, p.epoch))
    yield p.position < n_batches, f"batch {p.position} of {n_batches} in an epoch"
    steps_of_epoch, rest = divmod(p.position, train.accumulate)
    yield rest == 0, f"batch {p.position}, and a step takes {train.accumulate}"
    enough = p.step == steps_of_epoch if p.epoch == 0 else p.step >= p.epoch + steps_of_epoch
    yield enough, f"step {p.step} at batch {p.position} of epoch {p.epoch}"
    yield p.finished in ("", "budget", "patience"), f"finished {p.finished[:100]!r}"
    used = budget_used(p, train, n_batches)
    yield (used >= 1.0) == (p.finished == "budget") or (p.finished == "patience"), f"{used:.0%} of the budget is used"
    lost = train.patience is not None and p.validations_since_best >= train.patience
    yield lost or p.finished != "patience", f"{p.validations_since_best} validations without improvement"
    epoch, every = p.epoch + p.position / n_batches, train.validate_every
    yield every * (1 - 1e-6) <= p.next_validation <= epoch + every + 1e-6, f"next validation at {p.next_validation}"
    yield (
        p.n_validations <= p.validated_step <= p.step,
        f"{p.n_validations} validations, the last at {p.validated_step}",
    )
    yield (p.n_validations == 0) == (p.validated_step == 0), f"a validation at step {p.validated_step}"
    yield p.best_step <= p.validated_step, f"the best validation at step {p.best_step}"
    yield (p.best_metric is None) == (p.best_step == 0), f"best metric {p.best_metric}"
    yield (p.best_loss is None) == (p.best_step == 0), f"best loss {p.best_loss}"
    yield p.best_metric is None or not math.isnan(p.best_metric), "a best metric that is no number"
    yield p.validations_since_best <= p.n_validations - (p.best_step > 0), "more validations than there were"
    yield p.seconds_validating <= p.seconds, "more time of validation than in all"
