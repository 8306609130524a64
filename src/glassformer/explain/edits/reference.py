"""The means of steps over reference texts, the values of `=mean`: what a part writes on average, without this text.

The references are texts of the validation split, in the form of training: a translator reads the true translation, a
masked language model a text with masked tokens. The mean is over texts and their tokens, without padding, so that all
positions get one value. It is computed once per set of weights and kept with the run.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor, nn

from glassformer.data.splits import Split
from glassformer.errors import ChangedDataError, CheckpointError, DataError, ResourceError, UsageError
from glassformer.explain.capture.tape import Step
from glassformer.explain.subject import LoadedSubject, Subject
from glassformer.explain.trace import trace
from glassformer.runs.folder import RunFolder
from glassformer.runs.model_folder import read_tensors, tensor_chunks
from glassformer.runs.run_data import load_run_data
from glassformer.utils.atomic_io import atomic_write_chunks
from glassformer.utils.device import tuned
from glassformer.utils.safe_read import read_bytes

logger = logging.getLogger(__name__)

N_TEXTS = 128
"""Number of reference texts, spread evenly over the lengths that occur; the error of their mean is small enough."""
MAX_MEANS_BYTES = 1 << 28
"""Largest size of a file of means: a vector per step."""
Means = Mapping[str, Tensor]
T = TypeVar("T")


def means_of_run(subject: Subject, records: Mapping[str, Step]) -> Callable[[], Means]:
    """Return a function that returns the means of a run's steps: those kept with it, or computed now."""
    return cache(lambda: _kept_means(subject, records))


def _kept_means(subject: Subject, records: Mapping[str, Step]) -> Means:
    """Return the kept means."""
    path = RunFolder(subject.path).reference_means / f"{_sha256_of(subject.model)}.safetensors"
    if path.exists():
        try:
            return read_tensors(read_bytes(path, MAX_MEANS_BYTES), path)
        except CheckpointError as error:
            logger.warning(f"{error}; the means are computed again")
    allowed = _allows_changed_data(subject)
    try:
        read = load_run_data(subject.path, subject.task.schema, subject.task.config.data, allow_changed=allowed)
        split = read.text.valid
    except ChangedDataError:
        raise
    except (DataError, UsageError) as error:
        message = f"=mean averages over the validation texts of the run, which cannot be read: {error}"
        raise UsageError(message, "use =0, or =B with a second text") from error
    kept = "not kept, as the data has changed" if read.changed else "kept with the run"
    logger.info(f"averaging {min(len(split), N_TEXTS)} validation texts for =mean; the means are {kept}")
    means = reference_means(subject, split, records)
    if RunFolder(subject.path).model_folder is not None and not read.changed:
        try:
            RunFolder(subject.path).refuse_links(path.parent)
            path.parent.mkdir(exist_ok=True)
            atomic_write_chunks(path, tensor_chunks(means))
        except (OSError, UsageError, CheckpointError, ResourceError) as error:
            logger.warning(f"the means cannot be kept: {error}")
    return means


def _allows_changed_data(subject: Subject) -> bool:
    """Return whether the run of a subject, which may be a part of it, allows that its data has changed."""
    while isinstance(subject, LoadedSubject):
        subject = subject.base
    return bool(getattr(subject, "allow_changed_data", False))


def reference_means(subject: Subject, split: Split, records: Mapping[str, Step]) -> Means:
    """Return the mean of each step over texts and tokens, by id: its tensor without token axes.

    Steps over pairs of tokens, such as scores, have no mean, as their axes differ from text to text.
    """
    task, wanted = subject.task, {id for id, record in records.items() if has_mean(record)}
    totals: dict[str, Tensor] = {}  # without token axes
    counts: dict[str, int] = {}  # of tokens, or of texts for steps without tokens
    split = split.take(_spread(sorted(range(len(split)), key=lambda i: len(split.text[i])), N_TEXTS))
    with tuned(subject.device), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)  # for the masked tokens
        corpus = task.encode(split, training=False)
        plan = [row[None] for rows in task.eval_batches(corpus, 1) for row in rows]
        for row in _spread(plan, N_TEXTS):  # one text at a time, so that there is no padding
            with trace(subject.model, wanted.__contains__) as steps:
                task.logits(subject.model, task.make_batch(corpus, row).to(subject.device))
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


def _sha256_of(model: nn.Module) -> str:
    """Return the SHA-256 of the parameters of a model."""
    digest = hashlib.sha256()
    for chunk in tensor_chunks(dict(model.named_parameters())):
        digest.update(chunk)
    return digest.hexdigest()[:16]
