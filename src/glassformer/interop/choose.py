"""Decide what a model becomes in another library, or say in one sentence why it cannot.

Pure functions of the settings of a model: nothing is loaded. The tables follow the model definitions of the other
libraries: CTranslate2's `specs/transformer_spec.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from glassformer.config import ModelConfig
from glassformer.errors import UsageError

Target: TypeAlias = Literal["ctranslate2"]
TARGETS: tuple[Target, ...] = get_args(Target)
KINDS_OF: dict[Target, tuple[str, ...]] = {"ctranslate2": ("translator", "language_model")}
"""The kinds of models that a target can hold."""


@dataclass(frozen=True)
class Choice:
    """What a model becomes in another library.

    Attributes:
        architecture: the name of the model class there.
        notes: what differs there, one sentence each; the logits agree up to rounding.
    """

    architecture: str
    notes: tuple[str, ...] = ()


def choose(kind: str | None, model: ModelConfig, n_members: int, target: Target) -> Choice:
    """Return what a model becomes in the library `target`.

    Args:
        kind: the kind of model, `Task.explain_as`.
        model: the settings of the model.
        n_members: the number of models to export: 1, or all of an ensemble.
        target: the library.

    Raises:
        UsageError: it cannot hold the model; the setting is named.
    """
    if kind not in KINDS_OF[target]:
        message = f"{target} holds no {_words(str(kind))}"
        raise UsageError(message, f"it holds a {' or a '.join(map(_words, KINDS_OF[target]))}")
    if n_members > 1:
        hint = "export one of them: --member 1"
        raise UsageError(f"{target} holds one model, and this is an ensemble of {n_members}", hint)
    if model.max_ngram > 1:
        message = f"{target} has no embeddings of token n-grams, and this model has: model.max_ngram {model.max_ngram}"
        raise UsageError(message, "train with --model.max-ngram 0")
    if kind == "language_model":
        return Choice("TransformerDecoderModel", ("sampled texts differ, since the random numbers do",))
    cut = "a beam search that ends at the limit of length may keep another hypothesis, and n-best lists may differ"
    return Choice("Transformer", (cut,))


def _words(kind: str) -> str:
    return kind.replace("_", " ")
