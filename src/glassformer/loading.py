"""Load a trained run, or a model that was exported from one. No torch is imported for the latter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.errors import UsageError
from glassformer.interop.exported import ExportedModel, is_exported, load_exported

if TYPE_CHECKING:
    from glassformer.api import Run


def load(
    path: str | Path, *others: str | Path, device: str = "auto", precision: str | None = None
) -> Run | ExportedModel:
    """Load a run folder (or its `model/` alone) for use; of several seeds the best by validation.

    With others it is an ensemble that averages their probabilities: usually more accurate, N times slower. A folder
    that `Run.export` wrote is loaded with the library that it was written for.

    Args:
        path: the folder.
        others: folders of more runs of the same task, tokenizer and classes; their sizes may differ.
        device: "auto", "cpu", "cuda" or "mps".
        precision: of `predict` and `evaluate`: "auto" (bf16 where it is native), "fp32" or "bf16";
            default: as in training. `explain` is always fp32. Not for an exported model.

    Raises:
        CheckpointError: it is missing, damaged, or its tokenizer is not the one it was trained with.
        UsageError: a device or a precision that this machine does not have, or others that cannot join.
    """
    if not is_exported(Path(path)):
        from glassformer.api import load as load_runs

        return load_runs(path, *others, device=device, precision=precision)
    if others:
        raise UsageError(f"{path} is an exported model, which predicts alone", "name one folder")
    if precision is not None:
        message = f"{path} is an exported model, whose precision is chosen at export"
        raise UsageError(message, "export with --quantization")
    return load_exported(path, device)
