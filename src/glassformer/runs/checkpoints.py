"""Checkpoints of a run, saved whole or not at all and checked byte for byte, and snapshots of its weights.

A snapshot cannot be resumed from, for it has no optimizer; that is a checkpoint's business. Snapshots lie at
the start and at steps that double, because most of what can be seen happens early.

    checkpoints/
      step-00001000/  state.safetensors  state.json  manifest.json
      step-00002000/  …

What the state is, this module does not know: tensors under names, and a JSON object.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from pathlib import Path

from glassformer.errors import CheckpointError, ResourceError
from glassformer.runs import sealed_folder
from glassformer.runs.model_folder import Weights, read_tensors, tensor_chunks
from glassformer.runs.records import JsonObject
from glassformer.runs.sealed_folder import read_sealed_folder, write_sealed_folder
from glassformer.utils.atomic_io import finite, remove_folder, remove_leftovers
from glassformer.utils.safe_read import parse_json

logger = logging.getLogger(__name__)

SNAPSHOT_KIND = "glassformer snapshot"
WEIGHTS = "weights.safetensors"
FIRST = 16
"""The first snapshot after the start; the next are at twice as many steps each."""


def is_snapshot_step(step: int) -> bool:
    """Return True for the steps whose weights are kept: 0, 16, 32, 64, 128 and so on."""
    return step == 0 or (step >= FIRST and step & (step - 1) == 0)


def save_snapshot(folder: Path, step: int, weights: Weights) -> bool:
    """Keep the weights after `step` steps; a full disk is logged and does not stop the training."""
    target = folder / f"step-{step:08d}"
    try:
        write_sealed_folder(target, SNAPSHOT_KIND, {WEIGHTS: tensor_chunks(weights)})
    except ResourceError as error:
        logger.warning(f"{error.message}; the snapshot of step {step} is not kept, and training continues")
        return False
    return True


def snapshot_folders(folder: Path) -> list[tuple[int, Path]]:
    """Return (steps, folder) of every snapshot, oldest first."""
    folders = folder.glob("step-*")
    return sorted((int(p.name[5:]), p) for p in folders if p.is_dir() and p.name[5:].isdigit())


def load_snapshot(path: Path) -> Weights:
    """Load the weights of one snapshot; errors as in `read_sealed_folder`."""
    return read_tensors(read_sealed_folder(path, SNAPSHOT_KIND, [WEIGHTS])[WEIGHTS], path / WEIGHTS)


CHECKPOINT_KIND = "glassformer checkpoint"
TENSORS, STATE = "state.safetensors", "state.json"
KEEP = 2
"""How many checkpoints a run keeps: the newest, and the one before it, which stands in where the newest is damaged."""


def save_checkpoint(folder: Path, name: str, tensors: Weights, state: JsonObject, *, keep: int = KEEP) -> Path:
    """Save a checkpoint and return its folder. If the process is killed at any time, the newest committed one loads.

    An intact checkpoint of this name is kept, since a step has one state; a damaged one is replaced. Later ones are
    kept too: they exist only if they were damaged and skipped. `name` is "step-" and the step in eight digits, so that
    names sort by age.

    Raises:
        ResourceError: the disk is full, or cannot be written; earlier checkpoints are untouched.
    """
    target = folder / name
    remove_leftovers(folder)
    if not sealed_folder.is_intact(target, CHECKPOINT_KIND):
        text = json.dumps(finite(state), sort_keys=True, indent=1)
        files = {TENSORS: tensor_chunks(tensors), STATE: [text.encode("utf-8")]}
        sealed_folder.write_sealed_folder(target, CHECKPOINT_KIND, files)
    with suppress(OSError, ResourceError):  # the checkpoint is safe: untidiness is no reason to fail
        for path in [path for path in checkpoint_folders(folder) if path.name <= name][:-keep]:
            remove_folder(path)
    return target


def load_checkpoint(path: Path) -> tuple[Weights, JsonObject]:
    """Load the tensors and the state of one checkpoint, without falling back to another.

    Raises:
        CheckpointError: it is missing, or not byte for byte what was saved; the file is named.
    """
    files = sealed_folder.read_sealed_folder(path, CHECKPOINT_KIND, (TENSORS, STATE))
    return read_tensors(files[TENSORS], path / TENSORS), parse_json(files[STATE], path / STATE, kind=JsonObject)


def latest_checkpoint(folder: Path) -> tuple[Path | None, list[str]]:
    """Return the newest intact checkpoint (None if none was ever saved), and a warning for each newer, damaged one.

    Raises:
        CheckpointError: there are checkpoints and none is sound; starting over would hide it.
    """
    warnings = []
    for path in reversed(checkpoint_folders(folder)):
        try:
            sealed_folder.check_sealed_folder(path, CHECKPOINT_KIND)
        except CheckpointError as error:
            warnings.append(f"{error.message}; falling back to the checkpoint before it")
        else:
            return path, warnings
    if warnings:
        first = warnings[0].partition(";")[0]
        message = f"none of the {len(warnings)} checkpoints in {folder} is sound: {first}"
        raise CheckpointError(message, "restore one from a copy, or start a new run with another --out")
    return None, []


def checkpoint_folders(folder: Path) -> list[Path]:
    """Return every committed checkpoint, oldest first, intact or not."""
    return sorted(path for path in folder.glob("step-*") if path.is_dir())
