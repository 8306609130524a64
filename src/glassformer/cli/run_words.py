"""Words of a command that name runs: the folders they lead to, and what is said where there is none."""

from __future__ import annotations

import logging
from pathlib import Path

from glassformer.config.recipes import nearest
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.exported import is_exported
from glassformer.runs.folder import RunFolder
from glassformer.runs.seeds_folder import SeedsFolder

logger = logging.getLogger(__name__)


def one_word(words: list[str], what: str, usage: str) -> str:
    """Return the single word that a command takes."""
    if len(words) != 1:
        got = f"{len(words)} came: {' '.join(words)}" if words else "none came"
        raise UsageError(f"{usage.split()[0]} takes one {what}; {got}", f"as in: glassformer {usage}")
    return words[0]


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
    parent, hint = path.parent, "give the folder that --out named when training"
    if siblings := [p.name for p in parent.glob("*") if RunFolder(p).resumable or SeedsFolder(p).exists]:
        hint = f"in {parent} there are: {', '.join(sorted(siblings)[:8])}"
    raise CheckpointError(f"{path} {wrong}", nearest(path.name, siblings).strip() or hint)


def run_folders(word: str) -> list[Path]:
    """Return the run folders of `RUN` or `RUN,RUN,…`, which form an ensemble; errors as in `run_folder`."""
    return [run_folder(part) for part in ([word] if Path(word).exists() else word.split(","))]
