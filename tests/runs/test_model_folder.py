"""A model folder loads only as it was written, with its own tokenizer, and never takes more memory than its weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.helpers.hostile import peak_bytes
from torch import Tensor

from glassformer.config import ModelConfig, TextConfig
from glassformer.errors import CheckpointError
from glassformer.models import LanguageModel, TextClassifier, Translator
from glassformer.runs import sealed_folder
from glassformer.runs.folder import RunFolder
from glassformer.runs.model_folder import read_description, read_weights, save_model
from glassformer.tasks.restoring import load_model_folder
from glassformer.text.tokenizer import Tokenizer

MODEL = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_ff=16)
FACTS: dict[str, Any] = {
    "task": "classify",
    "label_names": ["neg", "pos"],
    "vocab_size": 20,
    "text": asdict(TextConfig(max_len=12)),
    "model": asdict(MODEL),
}
TOKENIZER = {"tokenizer.json": '{"model": "é"}'.encode()}


def weights(seed: int = 0) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return {name: p.detach() for name, p in TextClassifier(MODEL, 20, 2, 12).named_parameters()}


def save(folder: Path, facts: dict[str, Any] = FACTS, seed: int = 0) -> Path:
    save_model(folder, facts, weights(seed), TOKENIZER, f"# A model\n\nnumber {seed}")
    return folder


def load(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    return read_description(folder)[0], read_weights(folder)


def save_whole(folder: Path, facts: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    """Save a model with a tokenizer that can be read, as a run does."""
    tokenizer = Tokenizer.train(["abcdefghijklmno"], TextConfig(tokenizer="char", vocab_size=20))
    facts = {"recipe": "", "decode": {}, "precision": "fp32", "vocab_size": tokenizer.vocab_size} | facts
    save_model(folder, facts, tensors, {"tokenizer.json": tokenizer.to_json().encode()})
    return folder


def rewrite(folder: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    """Change the files and the manifest with them, as damage cannot but a hand can."""
    files = {p.name: p.read_bytes() for p in folder.iterdir() if p.name not in ("manifest.json", "README.md")}
    change(files)
    sealed_folder.write_sealed_folder(folder, "glassformer model", {name: [data] for name, data in files.items()})


def test_round_trip(tmp_path: Path) -> None:
    folder = save(tmp_path / "run" / "model")
    facts, loaded = load(folder)
    assert facts == FACTS
    assert loaded.keys() == weights().keys()
    assert all(torch.equal(loaded[name], w) for name, w in weights().items())
    assert (folder / "tokenizer.json").read_bytes() == TOKENIZER["tokenizer.json"]
    assert (folder / "README.md").read_text("utf-8").startswith("# A model")


# Tokenizer and model


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda files: files.pop("config.json"), r"should hold config\.json"),
        (lambda files: files.update({"model.pkl": b"cos\nsystem\n"}), r"should not hold model\.pkl"),
    ],
)
def test_other_files_than_a_model_has_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    folder = save(tmp_path / "model")
    rewrite(folder, change)
    with pytest.raises(CheckpointError, match=message):
        load(folder)


# Sizes are believed only as far as the weights go


def of_model(**values: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda c: c["model"].update(values)


SIZES = {"d_model": (1 << 30, 16, 10**40, 8.0, 5), "n_layers": (10**9, 1000, None), "n_heads": (10**9, 0)}
SIZES |= {"d_head": (10**9,), "d_ff": (10**9,), "ensemble_size": (100,)}
CONFIGURATIONS: dict[str, Callable[[dict[str, Any]], Any]] = (
    {f"{name} {value}": of_model(**{name: value}) for name, values in SIZES.items() for value in values}
    | {
        "all three": of_model(d_model=65536, n_layers=1000, ensemble_size=100),
        "positions": lambda c: c["text"].update(max_len=10**12),
        "no label_names": lambda c: c.pop("label_names"),
    }
    | {
        f"{name} {str(value)[:20]}": lambda c, name=name, value=value: c.update({name: value})
        for name, values in {
            "vocab_size": (1, 10**15),
            "task": ("other", "regress"),
            "model": (None,),
            "precision": ("float1",),
            "label_names": ([""] * 1000, ["pos", "pos"], [{}, {}], None),
            "recipe": (5,),
            "decode": ([],),
        }.items()
        for value in values
    }
)


@pytest.mark.parametrize("change", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_a_configuration_of_another_model_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    folder, before = save_whole(tmp_path / "model", FACTS, weights()), peak_bytes()

    def edit(files: dict[str, bytes]) -> None:
        config = json.loads(files["config.json"])
        change(config)
        files["config.json"] = json.dumps(config).encode("utf-8")

    rewrite(folder, edit)
    with pytest.raises(CheckpointError, match=r"config\.json|tokenizer"):
        load_model_folder(RunFolder(folder))
    assert peak_bytes() < before + (1 << 29)


@pytest.mark.parametrize(
    "options",
    [
        {"d_head": 16, "d_ff": 4, "n_layers": 3},
        {"d_head": 1, "bias": False, "norm": "rms", "activation": "swiglu", "pooling": "mean+max"},
        {"positions": "learned", "tie_embeddings": False},
    ],
    ids=str,
)
def test_every_honest_model_passes(tmp_path: Path, options: dict[str, Any]) -> None:
    config = ModelConfig(**dict[str, Any](n_layers=1, d_model=8, n_heads=2) | options)
    models = {"classify": TextClassifier(config, 20, 5, 12), "translate": Translator(config, 20, 13)}
    for task, model in (models | {"lm": LanguageModel(config, 20, 12)}).items():
        tensors = {name: p.detach() for name, p in model.named_parameters()}
        labels = list("abcde") if task == "classify" else None
        facts = FACTS | {"task": task, "model": asdict(config), "label_names": labels}
        restored, found = load_model_folder(RunFolder(save_whole(tmp_path / task, facts, tensors)))
        assert restored.config.model == config and found.keys() == tensors.keys()
