"""Fold character n-grams into the embeddings of words, for an export whose inputs are token ids alone.

The n-grams of a word in the vocabulary are always the same, so their mean is added to the word's own embedding once and
for all. A word that is not in the vocabulary loses its spelling; what that costs is measured on the validation split.
"""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from glassformer.data.splits import Split
from glassformer.errors import ChangedDataError, DataError, UsageError
from glassformer.models import MaskedLanguageModel
from glassformer.models.encoder_models import TextEncoder
from glassformer.models.ensemble import members_of
from glassformer.nn.ngram_embeddings import NgramBatch
from glassformer.runs.run_data import load_run_data
from glassformer.tasks import Task
from glassformer.text.decision import Decision
from glassformer.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

MOST_UNSPACED = 0.01
"""Share of n-grams of scripts without spaces that may be lost: a stray character is in most collections of texts."""


@dataclass
class BakedRun:
    """A run without n-grams.

    Its tokenizer has no n-grams, and the embeddings of its model hold them. `note` is the score on the validation split
    before and after, or why there is none.
    """

    path: Path
    task: Task
    model: nn.Module
    note: str


def bake(path: Path, task: Task, model: nn.Module, allow_changed: bool = False) -> BakedRun:
    """Return a copy of a run whose words need no n-grams.

    Validation data that has changed since training is scored only with `allow_changed`.

    Raises:
        UsageError: it has no n-grams, or has what cannot be folded into embeddings of single words.
    """
    ngrams, text = task.tokenizer.ngrams, task.config.text
    if ngrams is None:
        raise UsageError("this model has no character n-grams to fold into words", "leave out --bake")
    if task.tokenizer.bigrams:
        message = f"pairs of words cannot be folded into words: text.bigrams {text.bigrams}"
        raise UsageError(message, "leave out --bake, or train with --text.bigrams 0")
    if (share := sum(ngrams.looks_ahead) / len(ngrams.ngrams)) > MOST_UNSPACED:
        message = (
            f"{share:.0%} of the n-grams are of a script without spaces: they depend on the next characters, and "
            "cannot be folded into words"
        )
        raise UsageError(message, "leave out --bake, or train with --text.ngrams 0")
    baked = copy.deepcopy(model).eval()
    table = word_ngrams(task.tokenizer)
    for member in members_of(baked):
        _fold(cast(TextEncoder, member), table)
    config = replace(task.config, text=replace(text, ngrams=0))
    if isinstance(members_of(baked)[0], MaskedLanguageModel):  # its projection keeps the embeddings as they were
        config = replace(config, model=replace(config.model, tie_embeddings=False))
        for member in members_of(baked):
            cast(Any, member).config = config.model
    without = type(task)(config, task.tokenizer.without_ngrams(), task.label_names)
    without.decision = task.decision
    try:
        valid = load_run_data(path, task.schema, task.config.data, allow_changed=allow_changed).text.valid
        note = _scores(task, model, without, baked, valid)
    except (DataError, UsageError) as error:
        if isinstance(error, ChangedDataError):
            logger.warning(f"{error.message}: what folding costs is not measured")
        note = f"n-grams were folded into words, and the validation split is not there to score that: {error.message}"
    return BakedRun(path, without, baked, note)


@torch.no_grad()
def in_units(model: nn.Module, decision: Decision) -> nn.Module:
    """Return a copy of a regressor, or of several, that gives numbers in the units of its data.

    Raises:
        UsageError: they are too large for float32.
    """
    model, (mean, sd) = copy.deepcopy(model), decision.scale
    for member in members_of(model):
        head = cast(nn.Linear, member.head)
        for p, shift in ((head.weight, 0.0), (head.bias, mean)):
            p.copy_(p.double() * sd + shift)
            if not p.isfinite().all():
                message = f"numbers of mean {mean:g} and standard deviation {sd:g} do not fit into float32"
                raise UsageError(message, "use --to onnx")
    return model


def word_ngrams(tokenizer: Tokenizer) -> torch.Tensor:
    """Return the n-grams of each token of a vocabulary, (V, G), zeros behind them."""
    assert tokenizer.ngrams is not None
    words = [f"<{word}>" for word in tokenizer.vocabulary()]
    rows = [tokenizer.ngrams.lookup(word) if i > tokenizer.mask_id else [] for i, word in enumerate(words)]
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])


@torch.no_grad()
def _fold(model: TextEncoder, table: torch.Tensor) -> None:
    """Add the n-grams to the embeddings of one model, in place."""
    assert model.ngrams is not None
    device = model.embedding.weight.device
    if isinstance(model, MaskedLanguageModel) and model.output is None:
        model.output = nn.Linear(*reversed(model.embedding.weight.shape), bias=False, device=device)
        model.output.weight.copy_(model.embedding.weight)
    index = torch.arange(len(table), device=device)[None]
    model.embedding.weight += model.ngrams(NgramBatch(index, table.to(device)))[0] / model.embedding.scale
    model.ngrams = None


def _scores(task: Task, model: nn.Module, without: Task, baked: nn.Module, valid: Split) -> str:
    """Return the metric on the validation split before and after."""
    scores = [
        one.validate(its, one.encode(valid, training=False), valid)[one.metric]
        for one, its in ((task, model), (without, baked))
    ]
    before, after = (f"{score:.4f}" for score in scores)
    return f"n-grams were folded into words: {task.metric} on the validation split was {before}, and is {after}"
