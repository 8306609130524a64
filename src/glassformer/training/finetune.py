"""Beginning from a run that was trained before (fine-tuning): its tokenizer, its sizes, and its weights by name.

The other run may be of another task: a classifier takes embedding and encoder of a pretrained model and draws its head
anew. Afterwards the new run needs the other one no more; only before its first checkpoint does it read it again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import nn

from glassformer.config import Config, ModelConfig
from glassformer.config.recipes import config_from_dict, remaining_auto
from glassformer.errors import CheckpointError, UsageError
from glassformer.runs.folder import RunFolder
from glassformer.runs.model_folder import WEIGHTS, load_model_files
from glassformer.runs.tensor_file import Weights
from glassformer.tasks import TASKS, task_class
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils import console

FREE = frozenset("dropout embedding_dropout ngram_dropout pooling members zero_init".split())
"""What of a model may differ from the one it begins from: no weight that is copied is shaped by it or meant for it."""
TEXT = ("tokenizer", "vocab_size", "lowercase", "ngrams", "bigrams", "max_len")
"""What of the text goes with the tokenizer, and the longest text, which goes with learned positions."""
SIZES = frozenset(TEXT) | {f.name for f in fields(ModelConfig)} - FREE
"""What no rule finds where a run begins from another."""
_MEMBER = re.compile(r"^members\.\d+\.")


@dataclass(frozen=True)
class Base:
    """A trained model to begin from: where it is, what it is, and the SHA-256 of its file of weights."""

    path: str
    config: Config
    tokenizer: Tokenizer
    weights: Weights
    sha256: str


def read_base(path: str) -> Base:
    """The model of a run folder, or of a model folder.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    folder = RunFolder(path).trained_model()
    facts, weights = load_model_files(folder, {name: kind.n_layers for name, kind in TASKS.items()})
    kept = {name: facts[name] for name in ("task", "text", "model")}
    config = config_from_dict(kept, f"the configuration in {folder}")
    with open(folder / WEIGHTS, "rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return Base(path, config, RunFolder(folder).read_tokenizer(), weights, sha256)


def with_sizes_of(config: Config, path: str) -> Config:
    """A recipe's configuration with the sizes and the text settings of the run at `path`; says which ones change.

    No rule finds a setting of the text any more: the tokenizer is there already.

    What a person names comes after this, over it, and `check_base` refuses what then does not fit.
    """
    base = read_base(path)
    changes: dict[str, dict[str, Any]] = {"model": {}, "text": {}}
    told = []
    for section, name, _, theirs in _differences(config, base.config):
        changes[section][name] = theirs
        told.append(f"{section}.{name} {_written(theirs)}")
    if told:
        console.say(f"taken over from {path}: {', '.join(told)}")
    model, text = replace(config.model, **changes["model"]), replace(config.text, **changes["text"])
    return replace(config, model=model, text=text, auto=remaining_auto(config, SIZES))


def check_base(config: Config, base: Base) -> None:
    """Refuse a configuration of which the base's weights would mean something else.

    Raises:
        UsageError: a size or a setting of the text differs; it is named.
    """
    for section, name, ours, theirs in _differences(config, base.config):
        told = (
            f"{section}.{name} is {_written(ours)}, and {_written(theirs)} in {base.path}, which this run begins from"
        )
        raise UsageError(told, "leave it out: it is taken over from there")


def load_base(model: nn.Module, base: Base) -> None:
    """Copy all weights that agree in name and shape, and say how many; the others stay as they were drawn.

    Each member of an ensemble begins from the one model that a base is.

    Raises:
        UsageError: there are none.
    """
    own = dict(model.named_parameters())
    there = {name: base.weights.get(name, base.weights.get(_MEMBER.sub("", name))) for name in own}
    same = {name: w for name, w in there.items() if w is not None and w.shape == own[name].shape}
    if not same:
        told = f"{base.path}, a run to {base.config.task}, shares no weights with this model"
        raise UsageError(told, "begin from a run of the same task, or classify from one to pretrain")
    with torch.no_grad():
        for name, weight in same.items():
            own[name].copy_(weight)
    new = [name for name in own if name not in same]
    n, rest = sum(own[name].numel() for name in same), f"; new: {', '.join(new[:4])}" if new else ""
    more = f" and {len(new) - 4} more" if len(new) > 4 else ""
    console.say(f"begins from {base.path}: {len(same)} of {len(own)} tensors, {n:,} weights{rest}{more}")


def recorded_base(path: str, sha256: str) -> Base:
    """The base of a run that has no checkpoint yet, as it was when that run began.

    Raises:
        CheckpointError: it is missing, or another by now.
    """
    base = read_base(path)
    if base.sha256 != sha256:
        told = f"the weights in {path}, which this run began from, have changed since"
        raise CheckpointError(told, "restore them, or start a new run")
    return base


def _differences(config: Config, base: Config) -> Iterator[tuple[str, str, Any, Any]]:
    """(section, field, ours, theirs) of all that must agree, where both tasks have a use for it, and does not."""
    ignored = task_class(config.task).ignores | task_class(base.task).ignores
    if base.model.positions != "learned":
        ignored |= {"text.max_len"}
    names = [("model", f.name) for f in fields(ModelConfig) if f.name not in FREE]
    for section, name in [*names, *(("text", name) for name in TEXT)]:
        ours, theirs = (getattr(getattr(c, section), name) for c in (config, base))
        if ours != theirs and f"{section}.{name}" not in ignored:
            yield section, name, ours, theirs


def _written(value: Any) -> str:
    """A setting as a recipe spells it."""
    return "not set" if value is None else str(value).lower()
