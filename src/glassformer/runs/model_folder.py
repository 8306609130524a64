"""The folder of a trained model, and its tensors in the safetensors format, which can hold nothing but numbers.

    model/  config.json  model.safetensors  tokenizer.json  README.md  manifest.json

The manifest ties the tokenizer to the weights; the card is for people, and no part of what is sealed.
`tasks/restoring.py` compares the weights with the model that the configuration describes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from glassformer.errors import CheckpointError
from glassformer.runs.folder import MODEL_CONFIG as CONFIG
from glassformer.runs.folder import MODEL_KIND, TOKENIZER
from glassformer.runs.records import JsonObject
from glassformer.runs.sealed_folder import read_manifest, read_sealed_file, write_sealed_folder
from glassformer.utils import safe_read
from glassformer.utils.atomic_io import atomic_write_text, remove_leftovers
from glassformer.utils.safe_read import LIMITS, parse_json

Weights = dict[str, Tensor]
"""Parameters by name."""


def tensor_chunks(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> list[bytes]:
    """Return the bytes of a safetensors file, as chunks of a file to write; `metadata` are words for other libraries.

    Equal names and values always give equal bytes, whatever the order of insertion, the device and the memory layout;
    two names may share memory.
    """
    copies = {name: x.detach().cpu().clone(memory_format=torch.contiguous_format) for name, x in tensors.items()}
    return [safetensors.torch.save(copies, metadata)]


def read_shapes(path: Path, max_bytes: int = LIMITS["weights"]) -> dict[str, tuple[int, ...]]:
    """Read the header of a safetensors file alone: the shape of each tensor.

    Raises:
        CheckpointError: it is no header, or describes other than the bytes that follow it.
    """
    safe_read.check_regular(path, max_bytes)
    with _sound(path), safetensors.safe_open(path, "pt") as opened:
        return {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118


def read_tensors(data: bytes, where: Path) -> dict[str, Tensor]:
    """Read the tensors in the bytes of a safetensors file.

    Raises:
        CheckpointError: it is none; `where` is named.
    """
    with _sound(where):
        return safetensors.torch.load(data)


@contextmanager
def _sound(where: Path) -> Iterator[None]:
    """Raise what the parser finds as a CheckpointError that names the file."""
    try:
        yield
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
        message = f"{where} is not a sound safetensors file: {error}"
        raise CheckpointError(message, "restore it from a copy") from error


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
FILES = (CONFIG, TOKENIZER, WEIGHTS)
Shapes = Mapping[str, tuple[int, ...]]
"""Shape of each weight, by name."""


def save_model(
    folder: Path, config: JsonObject, tensors: Weights, tokenizers: Mapping[str, bytes], card: str = ""
) -> None:
    """Write the model folder, and the card beside its sealed files; an earlier folder is replaced whole.

    Raises:
        ResourceError: the disk is full, or cannot be written.
    """
    text = json.dumps(config, ensure_ascii=False, indent=2) + "\n"
    files = {CONFIG: [text.encode("utf-8")], WEIGHTS: tensor_chunks(tensors)}
    remove_leftovers(folder.parent, folder.name)
    write_sealed_folder(folder, MODEL_KIND, files | {name: [data] for name, data in tokenizers.items()})
    if card:
        atomic_write_text(folder / CARD, card)


def read_description(folder: Path) -> tuple[JsonObject, Shapes]:
    """Read the configuration that `save_model` wrote, and the shapes in the header of the weights.

    The weights are read when it is known that they are those of the model that the configuration describes, so that no
    file takes memory beyond that model's.

    Raises:
        CheckpointError: a file is missing or damaged.
    """
    sums = read_manifest(folder, MODEL_KIND)
    if odd := sorted(sums.keys() ^ {*FILES}):
        raise CheckpointError(f"{folder} should {'hold' if odd[0] in FILES else 'not hold'} {odd[0]}")
    config, _ = [read_sealed_file(folder / name, sums[name]) for name in (CONFIG, TOKENIZER)]
    return parse_json(config, folder / CONFIG, kind=JsonObject), read_shapes(folder / WEIGHTS)


def read_weights(folder: Path) -> Weights:
    """Read the weights; raise CheckpointError where they are damaged, or not finite."""
    path = folder / WEIGHTS
    tensors = read_tensors(read_sealed_file(path, read_manifest(folder, MODEL_KIND)[WEIGHTS]), path)
    if odd := [name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())]:
        raise CheckpointError(f"{path} holds NaN or infinity in {odd[0]}", "use an earlier checkpoint")
    return tensors
