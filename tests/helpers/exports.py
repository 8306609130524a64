"""Models and runs of random weights, for tests of exports."""

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.browser.models import subject_of
from tests.helpers.small import data_of

from glassformer.config import Config, ModelConfig, TextConfig
from glassformer.data.splits import Split, TextData
from glassformer.errors import UsageError
from glassformer.interop.export_facts import choose
from glassformer.models import LanguageModel, Translator
from glassformer.models.ensemble import Ensemble
from glassformer.run import Run
from glassformer.runs import run_data
from glassformer.text.tokenizer import Tokenizer

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
PRETRAINED: list[dict[str, Any]] = [
    {"activation": "gelu-tanh", "positions": "learned", "norm_eps": 0.01, "embedding_init_std": 1.0},
    {"activation": "silu", "embedding_norm": True, "pre_norm": False, "tie_embeddings": False},
    {"activation": "swiglu", "norm": "rms", "positions": "rotary", "rope_base": 500.0, "norm_eps": 0.02, "bias": False},
    {"activation": "relu", "embedding_norm": True, "tie_embeddings": False, "positions": "none"},
]
"""Options that only models of others need."""


def random_model(kind: type[Translator] | type[LanguageModel], form: dict[str, Any]) -> Any:
    """Return a model in which norms and biases are random too, or mistakes would hide."""
    torch.manual_seed(0)
    model = kind(ModelConfig(**SIZE, **form), V, CONTEXT).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.5) if p.ndim > 1 else p.add_(0.3 * torch.randn_like(p))
    return model


KINDS: dict[str, Any] = {"language_model": LanguageModel, "translator": Translator}


def forms(most: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield forms that become each class of transformers, at most so many of each: kind, class, form."""
    found = Counter[str]()
    for kind, form in itertools.product(KINDS, [*SOME, *FORMS]):
        try:
            name = choose(kind, Config(model=ModelConfig(**SIZE, **form)), 1, "hf")[0]
        except UsageError:
            continue
        found[name] += 1
        if found[name] <= most:
            yield kind, name, form


def letters() -> Tokenizer:
    """Return a tokenizer of as many tokens as the random models have."""
    letters = "".join(chr(ord("A") + i) for i in range(V - 5))
    return Tokenizer.train([letters], TextConfig(tokenizer="char", vocab_size=V))


def run_of(task: str, monkeypatch: pytest.MonkeyPatch, text: dict[str, Any] | None = None, **form: Any) -> Run:
    """Return a run of random weights whose data is at hand; `text` are settings of the tokenizer."""
    data = word_data(task) if text else data_of(task)
    monkeypatch.setattr(run_data, "load_text_data", lambda *_: data)
    return subject_of((task, form), data, **(text or {}))


WORDS = {"tokenizer": "word", "vocab_size": 12, "ngrams": 60, "bigrams": 40}
"""A tokenizer of words with n-grams and bigrams, for `word_data`; some words are not in its vocabulary."""


def word_data(task: str) -> TextData:
    """Return texts whose words share n-grams."""
    words = np.array("refund refunds refunding funding fund good goods goodness badly bad the and".split())
    texts = [" ".join(np.random.default_rng(i).choice(words, 3 + i % 7)) for i in range(60)]
    labels: list[str] | None = ["good" if "good" in text else "bad" for text in texts]
    if task != "classify":
        labels = [text[::-1] for text in texts] if task == "translate" else None
    parts = (slice(0, 36), slice(36, 48), slice(48, 60))
    splits = [Split(texts[part], labels and labels[part], "words") for part in parts]
    return TextData(*splits)


def printed_by_card(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run the Python lines of the card of an exported folder, as they stand there, and return what they print."""
    card = (folder / "README.md").read_text("utf-8")
    code = card.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(folder)
    capsys.readouterr()
    exec(compile(code, "README.md", "exec"), {})
    return capsys.readouterr().out.strip()


def ensemble_of(run: Run) -> Run:
    """Return a run of two models, of which the second is another one."""
    other = deepcopy(run.model)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return Run(run.path, run.task, Ensemble([run.model, other]).eval(), run.device)


TEXTS = ["abcdefg", "", "  ", "gfe", "a" * 60, "日本", "[PAD] [EOS]"]
