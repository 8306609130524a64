"""The small models that chapters look into: trained once on this machine, then loaded.

    python docs/book/runs.py      # trains those that are missing; `make docs` does it first

A run is trained again when code that training depends on, or this file, has changed.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sentences import write_sentences

import glassformer
from glassformer import Run

BOOK = Path(__file__).parent
ROOT = BOOK.parents[1]
CODE = ("config", "data", "models", "nn", "recipes", "tasks", "text", "training")
"""Folders of the package that decide what is learned."""
LOCALES = "en_US,en_GB,de_DE,fr_FR,es_ES,pt_BR"
SMALL = {"d_model": 48, "n_layers": 2, "n_heads": 4}


NEXT_TO_NOTEBOOKS = "runs.txt"
"""Beside notebooks outside the repository: a file with the path of the folder of trained runs."""


def folder_of_runs() -> Path:
    """Return the folder of this version's runs: in build/book, or outside the repository where `runs.txt` says."""
    if (place := BOOK / NEXT_TO_NOTEBOOKS).exists():
        return (BOOK / place.read_text(encoding="utf-8").strip()).resolve()
    files = [path for name in CODE for path in (ROOT / "src" / "glassformer" / name).rglob("*") if path.is_file()]
    files = [path for path in files if path.suffix in (".py", ".toml")] + [Path(__file__), BOOK / "sentences.py"]
    return ROOT / "build" / "book" / hashlib.sha256(b"".join(f.read_bytes() for f in sorted(files))).hexdigest()[:16]


def dates() -> Run:
    """Return the translator of the recipe dates, for six of its forty locales.

    Of all forty it sees few American dates in digits, and reads 96% to 99% of them. The chapter on causes needs a model
    that reads them, and so more of them and more steps than the 500 of the recipe.
    """
    return _run("dates", lambda out, _: glassformer.train("dates", out=out, locales=LOCALES, steps=700))


def words() -> Run:
    """Return a masked language model of the sentences of three topics."""
    return _run("words", lambda out, data: _train("pretrain", out, data, "txt", 600, ngrams=0))


def topics() -> Run:
    """Return a classifier of the topic of a sentence: fruit, company or animal."""
    return _run("topics", lambda out, data: _train("classify", out, data, "csv", 300, ngrams=0, ensemble_size=1))


def stories() -> Run:
    """Return a language model of the sentences, word by word."""
    return _run("stories", lambda out, data: _train("lm", out, data, "txt", 600, tokenizer="word", vocab_size=200))


RUNS = (dates, words, topics, stories)


def _train(recipe: str, out: Path, data: Path, suffix: str, steps: int, **settings: Any) -> Any:
    files = {"train_file": str(data / f"train.{suffix}"), "valid_file": str(data / f"valid.{suffix}")}
    return glassformer.train(recipe, out=out, steps=steps, model=SMALL, **files, **settings)


def _run(name: str, train: Callable[[Path, Path], Any]) -> Run:
    """Load a run of this version, after training it if it is not there."""
    folder = folder_of_runs()
    if not (folder / name).exists():
        write_sentences(folder / "sentences")
        began = folder / f"{name}.part"  # renamed once it is whole
        shutil.rmtree(began, ignore_errors=True)
        train(began, folder / "sentences")
        began.rename(folder / name)
    return glassformer.load(folder / name)


if __name__ == "__main__":
    for make in RUNS:
        print(make(), file=sys.stderr)
