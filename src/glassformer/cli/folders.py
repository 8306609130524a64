"""The folders of runs that a command names."""

from __future__ import annotations

import logging
from pathlib import Path

from glassformer.config.recipes import nearest
from glassformer.errors import CheckpointError, UsageError
from glassformer.runs.folder import MODEL_CONFIG, RunFolder, SeedsFolder, is_exported

logger = logging.getLogger(__name__)


def run_folder(word: str, all_seeds: bool = False) -> Path:
    """Return a run folder that exists.

    Of several seeds the best by validation, or with `all_seeds` the folder of all seeds.

    Raises:
        CheckpointError: there is no run here; the runs in the same folder are named.
        UsageError: it is an exported model.
    """
    path = Path(word)
    if SeedsFolder(path).exists:
        if all_seeds:
            return path
        best = SeedsFolder(path).best.path
        logger.info(f"{path} holds several seeds; {best} is the best by validation")
        return best
    if is_exported(path):  # other libraries call a file of theirs config.json, too
        raise UsageError(f"{path} is an exported model, not a run", "use it with glassformer predict")
    if RunFolder(path).resumable or RunFolder(path).model_folder:
        return path
    wrong = "holds no run" if path.is_dir() else "is not a folder" if path.exists() else "does not exist"
    siblings = [p.name for p in path.parent.glob("*") if _is_run(p) or SeedsFolder(p).exists]
    hint = f"in {path.parent} there are: {', '.join(sorted(siblings)[:8])}" if siblings else ""
    hint = nearest(path.name, siblings).strip() or hint or "give the folder that --out named when training"
    raise CheckpointError(f"{path} {wrong}", hint)


def _is_run(path: Path) -> bool:
    """Return whether a folder is a run, also one without a training: an import, or what learned an answer."""
    return RunFolder(path).resumable or (RunFolder(path).model / MODEL_CONFIG).is_file()


def run_folders(word: str) -> list[Path]:
    """Return the run folders of `RUN` or `RUN,RUN,…`, which form an ensemble; errors as in `run_folder`."""
    return [run_folder(part) for part in ([word] if Path(word).exists() else word.split(","))]
