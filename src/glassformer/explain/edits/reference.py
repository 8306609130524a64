"""The means of steps over reference texts, the values of `=mean`: what a part writes on average, without this text.

The references are texts of the validation split, in the form of training: a translator reads the true translation, a
masked language model a text with masked tokens. The mean is over texts and their tokens, without padding, so that all
positions get one value. Of several labels or words the whole model reads the texts, so that only steps before its head
have a mean.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from glassformer.data.splits import Split
from glassformer.errors import ChangedDataError, DataError, UsageError
from glassformer.explain.capture.tape import Step
from glassformer.explain.subject import View
from glassformer.explain.trace import trace
from glassformer.runs.run_data import load_run_data
from glassformer.tasks import Task
from glassformer.utils.device import tuned

logger = logging.getLogger(__name__)

N_TEXTS = 128
"""Number of reference texts, spread evenly over the lengths that occur; the error of their mean is small enough."""
Means = Mapping[str, Tensor]
T = TypeVar("T")
_known: WeakKeyDictionary[nn.Module, Means] = WeakKeyDictionary()


def means_of_run(view: View, records: Mapping[str, Step]) -> Callable[[], Means]:
    """Return a function that returns the means of a run's steps, which are computed once for each model."""

    def means() -> Means:
        if view.whole not in _known:
            _known[view.whole] = _means(view, records)
        return _known[view.whole]

    return means


def _means(view: View, records: Mapping[str, Step]) -> Means:
    run = view.run
    allowed = bool(getattr(run, "allow_changed_data", False))
    try:
        split = load_run_data(run.path, run.task.schema, run.task.config.data, allow_changed=allowed).valid
    except ChangedDataError:
        raise
    except (DataError, UsageError) as error:
        message = f"=mean averages over the validation texts of the run, which cannot be read: {error}"
        raise UsageError(message, "use =0, or =B with a second text") from error
    logger.info(f"averaging {min(len(split), N_TEXTS)} validation texts for =mean")
    return reference_means(run.task, view.whole, split, records)


def reference_means(task: Task, model: nn.Module, split: Split, records: Mapping[str, Step]) -> Means:
    """Return the mean of each step over texts and tokens, by id: its tensor without token axes.

    Steps over pairs of tokens, such as scores, have no mean, as their axes differ from text to text.
    """
    wanted = {id for id, record in records.items() if has_mean(record)}
    device = next(model.parameters()).device
    totals: dict[str, Tensor] = {}  # without token axes
    counts: dict[str, int] = {}  # of tokens, or of texts for steps without tokens
    split = split.take(_spread(sorted(range(len(split)), key=lambda i: len(split.text[i])), N_TEXTS))
    with tuned(device), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)  # for the masked tokens
        corpus = task.encode(split, training=False)
        plan = [row[None] for rows in task.eval_batches(corpus, 1) for row in rows]
        for row in _spread(plan, N_TEXTS):  # one text at a time, so that there is no padding
            with trace(model, wanted.__contains__) as steps:
                task.logits(model, task.make_batch(corpus, row).to(device))
            for id, step in steps.items():
                tokens = [i for i, axis in enumerate(step.axes) if axis.name == "token"]
                total = step.value.double().sum(dim=tokens) if tokens else step.value.double()
                totals[id] = totals[id] + total if id in totals else total
                counts[id] = counts.get(id, 0) + (step.shape[tokens[0]] if tokens else 1)
    return {id: (total / counts[id]).float() for id, total in totals.items()}


def has_mean(record: Step) -> bool:
    """Return True if a mean over texts can replace a step: it can be edited, and has no axis of keys."""
    names = [axis.name for axis in record.axes]
    return record.editable and record.value.is_floating_point() and "key" not in names


def _spread(items: Sequence[T], n: int) -> list[T]:
    """Return at most n items, evenly spaced."""
    return [items[i * len(items) // n] for i in range(n)] if len(items) > n else list(items)
