"""The folder of a trained model: what is needed to use it, and nothing of the training.

    model/  config.json  model.safetensors  tokenizer.json  README.md  manifest.json

The tokenizer belongs to the weights, so `config.json` holds its SHA-256. Building the model is `run.py`'s
business; this module makes sure that doing so is safe.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from glassformer.config import ModelConfig
from glassformer.errors import CheckpointError
from glassformer.files import finish_replacement, remove_leftovers
from glassformer.runs.folder import MODEL_CONFIG as CONFIG
from glassformer.runs.folder import MODEL_KIND as KIND
from glassformer.runs.folder import TOKENIZER
from glassformer.runs.sealed_folder import read_sealed_folder, update_sealed_folder, write_sealed_folder
from glassformer.runs.tensor_file import Weights, read_tensors, tensor_chunks
from glassformer.runs.values import Facts, parse_object

WEIGHTS, CARD = "model.safetensors", "README.md"
TOKENIZERS = (TOKENIZER, "target_tokenizer.json")
LayersOf = Mapping[str, Callable[[ModelConfig], int]]
"""By the name of a task: how many layers its models of some sizes have."""
MAX_LEN = 1 << 24
"""Longest context that is believed: positions are allocated for it and are not in the weights."""


def save_model(
    folder: Path, config: Facts, tensors: Weights, tokenizers: Mapping[str, bytes], card: str
) -> None:
    """Write the model folder; an earlier one is replaced whole, and stands if anything fails.

    Args:
        folder: where.
        config: JSON; its "model" and "text" sections are those of the run's configuration.
        tensors: the weights by name.
        tokenizers: contents of `tokenizer.json` (and `target_tokenizer.json`).
        card: the model card, in Markdown.

    Raises:
        ResourceError: the disk is full, or cannot be written.
    """
    whole = {**config, "tokenizer_files": _hashes(tokenizers)}
    text = json.dumps(whole, ensure_ascii=False, indent=2) + "\n"
    files = {CONFIG: [text.encode("utf-8")], WEIGHTS: tensor_chunks(tensors)}
    files |= {name: [data] for name, data in tokenizers.items()} | {CARD: [card.encode("utf-8")]}
    remove_leftovers(folder.parent, folder.name)
    write_sealed_folder(folder, KIND, files, replace=True)


def replace_card(folder: Path, card: str) -> None:
    """Give a sealed model another card; its weights are not written again.

    Raises:
        CheckpointError, ResourceError: see `update_sealed_folder`.
    """
    update_sealed_folder(folder, KIND, {CARD: [card.encode("utf-8")]})


def load_model_files(folder: Path, n_layers: LayersOf) -> tuple[Facts, Weights]:
    """The configuration and the weights of a model folder, after every check there is.

    Args:
        folder: what `save_model` wrote.
        n_layers: of each task there is, the layers of a model of given sizes.

    Raises:
        CheckpointError: a file is missing or damaged, the tokenizer is another model's, or the
            configuration describes a model larger than its weights.
    """
    finish_replacement(folder)
    files = read_sealed_folder(folder, KIND)
    missing = {CONFIG, WEIGHTS, TOKENIZERS[0]} - files.keys()
    unknown = files.keys() - {CONFIG, WEIGHTS, CARD, *TOKENIZERS}
    if missing or unknown:
        odd = min(missing or unknown)
        raise CheckpointError(f"{folder} should {'hold' if missing else 'not hold'} {odd}")
    config = parse_object(files[CONFIG], folder / CONFIG)
    tokenizers = {name: data for name, data in files.items() if name in TOKENIZERS}
    if config.pop("tokenizer_files", None) != _hashes(tokenizers):
        raise CheckpointError(
            f"the tokenizer in {folder} is not the one its weights were trained with",
            "copy model folders whole; their files cannot be exchanged",
        )
    weights = read_tensors(files[WEIGHTS], folder / WEIGHTS)
    _bound_sizes(config, n_layers, sum(t.numel() for t in weights.values()), folder / CONFIG)
    return config, weights


def _hashes(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def _bound_sizes(config: Facts, n_layers: LayersOf, n_weights: int, where: Path) -> None:
    """Refuse sizes that would have a model built, and memory taken, beyond the weights that came."""
    model, text, labels = config.get("model"), config.get("text"), config.get("label_names") or []
    if not isinstance(model, dict) or not isinstance(text, dict):
        raise CheckpointError(f"{where} should have the sections model and text")
    if not isinstance(labels, list):
        raise CheckpointError(f"{where}: label_names should be a list")
    if (task := str(config.get("task"))) not in n_layers:
        raise CheckpointError(f"{where}: there is no task {task!r}")

    def size(section: Facts, name: str, default: int | None = None) -> int:
        value = default if section.get(name) is None else section[name]
        if type(value) is not int or not 0 < value < 1 << 40:
            raise CheckpointError(f"{where}: {name} should be a positive size, not {value!r}")
        return value

    d_model, n_heads, encoder = (size(model, name) for name in ("d_model", "n_heads", "n_layers"))
    d_head = size(model, "d_head", max(1, d_model // n_heads))
    sizes = ModelConfig(n_layers=encoder, n_decoder_layers=size(model, "n_decoder_layers", encoder))
    # Every model has at least these: projections and feed-forward of each layer, one embedding, a head.
    layer = d_model * (4 * n_heads * d_head + 2 * size(model, "d_ff", 4 * d_model))
    rows = size(config, "vocab_size") + (len(labels) if len(labels) > 2 else 0)
    at_least = n_layers[task](sizes) * layer + rows * d_model
    if at_least > n_weights:
        raise CheckpointError(
            f"{where} describes a model of {at_least:,} weights or more, but {n_weights:,} are there"
        )
    if (longest := size(text, "max_len")) > MAX_LEN or longest * d_model > max(1 << 30, n_weights):
        raise CheckpointError(f"{where}: max_len {longest:,} is beyond any text")
