"""The folder of a trained model: what is needed to use it, and nothing of the training.

    model/  config.json  model.safetensors  tokenizer.json  README.md  manifest.json

The tokenizer belongs to the weights, so `config.json` holds its SHA-256. Building the model is `api.py`'s
business; this module makes sure that doing so is safe.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

from glassformer.config import ModelConfig, TextConfig
from glassformer.config.validation import build
from glassformer.errors import CheckpointError, UsageError
from glassformer.models.build import d_ff_of, d_head_of
from glassformer.runs.folder import MODEL_CONFIG as CONFIG
from glassformer.runs.folder import MODEL_KIND, TOKENIZER
from glassformer.runs.records import JsonObject, parse_json_object
from glassformer.runs.sealed_folder import (
    Entry,
    check_sealed_file,
    read_manifest,
    read_sealed_file,
    update_sealed_folder,
    write_sealed_folder,
)
from glassformer.runs.tensor_file import Weights, check_shapes, read_shapes, read_tensors, tensor_chunks
from glassformer.utils.atomic_io import finish_replacement, remove_leftovers

WEIGHTS, CARD = "model.safetensors", "README.md"
TOKENIZERS = (TOKENIZER, "target_tokenizer.json")
MAX_LAYERS = 4096
"""Most layers of all models of an ensemble: building one takes about a millisecond."""
MAX_POSITIONS = 1 << 25
"""Most numbers in tables of positions, which are computed and not in the weights, beyond the number of weights."""
Shapes = Mapping[str, tuple[int, ...]]
"""Shape of each weight, by name."""
LayersOf = Mapping[str, Callable[[ModelConfig], int]]
"""By the name of a task: how many layers its models of some sizes have."""


def save_model(folder: Path, config: JsonObject, tensors: Weights, tokenizers: Mapping[str, bytes], card: str) -> None:
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
    full_config = {**config, "tokenizer_files": _hashes(tokenizers)}
    text = json.dumps(full_config, ensure_ascii=False, indent=2) + "\n"
    files = {CONFIG: [text.encode("utf-8")], WEIGHTS: tensor_chunks(tensors)}
    files |= {name: [data] for name, data in tokenizers.items()} | {CARD: [card.encode("utf-8")]}
    remove_leftovers(folder.parent, folder.name)
    write_sealed_folder(folder, MODEL_KIND, files, replace=True)


def replace_card(folder: Path, card: str) -> None:
    """Give a sealed model another card, as `update_sealed_folder` does: its weights are not written again."""
    update_sealed_folder(folder, MODEL_KIND, {CARD: [card.encode("utf-8")]})


def load_model_files(
    folder: Path, n_layers: LayersOf, shapes: Callable[[JsonObject], Shapes] | None = None
) -> tuple[JsonObject, Weights]:
    """Load the configuration and the weights that `save_model` wrote, after all checks.

    Everything but the weights is read first, and of these only the header: they are read when it is known that they
    are the weights of the model that the configuration describes, so that no file takes memory beyond that model's.

    Args:
        folder: the model folder.
        n_layers: of each task.
        shapes: returns the shapes of the weights of the model that a configuration describes.

    Raises:
        CheckpointError: a file is missing or damaged, the tokenizer is another model's, or the
            configuration describes another model than its weights are of.
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
    found = _read_weights_shapes(folder, entries[WEIGHTS])
    _bound_sizes(config, n_layers, found, folder / CONFIG)
    if shapes is not None:
        check_shapes(shapes(config), found)
    weights = read_tensors(read_sealed_file(folder, WEIGHTS, entries[WEIGHTS]), folder / WEIGHTS)
    for name, tensor in weights.items():
        if not bool(tensor.isfinite().all()):
            raise CheckpointError(f"{folder / WEIGHTS} holds NaN or infinity in {name}", "use an earlier checkpoint")
    return config, weights


def _read_weights_shapes(folder: Path, entry: Entry) -> Shapes:
    """Return the shapes in the header of the weights, whose bytes are compared with the manifest's if it is unsound."""
    try:
        return read_shapes(folder / WEIGHTS)
    except CheckpointError:
        check_sealed_file(folder, WEIGHTS, entry)  # damage is named as such
        raise


def _hashes(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def _bound_sizes(config: JsonObject, n_layers: LayersOf, found: Shapes, where: Path) -> None:
    """Refuse sizes that would have a model built, and time or memory taken, beyond the weights that came."""
    n_weights = sum(map(math.prod, found.values()))
    labels, vocab_size, task = (config.get("label_names") or [], config.get("vocab_size"), str(config.get("task")))
    if not isinstance(labels, list):
        raise CheckpointError(f"{where}: label_names should be a list")
    if type(vocab_size) is not int or vocab_size < 1:
        raise CheckpointError(f"{where}: vocab_size should be a positive size, not {vocab_size!r}")
    if vocab_size > n_weights:
        raise CheckpointError(f"{where}: vocab_size {vocab_size:,} is beyond the {n_weights:,} weights that are there")
    if task not in n_layers:
        raise CheckpointError(f"{where}: there is no task {task!r}")
    try:
        c = build(ModelConfig, config.get("model"), "model", str(where))
        max_len = build(TextConfig, config.get("text"), "text", str(where)).max_len
    except UsageError as error:
        raise CheckpointError(error.message, error.hint) from error
    # Every model has at least these: projections and feed-forward of each layer, one embedding, a head.
    layer = c.d_model * (4 * c.n_heads * max(1, d_head_of(c)) + 2 * d_ff_of(c))
    if (n_modules := n_layers[task](c) * c.ensemble_size) > min(MAX_LAYERS, len(found)):
        raise CheckpointError(
            f"{where} describes a model of {n_modules:,} layers, but {len(found):,} tensors are there"
        )
    at_least = n_layers[task](c) * layer + (vocab_size + (len(labels) if len(labels) > 2 else 0)) * c.d_model
    if (at_least := at_least * c.ensemble_size) > n_weights:
        message = f"describes a model of {at_least:,} weights or more, but {n_weights:,} are there"
        raise CheckpointError(f"{where} {message}")
    # Positions are allocated for the longest text and are not in the weights.
    if max_len * c.d_model * c.ensemble_size > max(MAX_POSITIONS, n_weights):
        raise CheckpointError(f"{where}: max_len {max_len:,} is beyond any text")
