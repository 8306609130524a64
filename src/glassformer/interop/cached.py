"""Exports that a run keeps of itself, made once by `glassformer predict --engine` and used from then on. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from glassformer.config import DecodeConfig
from glassformer.errors import CheckpointError
from glassformer.interop.export_facts import ExportFacts
from glassformer.interop.exported import is_exported, load_exported
from glassformer.runs.folder import RunFolder
from glassformer.runs.sealed_folder import MANIFEST
from glassformer.utils.safe_read import sha256_regular

TORCH_FREE = ("ctranslate2", "onnx")
"""Libraries that answer without torch, in the order of preference."""


def cache_folder(run: Path, target: str) -> Path:
    """Return the folder of a run's export, whether it is there or not; another model has another.

    Raises:
        CheckpointError: the run holds no trained model, or its folder of exports is a link to another place.
    """
    folder = RunFolder(run)
    manifest = folder.require_model_folder() / MANIFEST
    if not manifest.is_file():
        raise CheckpointError(f"{manifest} is missing", "use a run of this version")
    exported = folder.exports / f"{target}-{sha256_regular(manifest)[:12]}"
    for path in (folder.exports, exported):
        if path.is_symlink():
            message = f"{path} is a link, and nothing is written through one inside of a run"
            raise CheckpointError(message, "replace it by a folder, or use --engine torch")
    return exported


def find_equal(paths: Sequence[Path], decode: DecodeConfig) -> Path | None:
    """Return the export of a run that answers as it does by the check and with these settings; None without one.

    Args:
        paths: the runs; several have no export.
        decode: the settings of decoding.
    """
    if len(paths) != 1 or not RunFolder(paths[0]).exports.is_dir():
        return None
    for target in TORCH_FREE:
        folder = cache_folder(paths[0], target)
        if is_exported(folder) and answers_equal(load_exported(folder, "cpu").facts, decode):
            return folder
    return None


def answers_equal(facts: ExportFacts, decode: DecodeConfig) -> bool:
    """Return True if the check found all answers equal, and these settings leave nothing that may differ."""
    if facts.check is None or facts.check["equal_answers"] < 1 or facts.check["largest_difference"] > 1e-3:
        return False
    if facts.kind == "translator":
        return not decode.sample and (decode.n_best == 1 or facts.target == "onnx")
    return facts.kind != "language_model" or decode.temperature == 0 or facts.target == "onnx"
