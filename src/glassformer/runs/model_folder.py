"""Weights on disk, in the safetensors format, which can hold nothing but numbers: the model, checkpoints, snapshots.

    model/
      config.json  model.safetensors  tokenizer.json  README.md  manifest.json
    checkpoints/
      step-00001000/  state.safetensors  state.json  manifest.json
      step-00002000/  …
    snapshots/
      step-00000016/  …

The manifest ties the tokenizer to the weights; the card is for people, and no part of what is sealed.
`tasks/restoring.py` compares the weights with the model that the configuration describes.

What the state of a checkpoint is, this module does not know: tensors under names, and a JSON object. A snapshot has
weights alone and cannot be resumed from. Snapshots lie at the start and at steps that double, because most of what can
be seen happens early.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from glassformer.errors import CheckpointError, ResourceError
from glassformer.runs.folder import MODEL_CONFIG as CONFIG
from glassformer.runs.folder import MODEL_KIND, TOKENIZER
from glassformer.runs.records import IMPORT, JsonObject, Origin
from glassformer.runs.sealed_folder import is_intact, read_manifest, read_sealed_file, write_sealed_folder
from glassformer.utils import safe_read
from glassformer.utils.atomic_io import atomic_write_text, finite, remove_folder, remove_leftovers
from glassformer.utils.safe_read import LIMITS, from_json

Weights = dict[str, Tensor]
"""Parameters by name."""


def tensor_chunks(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> list[bytes]:
    """Return the bytes of a safetensors file, as chunks of a file to write; `metadata` are words for other libraries.

    Equal names and values always give equal bytes, whatever the order of insertion, the device and the memory layout;
    two names may share memory.
    """
    copies = {name: x.detach().cpu().clone(memory_format=torch.contiguous_format) for name, x in tensors.items()}
    return [safetensors.torch.save(copies, metadata)]


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Read the header of a safetensors file alone: the shape of each tensor.

    Raises:
        CheckpointError: it is no header, or describes other than the bytes that follow it.
    """
    with safe_read.open_regular(path, LIMITS["weights"]), _sound(path), safetensors.safe_open(path, "pt") as opened:
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
CHECKPOINT_KIND, TENSORS, STATE = "glassformer checkpoint", "state.safetensors", "state.json"
FIRST = 16
"""The first snapshot after the start; the next are at twice as many steps each."""
KEEP = 2
"""How many checkpoints a run keeps: the newest, and the one before it, which stands in where the newest is damaged."""
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
    remove_leftovers(folder.parent)
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
    sums = read_manifest(folder, MODEL_KIND, (CONFIG, TOKENIZER, WEIGHTS))
    config, _ = [read_sealed_file(folder / name, sums[name]) for name in (CONFIG, TOKENIZER)]
    return from_json(JsonObject, config, folder / CONFIG), read_shapes(folder / WEIGHTS)


def read_weights(folder: Path) -> Weights:
    """Read the weights; raise CheckpointError where they are damaged, or not finite."""
    path = folder / WEIGHTS
    tensors = read_tensors(read_sealed_file(path, read_manifest(folder, MODEL_KIND)[WEIGHTS]), path)
    if odd := next((name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())), None):
        raise CheckpointError(f"{path} holds NaN or infinity in {odd}", "train again with a lower --lr")
    return tensors


def is_snapshot_step(step: int) -> bool:
    """Return True for the steps whose weights are kept: 0, 16, 32, 64, 128 and so on."""
    return step == 0 or (step >= FIRST and step & (step - 1) == 0)


def save_snapshot(folder: Path, step: int, weights: Weights) -> Path:
    """Keep the weights after a step, as a checkpoint without a state; all are kept."""
    return save_checkpoint(folder, step, weights, {}, keep=0)


def save_checkpoint(folder: Path, step: int, tensors: Weights, state: JsonObject, *, keep: int = KEEP) -> Path:
    """Save a checkpoint and return its folder. If the process is killed at any time, the newest committed one loads.

    An intact checkpoint of this step is kept, since a step has one state; a damaged one is replaced. Later ones are
    kept too: they exist only if they were damaged and skipped. With `keep` 0 all are kept.

    Raises:
        ResourceError: the disk is full, or cannot be written; earlier checkpoints are untouched.
    """
    target = folder / f"step-{step:08d}"
    remove_leftovers(folder)
    if not is_intact(target, CHECKPOINT_KIND):
        text = json.dumps(finite(state), sort_keys=True, indent=1)
        write_sealed_folder(target, CHECKPOINT_KIND, {TENSORS: tensor_chunks(tensors), STATE: [text.encode("utf-8")]})
    with suppress(OSError, ResourceError):  # the checkpoint is safe: untidiness is no reason to fail
        for path in [path for each, path in step_folders(folder).items() if each <= step][:-keep]:
            remove_folder(path)
    return target


def load_checkpoint(path: Path) -> tuple[Weights, JsonObject]:
    """Load the tensors and the state of one checkpoint, without falling back to another.

    Raises:
        CheckpointError: it is missing, or not byte for byte what was saved; the file is named.
    """
    sealed = read_manifest(path, CHECKPOINT_KIND, (TENSORS, STATE))
    tensors, state = [read_sealed_file(path / name, sealed[name]) for name in (TENSORS, STATE)]
    return read_tensors(tensors, path / TENSORS), from_json(JsonObject, state, path / STATE)


def latest_checkpoint(folder: Path) -> tuple[Path | None, list[str]]:
    """Return the newest intact checkpoint (None if none was ever saved), and a warning for each newer, damaged one.

    Raises:
        CheckpointError: there are checkpoints and none is sound; starting over would hide it.
    """
    warnings = list[str]()
    for path in reversed(step_folders(folder).values()):
        try:
            for name, file in read_manifest(path, CHECKPOINT_KIND, (TENSORS, STATE)).items():
                read_sealed_file(path / name, file)
        except CheckpointError as error:
            warnings.append(f"{error.message}; falling back to the checkpoint before it")
        else:
            return path, warnings
    if warnings:
        first = warnings[0].partition(";")[0]
        message = f"none of the {len(warnings)} checkpoints in {folder} is sound: {first}"
        raise CheckpointError(message, "restore one from a copy, or start a new run with another --out")
    return None, []


def step_folders(folder: Path) -> dict[int, Path]:
    """Return every committed checkpoint or snapshot in a folder by its step, oldest first, intact or not."""
    names = sorted(path.name for path in folder.glob("step-" + "[0-9]" * 8) if path.is_dir())
    return {int(name[5:]): folder / name for name in names}


def read_origin(model_folder: Path) -> Origin | None:
    """Return the record of an import in a model folder; None where its weights began at random.

    Raises:
        CheckpointError: the folder is damaged, or the record is none.
    """
    config, _ = read_description(model_folder)
    return Origin.from_json(config.get(IMPORT), model_folder)
