"""Tiny models with random weights: four families, pre-norm and post-norm, each with other parts inside."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.helpers.small import config_of, data_of, random_run

from glassformer.data.splits import TextData
from glassformer.explain.explanation import Explanation, TraceRequest, explain
from glassformer.run import Run

Parts = tuple[str, dict[str, Any]]

MODELS: dict[str, Parts] = {
    "classify, pre-norm": ("classify", {"pre_norm": True}),
    "translate, pre-norm": (
        "translate",
        {"pre_norm": True, "n_layers": 2, "norm": "rms", "activation": "swiglu", "bias": False},
    ),
    "translate, post-norm": ("translate", {"pre_norm": False, "tie_embeddings": False, "n_layers": 1}),
    "lm, pre-norm": ("lm", {"pre_norm": True, "positions": "rotary", "activation": "swiglu", "max_ngram": 3}),
    "pretrain, pre-norm": ("pretrain", {"pre_norm": True}),
    "pretrain, post-norm": ("pretrain", {"pre_norm": False, "norm": "rms", "tie_embeddings": False}),
}
CLASSIFIER, TRANSLATOR, WRITER, MASKED = (f"{task}, pre-norm" for task in ("classify", "translate", "lm", "pretrain"))
SCREENS = ("flow", "step", "attention", "decode", "why", "compare", "learn")
TEXTS = {
    "classify": "a b good c a",
    "translate": "abcdefg",
    "lm": "abc d",
    "pretrain": "a b [MASK] c a",
    "embed": "a film was good",
    "tag": "a b good c",
    "regress": "a b good b a",
}

ANSWERS = {"classify": "good", "translate": "gfedcba", "lm": "abc", "pretrain": "b"}
"""Answers to learn for these texts."""


def subject_of(parts: Parts, data: TextData | None = None, max_len: int = 24, **text: Any) -> Run:
    """A run of these parts, as `glassformer.load` would give it, but of random weights."""
    name, model = parts
    config = config_of(name, word_mask_prob=0.1)
    small = {"n_layers": 2, "d_model": 16, "d_ff": 24, "dropout": 0.0}
    config = replace(
        config,
        model=replace(config.model, **(small | model)),
        text=replace(config.text, max_len=max_len, **text),
        decode=replace(config.decode, max_new_tokens=8),  # a random model never ends
    )
    return random_run(config, data or data_of(name), seed=1)


def explained(name: str, text: str = "", **fields: Any) -> Explanation:
    """What Python says of the text with which the page of a model opens, or of another one."""
    return explain(subject_of(MODELS[name]), TraceRequest(text or TEXTS[MODELS[name][0]], **fields))
