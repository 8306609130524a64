"""Which library holds which model: pure functions of the settings of a model, without loading anything.

The tables follow the model definitions of the other libraries: CTranslate2's `specs/transformer_spec.py`, and the
`modeling_*.py` of Hugging Face's transformers.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Literal, NamedTuple, TypeAlias, get_args

from glassformer.config import Config, ModelConfig
from glassformer.errors import UsageError
from glassformer.interop.export_facts import FILES
from glassformer.interop.hf_settings import CLASSES, FORMS, POOLERS

Target: TypeAlias = Literal["ctranslate2", "hf", "onnx"]
TARGETS: tuple[Target, ...] = get_args(Target)
WRITERS = ("translator", "language_model")
"""Kinds of models that write texts."""
_SAMPLED = "sampled texts differ, since the random numbers do"
_BEAM = "beam search there ends by another rule, so some translations and n-best lists differ; greedy ones do not"
_CUT = "a text longer than the context needs truncation=True there, which cuts its end"


class Choice(NamedTuple):
    """What a model becomes in another library.

    Attributes:
        architecture: the name of the model class there.
        notes: what differs there, one sentence each.
    """

    architecture: str
    notes: tuple[str, ...] = ()


def choose(kind: str | None, config: Config, n_members: int, target: Target) -> Choice:
    """Return what a model becomes in the library `target`.

    `kind` is `Task.explain_as`; `n_members` is 1, or all of an ensemble.

    Raises:
        UsageError: it cannot hold the model; the setting is named.
    """
    m, words = config.model, str(kind).replace("_", " ")
    if kind is None:
        raise UsageError(f"{target} holds no model of the task {config.task!r}")
    hint = "use --to onnx" if ("onnx", kind) in FILES else "use --to ctranslate2"
    if m.max_ngram > 1 and kind == "language_model":
        raise UsageError(f"no library has embeddings of token n-grams: model.max_ngram {m.max_ngram}", "use the run")
    if (target, kind) not in FILES:
        raise UsageError(f"{target} holds no {words}", hint)
    if n_members > 1 and (target == "hf" or kind in WRITERS):
        what = f"{target} holds one model, and this is an ensemble of {n_members}"
        raise UsageError(what, "export one of them: --member 0")
    if target == "onnx":
        return Choice("one graph")
    is_lm, imported = kind == "language_model", config.text.tokenizer == "imported"
    if target == "ctranslate2":
        return Choice("TransformerDecoderModel", (_SAMPLED,)) if is_lm else Choice("Transformer", (_BEAM,))
    family, obstacle = hf_family(kind, m)
    if not obstacle and not is_lm and imported == (kind == "translator"):
        obstacle = f"text.tokenizer {config.text.tokenizer}"
    if obstacle:
        raise UsageError(f"transformers has no class for this {words}: {obstacle}", hint)
    notes = {"translator": (_BEAM,), "language_model": (_SAMPLED,)}.get(kind, (_CUT,))
    return Choice(CLASSES_OF[family, kind.removeprefix("multilabel_")], notes)


CLASSES_OF = {its: name for name, its in reversed(CLASSES.items())}
"""The class of each family and kind of model; of several the first."""


def hf_family(kind: str, m: ModelConfig) -> tuple[str, str]:
    """Return the family of transformers that computes the same, and the first setting in the way, or ""."""
    values = {one.name: getattr(m, one.name) for one in fields(m)}
    values["d_head"] = None if m.d_head is None or m.d_head * m.n_heads == m.d_model else m.d_head
    found = dict[str, list[str]]()
    for family, needs in FORMS.items():
        if (family, kind.removeprefix("multilabel_")) not in CLASSES_OF:
            continue
        if kind.endswith("classifier"):
            needs = needs | {"pooling": ("first",), "pooler": (POOLERS[family],)}
        if kind == "masked_language_model":
            needs = needs | {"activation": ("gelu",)}
        odd = ["embedding_init_std"] if kind not in WRITERS and m.embedding_init_std is None else []
        found[family] = [name for name, allowed in needs.items() if values[name] not in allowed] + odd
    family = min(found, key=lambda one: len(found[one]))
    return family, "".join(f"model.{name} {str(values[name]).lower()}" for name in found[family][:1])
