"""Weights along the way, for watching a model form: `step-00000016/` and so on in the run's `snapshots/`.

A snapshot cannot be resumed from, for it has no optimizer; that is a checkpoint's business. Snapshots lie at
the start and at steps that double, because most of what can be seen happens early.
"""

from __future__ import annotations

import logging
from pathlib import Path

from glassformer.errors import ResourceError
from glassformer.runs.sealed_folder import read_sealed_folder, write_sealed_folder
from glassformer.runs.tensor_file import Weights, read_tensors, tensor_chunks

logger = logging.getLogger(__name__)

SNAPSHOT_KIND = "glassformer snapshot"
WEIGHTS = "weights.safetensors"
FIRST = 16
"""The first snapshot after the start; the next are at twice as many steps each."""


def is_snapshot_step(step: int) -> bool:
    """Return True for the steps whose weights are kept: 0, 16, 32, 64, 128 and so on."""
    return step == 0 or (step >= FIRST and step & (step - 1) == 0)


def save_snapshot(folder: Path, step: int, weights: Weights) -> bool:
    """Keep the weights after `step` steps; a full disk is told and survived, for training matters more."""
    target = folder / f"step-{step:08d}"
    try:
        write_sealed_folder(target, SNAPSHOT_KIND, {WEIGHTS: tensor_chunks(weights)}, replace=True)
    except ResourceError as error:
        logger.warning(f"{error.message}; the snapshot of step {step} is not kept, training goes on")
        return False
    return True


def snapshot_folders(folder: Path) -> list[tuple[int, Path]]:
    """Return (steps, folder) of every snapshot, oldest first."""
    folders = folder.glob("step-*")
    return sorted((int(p.name[5:]), p) for p in folders if p.is_dir() and p.name[5:].isdigit())


def load_snapshot(path: Path) -> Weights:
    """Load the weights of one snapshot; errors as in `read_sealed_folder`."""
    return read_tensors(read_sealed_folder(path, SNAPSHOT_KIND, [WEIGHTS])[WEIGHTS], path / WEIGHTS)
