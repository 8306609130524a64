"""Models and runs of random weights, for tests of exports."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch
from tests.browser.models import subject_of
from tests.helpers.small import data_of

from glassformer.api import Run
from glassformer.config import ModelConfig
from glassformer.interop import check as checking
from glassformer.models import LanguageModel, Translator

SIZE, V, CONTEXT = {"n_layers": 2, "d_model": 16, "n_heads": 4, "d_ff": 24, "dropout": 0.0}, 50, 20
TOKENS = ["[PAD]", "[UNK]", "[BOS]", "[EOS]", "[MASK]", *(f"t{i}" for i in range(V - 5))]
OPTIONS: dict[str, tuple[Any, ...]] = {
    "pre_norm": (True, False),
    "positions": ("sinusoidal", "learned", "rotary", "none"),
    "activation": ("relu", "gelu", "swiglu"),
    "norm": ("layer", "rms"),
    "bias": (True, False),
    "tie_embeddings": (True, False),
    "embedding_init_std": (None, 0.05),
    "d_head": (None, 6),
}
FORMS = [dict(zip(OPTIONS, values, strict=True)) for values in itertools.product(*OPTIONS.values())]
SOME = random.Random(0).sample(FORMS, 40)


def random_model(kind: type[Translator] | type[LanguageModel], form: dict[str, Any]) -> Any:
    """Return a model in which norms and biases are random too, or mistakes would hide."""
    torch.manual_seed(0)
    model = kind(ModelConfig(**SIZE, **form), V, CONTEXT).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.5) if p.ndim > 1 else p.add_(0.3 * torch.randn_like(p))
    return model


def run_of(task: str, monkeypatch: pytest.MonkeyPatch, **form: Any) -> Run:
    """Return a run of random weights whose data is at hand."""
    monkeypatch.setattr(checking, "load_text_data", lambda *_: data_of(task))
    return subject_of((task, form))


TEXTS = ["abcdefg", "", "  ", "gfe", "a" * 60, "日本", "[PAD] [EOS]"]
