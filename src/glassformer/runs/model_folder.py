"""The folder of a trained model: what is needed to use it, and nothing of the training.

    model/  config.json  model.safetensors  tokenizer.json  README.md  manifest.json

The tokenizer belongs to the weights, so `config.json` holds its SHA-256. `tasks/restoring.py` compares the weights with
the model that the configuration describes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from glassformer.errors import CheckpointError
from glassformer.runs.folder import MODEL_CONFIG as CONFIG
from glassformer.runs.folder import MODEL_KIND, TOKENIZER
from glassformer.runs.records import JsonObject, parse_json_object
from glassformer.runs.sealed_folder import (
    check_sealed_file,
    read_manifest,
    read_sealed_file,
    update_sealed_folder,
    write_sealed_folder,
)
from glassformer.runs.tensor_file import Weights, read_shapes, read_tensors, tensor_chunks
from glassformer.utils.atomic_io import finish_replacement, remove_leftovers

WEIGHTS, CARD = "model.safetensors", "README.md"
TOKENIZERS = (TOKENIZER, "target_tokenizer.json")
Shapes = Mapping[str, tuple[int, ...]]
"""Shape of each weight, by name."""


def save_model(
    folder: Path, config: JsonObject, tensors: Weights, tokenizers: Mapping[str, bytes], card: str | None = None
) -> None:
    """Write the model folder; an earlier one is replaced whole, and stands if anything fails.

    Args:
        folder: where.
        config: JSON; its "model" and "text" sections are those of the run's configuration.
        tensors: the weights by name.
        tokenizers: contents of `tokenizer.json` (and `target_tokenizer.json`).
        card: the model card, in Markdown; None before there is a score (`replace_card`).

    Raises:
        ResourceError: the disk is full, or cannot be written.
    """
    full_config = {**config, "tokenizer_files": _hashes(tokenizers)}
    text = json.dumps(full_config, ensure_ascii=False, indent=2) + "\n"
    files = {CONFIG: [text.encode("utf-8")], WEIGHTS: tensor_chunks(tensors)}
    files |= {name: [data] for name, data in tokenizers.items()}
    if card is not None:
        files[CARD] = [card.encode("utf-8")]
    remove_leftovers(folder.parent, folder.name)
    write_sealed_folder(folder, MODEL_KIND, files, replace=True)


def replace_card(folder: Path, card: str) -> None:
    """Give a sealed model another card, as `update_sealed_folder` does: its weights are not written again."""
    update_sealed_folder(folder, MODEL_KIND, {CARD: [card.encode("utf-8")]})


def read_description(folder: Path) -> tuple[JsonObject, Shapes]:
    """Read the configuration that `save_model` wrote, and the shapes in the header of the weights.

    The weights are read when it is known that they are those of the model that the configuration describes, so that no
    file takes memory beyond that model's.

    Raises:
        CheckpointError: a file is missing or damaged, or the tokenizer is another model's.
    """
    finish_replacement(folder)
    entries = read_manifest(folder, MODEL_KIND)
    missing = {CONFIG, WEIGHTS, TOKENIZERS[0]} - entries.keys()
    unknown = entries.keys() - {CONFIG, WEIGHTS, CARD, *TOKENIZERS}
    if odd := missing or unknown:
        raise CheckpointError(f"{folder} should {'hold' if missing else 'not hold'} {min(odd)}")
    files = {name: read_sealed_file(folder, name, entry) for name, entry in entries.items() if name != WEIGHTS}
    config = parse_json_object(files[CONFIG], folder / CONFIG)
    tokenizers = {name: data for name, data in files.items() if name in TOKENIZERS}
    if config.pop("tokenizer_files", None) != _hashes(tokenizers):
        message = f"the tokenizer in {folder} is not the one its weights were trained with"
        raise CheckpointError(message, "copy model folders whole; their files cannot be exchanged")
    try:
        return config, read_shapes(folder / WEIGHTS)
    except CheckpointError:
        check_sealed_file(folder, WEIGHTS, entries[WEIGHTS])  # damage is named as such
        raise


def read_weights(folder: Path) -> Weights:
    """Read the weights; raise CheckpointError where they are damaged, or not finite."""
    weights = read_sealed_file(folder, WEIGHTS, read_manifest(folder, MODEL_KIND)[WEIGHTS])
    tensors = read_tensors(weights, folder / WEIGHTS)
    for name, tensor in tensors.items():
        if not bool(tensor.isfinite().all()):
            raise CheckpointError(f"{folder / WEIGHTS} holds NaN or infinity in {name}", "use an earlier checkpoint")
    return tensors


def _hashes(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
