"""Train a small Transformer on your own text, then look at every number inside it.

    import glassformer

    run = glassformer.train("dates", out="runs/dates", minutes=1)
    run.predict("[en_US] March 5, 2021")
    run.evaluate()

Every public name is loaded when it is first used (PEP 562), so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glassformer import errors as errors
    from glassformer.api import dry_run as dry_run
    from glassformer.api import import_model as import_model
    from glassformer.api import load as load
    from glassformer.api import overfit_batch as overfit_batch
    from glassformer.api import resume as resume
    from glassformer.api import train as train
    from glassformer.config import Config as Config
    from glassformer.config.recipes import load_recipe as load_recipe
    from glassformer.explain.trace import trace as trace
    from glassformer.models.decoder_models import LanguageModel as LanguageModel
    from glassformer.models.decoder_models import Translator as Translator
    from glassformer.models.encoder_models import TextClassifier as TextClassifier
    from glassformer.nn.attention import MultiHeadAttention as MultiHeadAttention
    from glassformer.nn.attention import attention as attention
    from glassformer.run import Run as Run
    from glassformer.text.tokenizer import Tokenizer as Tokenizer

__version__ = "0.1.0"

_MODULES = {
    "api": ("dry_run", "import_model", "load", "overfit_batch", "resume", "train"),
    "config": ("Config",),
    "config.recipes": ("load_recipe",),
    "explain.trace": ("trace",),
    "models.decoder_models": ("LanguageModel", "Translator"),
    "models.encoder_models": ("TextClassifier",),
    "nn.attention": ("MultiHeadAttention", "attention"),
    "run": ("Run",),
    "text.tokenizer": ("Tokenizer",),
}
"""The public names of each module; `errors` is a module itself."""
_HOMES = {"errors": ""} | {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'glassformer' has no attribute {name!r}")
    home = _HOMES[name]
    value = getattr(import_module(f"glassformer.{home}"), name) if home else import_module(f"glassformer.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__]
