"""Train a small Transformer on your own text, then look at every number inside it.

    import glassformer

    run = glassformer.train("dates", out="runs/dates", minutes=1)
    run.predict(["[en_US] March 5, 2021"])
    run.evaluate()

Every public name is loaded when it is first used (PEP 562), so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glassformer import errors
    from glassformer.api import Run, load, resume, train  # `load` is that of `loading`; here it is typed as for runs
    from glassformer.config import Config
    from glassformer.config.recipes import load_recipe
    from glassformer.explain.trace import trace
    from glassformer.models.classifier import TextClassifier
    from glassformer.models.language_model import LanguageModel
    from glassformer.models.translator import Translator
    from glassformer.nn.attention import MultiHeadAttention, attention
    from glassformer.text.tokenizer import Tokenizer

__version__ = "0.1.0"

__all__ = [
    "Config",
    "LanguageModel",
    "MultiHeadAttention",
    "Run",
    "TextClassifier",
    "Tokenizer",
    "Translator",
    "attention",
    "errors",
    "load",
    "load_recipe",
    "resume",
    "trace",
    "train",
]

_HOMES = {
    "Config": "config",
    "LanguageModel": "models.language_model",
    "MultiHeadAttention": "nn.attention",
    "Run": "api",
    "TextClassifier": "models.classifier",
    "Tokenizer": "text.tokenizer",
    "Translator": "models.translator",
    "attention": "nn.attention",
    "load": "loading",
    "load_recipe": "config.recipes",
    "resume": "api",
    "trace": "explain.trace",
    "train": "api",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("glassformer.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'glassformer' has no attribute {name!r}")
    value = getattr(import_module(f"glassformer.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
