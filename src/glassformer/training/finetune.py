"""Fine-tuning: initialise a run with the tokenizer, the sizes and, by name, the weights of a trained one.

The tasks may differ: a classifier takes embedding and encoder of a pretrained model. Its head is copied
where classes and pooling are the same; else it begins randomly, or as a logistic regression (`fit_layer`).
From its first checkpoint on the new run is self-contained.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from glassformer.config import Config, ModelConfig
from glassformer.config.recipes import remaining_auto
from glassformer.errors import CheckpointError, UsageError
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.nn.layers import Stack
from glassformer.nn.ngram_embeddings import BigramEmbedding, NgramEmbedding, SegmentEmbedding
from glassformer.runs.folder import RunFolder, SeedsFolder
from glassformer.runs.model_folder import WEIGHTS, Weights
from glassformer.tasks import Task, task_class
from glassformer.tasks.restoring import load_model_folder
from glassformer.text.answers import Decision
from glassformer.utils.safe_read import sha256_regular

logger = logging.getLogger(__name__)


FREE_MODEL_SETTINGS = {"dropout", "embedding_dropout", "ngram_dropout", "pooling", "pooler", "ensemble_size"}
"""Model settings that may differ from the pretrained run's: they change no copied weight's shape or meaning."""
MODEL_SETTINGS = [f.name for f in fields(ModelConfig) if f.name not in FREE_MODEL_SETTINGS]
TEXT_SETTINGS = ["tokenizer", "vocab_size", "lowercase", "ngrams", "bigrams", "max_len"]
"""Settings of the tokenizer, and the maximum length, which has to match with learned positions."""
EMBEDDINGS = (TokenEmbedding, NgramEmbedding, BigramEmbedding, SegmentEmbedding)
_MEMBER = re.compile(r"^members\.\d+\.")
_HEAD = re.compile(r"^(members\.\d+\.)?head\.")
_BELOW_HEAD = re.compile(r"embedding|segments|\.layers\.")
"""Names of the parameters that a head reads from."""
POOLINGS = ("pooling", "pooler")
"""Model settings that a classifier takes from a classifier, or from a sentence encoder."""
TOKENS = {"train.word_mask_prob": "mask", "train.word_unknown_prob": "unk"}
"""Settings that put a special token into a text, and its role."""


@dataclass(frozen=True)
class PretrainedModel:
    """A trained model to initialise from; `sha256` is that of its weights file."""

    path: str
    task: Task
    weights: Weights
    sha256: str

    @property
    def imported(self) -> bool:
        """Return whether the weights, or those they were fine-tuned from, are of another library."""
        return self.task.tokenizer.special is not None

    def for_task(self, task: Task) -> PretrainedModel:
        """Return the model as a task begins from it: a classifier's head fits its own classes and its own pooling.

        The rows of the head are put in the order of the task's classes. It is left out, so that the new head is
        trained, where the classes or the pooling are others. That of a regressor is brought to the scale of the new
        numbers, and left out where one task has classes and the other numbers.
        """
        ours, theirs = task.label_names, self.task.label_names
        of_numbers = [one.decision.sd is not None for one in (task, self.task)]
        if (ours is None or theirs is None) and not any(of_numbers):
            return self
        models = task.config.model, self.task.config.model
        taken = all(getattr(models[0], name) == getattr(models[1], name) for name in POOLINGS)
        same = taken and task.name == self.task.name
        if not same or {*(ours or ())} != {*(theirs or ())}:
            return replace(self, weights={name: w for name, w in self.weights.items() if not _HEAD.match(name)})
        if ours is None or theirs is None:
            return replace(self, weights=in_scale(self.weights, self.task.decision, task.decision))
        order, weights = [theirs.index(name) for name in ours], dict(self.weights)
        for name in filter(_HEAD.match, self.weights):
            rows = weights[name]
            swapped = len(rows) == 1 and order != [0, 1]  # two classes share one row, the logit of the second
            weights[name] = -rows if swapped else rows if len(rows) == 1 else rows[order]
        return replace(self, weights=weights)


def in_scale(weights: Weights, theirs: Decision, ours: Decision) -> Weights:
    """Return a regressor's weights with a head that gives the same numbers by another mean and standard deviation."""
    (mean, sd), (our_mean, our_sd) = theirs.scale, ours.scale
    scaled = dict(weights)
    for name, weight in weights.items():
        if _HEAD.match(name):
            shift = (mean - our_mean) / our_sd if name.endswith("bias") else 0.0
            scaled[name] = (weight.double() * (sd / our_sd) + shift).to(weight.dtype)
    return scaled


def load_pretrained(path: str, expected: str | None = None) -> PretrainedModel:
    """Load the model of a run folder or of a model folder; of several seeds the best by validation.

    Raises:
        CheckpointError: it is missing or damaged, or has another SHA-256 than is `expected`.
    """
    folder = pretrained_folder(path)
    task, weights = load_model_folder(RunFolder(folder))
    sha256 = sha256_regular(folder / WEIGHTS)
    if expected not in (None, sha256):
        message = f"the weights in {path}, which this run was initialised from, have changed since"
        raise CheckpointError(message, "restore them, or start a new run")
    return PretrainedModel(path, task, weights, sha256)


def pretrained_folder(path: str) -> Path:
    """Return the model folder of a run, a model folder or, of several seeds, the best by validation."""
    run = SeedsFolder(path).best if SeedsFolder(path).exists else RunFolder(path)
    return run.require_model_folder()


def with_pretrained_settings(config: Config, path: str) -> Config:
    """Return a recipe's configuration with the sizes and text settings of the run at `path`; log those that change.

    They are no longer chosen automatically. Flags are applied afterwards; `check_compatible` rejects those that differ.
    For an imported model settings of the training change, too: `Task.imported_start`.
    """
    changes: dict[str, dict[str, Any]] = {"model": {}, "text": {}, "train": {}}
    pretrained = load_pretrained(path)
    for section, name, _, pretrained_value in _differences(config, pretrained):
        changes[section][name] = pretrained_value
    task_type = task_class(config.task)
    if task_type.pools and pretrained.task.pools:
        theirs = {name: getattr(pretrained.task.config.model, name) for name in POOLINGS}
        changes["model"] |= {name: value for name, value in theirs.items() if value != getattr(config.model, name)}
    if pretrained.imported:
        changes["train"] = dict(task_type.imported_start)
        lacking = (setting for setting, role in TOKENS.items() if pretrained.task.tokenizer.id_of(role) < 0)
        changes["train"] |= {setting.partition(".")[2]: 0.0 for setting in lacking if setting not in task_type.ignores}
    changed = [f"{section}.{name} {_format(v)}" for section, values in changes.items() for name, v in values.items()]
    if changed:
        logger.info(f"taken from {path}: {', '.join(changed)}")
    settled = {*MODEL_SETTINGS, *TEXT_SETTINGS, *changes["train"]}
    if pretrained.imported:  # members of an ensemble would begin with the same weights
        settled.add("ensemble_size")
    auto = (*remaining_auto(config, settled), *(("adversarial",) if pretrained.imported and task_type.pools else ()))
    sections = {section: replace(getattr(config, section), **values) for section, values in changes.items()}
    return replace(config, **sections, auto=auto)


def check_compatible(config: Config, pretrained: PretrainedModel) -> None:
    """Reject a configuration in which the pretrained weights would have another shape or meaning.

    Raises:
        UsageError: a size or a text setting differs; it is named. Or its tokenizer lacks a token that is needed.
    """
    for section, name, value, expected in _differences(config, pretrained):
        message = f"{section}.{name} must be {_format(expected)}, as in {pretrained.path}; got {_format(value)}"
        raise UsageError(message, "remove the setting: it is taken from the pretrained run")
    task_type, tokenizer = task_class(config.task), pretrained.task.tokenizer
    if tokenizer.separator and config.data.pair_column is None:
        hint = "name the column of the second text: --pair-column"
        raise UsageError(f"{pretrained.path} reads pairs of texts, and here each text stands alone", hint)
    lacks = f"the tokenizer of {pretrained.path} has no"
    for role in task_type.needs_tokens:
        if tokenizer.id_of(role) < 0:
            message = f"{lacks} {role} token, which the task {config.task} needs"
            raise UsageError(message, f"initialise from a run of {config.task}, or of a model that has one")
    for setting, role in TOKENS.items():
        name = setting.partition(".")[2]
        if getattr(config.train, name) and setting not in task_type.ignores and tokenizer.id_of(role) < 0:
            raise UsageError(f"{lacks} {role} token for {setting}", f"use --{name.replace('_', '-')} 0")


def copy_pretrained_weights(model: nn.Module, pretrained: PretrainedModel) -> list[str]:
    """Copy all weights of matching name and shape, to each ensemble member too; return the names of the others.

    Raises:
        UsageError: no weight matches.
    """
    params, weights, new = dict(model.named_parameters()), pretrained.weights, list[str]()
    for name, param in params.items():
        weight = weights.get(name, weights.get(_MEMBER.sub("", name)))
        if weight is not None and weight.shape == param.shape:
            with torch.no_grad():
                param.copy_(weight)
        else:
            new.append(name)
    if len(new) == len(params):
        message = f"{pretrained.path}, a run of the task {pretrained.task.name}, shares no weights with this model"
        if (n := pretrained.task.config.model.ensemble_size) > 1:
            raise UsageError(f"{message}: it is an ensemble of {n}", f"use --model.ensemble-size {n}")
        raise UsageError(message, "initialise from a run of the same task, or a classifier from a run of pretrain")
    return new


def log_start(model: nn.Module, pretrained: PretrainedModel, new: list[str]) -> None:
    """Log how many weights of a model are those of a pretrained one, and which are new.

    Warn if embeddings or layers are among these, as where the pretrained model is of another kind.
    """
    params = dict(model.named_parameters())
    n, rest = sum(p.numel() for name, p in params.items() if name not in new), ""
    if new:
        rest = f"; new: {', '.join(new[:4])}" + (f" and {len(new) - 4} more" if len(new) > 4 else "")
    copied = f"{len(params) - len(new)} of {len(params)} tensors, {n:,} weights"
    logger.info(f"initialised from {pretrained.path}: {copied}{rest}")
    if drawn := [name for name in new if is_below_head(name)]:
        what = f"{len(drawn)} tensors below the head begin at random, such as {drawn[0]}"
        source = f"{pretrained.path}, a {pretrained.task.report.model_name}, has none like them"
        logger.warning(f"{what}: {source}, and what it knows may be of little use")


def is_below_head(name: str) -> bool:
    """Return whether a parameter is of an embedding or a layer, and not of what answers from their output."""
    return _BELOW_HEAD.search(name) is not None


def freeze(model: nn.Module, n_layers: int) -> None:
    """Keep the weights of the first `n_layers` layers of each stack, and of the embeddings below them.

    If these are all layers of a stack, its final norm stays as well.
    """
    if not n_layers:
        return
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    kept: list[nn.Module] = [module for module in model.modules() if isinstance(module, EMBEDDINGS)]
    for stack in stacks:
        kept += [*stack.layers[:n_layers], *([stack.norm] if n_layers >= len(stack.layers) else [])]
    for module in kept:
        module.requires_grad_(False)
    n_trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    logger.info(f"frozen      embeddings and {n_layers} layers; {n_trained:,} parameters are trained")


def _differences(config: Config, pretrained: PretrainedModel) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield section, field, value and pretrained value of each setting that must match and differs."""
    theirs, ignored = pretrained.task.config, task_class(config.task).ignores | pretrained.task.ignores
    if theirs.model.positions != "learned":
        ignored |= {"text.max_len"}
    names = [*(("model", name) for name in MODEL_SETTINGS), *(("text", name) for name in TEXT_SETTINGS)]
    for section, name in names:
        value, pretrained_value = (getattr(getattr(c, section), name) for c in (config, theirs))
        if value != pretrained_value and f"{section}.{name}" not in ignored:
            yield section, name, value, pretrained_value


def _format(value: Any) -> str:
    return "not set" if value is None else str(value).lower()
