"""The folders of runs that a command names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.config.recipes import nearest
from glassformer.errors import CheckpointError, UsageError
from glassformer.runs.folder import MODEL_CONFIG, RunFolder, SeedsFolder, is_exported
from glassformer.utils.formatting import glassformer_command

if TYPE_CHECKING:
    from glassformer.text.tokenizer import Tokenizer


def run_folder(word: str, all_seeds: bool = False) -> Path:
    """Return a run folder that exists.

    Of several seeds the best by validation, or with `all_seeds` the folder of all seeds.

    Raises:
        CheckpointError: there is no run here; the runs in the same folder are named.
        UsageError: it is an exported model, or several runs are named.
    """
    path = Path(word)
    if SeedsFolder(path).exists:
        return path if all_seeds else SeedsFolder(path).best.path
    if is_exported(path):  # other libraries call a file of theirs config.json, too
        raise UsageError(f"{path} is an exported model, not a run", f"use it with: glassformer predict {word}")
    if RunFolder(path).resumable or RunFolder(path).model_folder:
        return path
    if "," in word and not path.exists():
        several = f"{word} names several runs, which answer together in predict, predict-table and evaluate alone"
        raise UsageError(several, f"name one of them: {word.partition(',')[0]}")
    wrong = "holds no run" if path.is_dir() else "is not a folder" if path.exists() else "does not exist"
    runs = map(RunFolder, path.parent.glob("*"))  # also one without a training: an import, or what learned an answer
    siblings = [
        run.path.name
        for run in runs
        if run.resumable or (run.model / MODEL_CONFIG).is_file() or SeedsFolder(run.path).exists
    ]
    hint = f"in {path.parent} there are: {', '.join(sorted(siblings)[:8])}" if siblings else ""
    hint = nearest(path.name, siblings).strip() or hint or "give the folder that --out named when training"
    raise CheckpointError(f"{path} {wrong}", hint)


def run_folders(word: str, all_seeds: bool = False) -> list[Path]:
    """Return the folders of `RUN` or `RUN,RUN,…`, which form an ensemble; as `run_folder` does."""
    return [run_folder(part, all_seeds) for part in ([word] if Path(word).exists() else word.split(","))]


def use_of(path: Path, tokenizer: Tokenizer) -> str:
    """Return the command that uses a model, on a pair of texts where it reads pairs."""
    from glassformer.text.pairs import SEPARATOR

    text = f"… {SEPARATOR} …" if tokenizer.separator else "…"
    return f'{glassformer_command("predict", path)} "{text}"'
