"""The folder of a trained model, and its tensors in the safetensors format, which can hold nothing but numbers.

Written here, because the format is a header and the bytes, so that a checkpoint is streamed and never
copied whole, and two names may share memory. Read by the safetensors library, whose parser is hardened.

    model/  config.json  model.safetensors  tokenizer.json  README.md  manifest.json

The tokenizer belongs to the weights, so `config.json` holds its SHA-256. `tasks/restoring.py` compares the weights with
the model that the configuration describes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

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
from glassformer.utils import safe_read
from glassformer.utils.atomic_io import finish_replacement, remove_leftovers
from glassformer.utils.safe_read import LIMITS

Weights = dict[str, Tensor]
"""Parameters by name."""

MAX_HEADER_BYTES = 16 << 20
"""A header takes about a hundred bytes a tensor."""

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


_WIDTHS = {name: dtype.itemsize for dtype, name in _NAMES.items()}
"""Bytes of a number of each type."""


def tensor_chunks(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a safetensors file: the header's length, the header, each tensor.

    Equal names and values always give equal bytes, whatever the order of insertion, the device and the memory layout.
    `metadata` are words that other libraries read.
    """
    # Widest numbers first, so that every tensor begins at a multiple of its own width.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name in order:
        tensor = tensors[name]
        start, end = end, end + tensor.numel() * tensor.element_size()
        dtype, shape = _NAMES[tensor.dtype], list(tensor.shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in order:
        # The format is little-endian, as is every machine torch is built for.
        flat = tensors[name].detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().data


def read_shapes(path: Path, max_bytes: int = LIMITS["weights"]) -> dict[str, tuple[int, ...]]:
    """Read the header of a safetensors file alone: the shape of each tensor.

    Raises:
        CheckpointError: it is no header, or describes other than the bytes that follow it.
    """
    with safe_read.open_regular(path, max_bytes) as file:
        size = os.fstat(file.fileno()).st_size
        n_header = int.from_bytes(file.read(8), "little")
        if size < 8 or n_header > min(size - 8, MAX_HEADER_BYTES):
            raise CheckpointError(f"{path} is not a safetensors file: its header does not fit")
        header = safe_read.parse_json(file.read(n_header), path)
    shapes: dict[str, tuple[int, ...]] = {}
    n_bytes = 0
    for name, facts in header.items() if isinstance(header, dict) else ():
        if name == "__metadata__":
            continue
        shape = facts.get("shape") if isinstance(facts, dict) else None
        width = _WIDTHS.get(str(facts.get("dtype"))) if isinstance(facts, dict) else None
        if width is None or not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
            raise CheckpointError(
                f"{path} is not a sound safetensors file: {name[:80]!r} has no shape or no known type"
            )
        shapes[name] = tuple(shape)
        n_bytes += width * math.prod(shape)
    if not isinstance(header, dict) or n_bytes != size - 8 - n_header:
        raise CheckpointError(f"{path} is not a sound safetensors file: its header describes {n_bytes:,} bytes")
    return shapes


def read_tensors(data: bytes, where: Path) -> dict[str, Tensor]:
    """Read the tensors in the bytes of a safetensors file.

    Raises:
        CheckpointError: the header is too large, or not one; `where` is named.
    """
    n_header = int.from_bytes(data[:8], "little")
    if len(data) < 8 or n_header > min(len(data) - 8, MAX_HEADER_BYTES):
        raise CheckpointError(f"{where} is not a safetensors file: its header does not fit")
    try:
        return safetensors.torch.load(data)
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise CheckpointError(f"{where} is not a sound safetensors file: {error}") from error


def shapes_of(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shape of each parameter; of a model on torch's "meta" device, which has no memory, too."""
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def check_shapes(expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]) -> None:
    """Raise a CheckpointError if the weights found are not those that are expected, by name and shape."""
    if odd := sorted(expected.keys() ^ found.keys()):
        message = f"{odd[0][:80]} (of {len(odd)} names) is in only one"
        raise CheckpointError(f"the weights are not this model's: {message}")
    for name, shape in expected.items():
        if shape != found[name]:
            raise CheckpointError(f"the weight {name} should have shape {shape}, not {found[name]}")


def load_weights(model: nn.Module, weights: Weights) -> None:
    """Copy named weights into a model, all of them or none.

    Raises:
        CheckpointError: a name or a shape does not match.
    """
    check_shapes(shapes_of(model), {name: tuple(tensor.shape) for name, tensor in weights.items()})
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


WEIGHTS, CARD = "model.safetensors", "README.md"
TOKENIZERS = (TOKENIZER, "target_tokenizer.json")
Shapes = Mapping[str, tuple[int, ...]]
"""Shape of each weight, by name."""


def save_model(
    folder: Path, config: JsonObject, tensors: Weights, tokenizers: Mapping[str, bytes], card: str | None = None
) -> None:
    """Write the model folder; an earlier one is replaced whole, and stands if anything fails.

    There is no card before there is a score: see `replace_card`.

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
