"""What estimators of texts have in common: parameters, training, the run, and how it is pickled.

Each `fit` is a run like any other, trained on a file of the texts in a private folder, which goes with the run. A
pickled estimator holds the files of its run, without texts and checkpoints.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from glassformer import api
from glassformer.config import Config, FilesConfig
from glassformer.config.recipes import load_recipe
from glassformer.config.validation import homes
from glassformer.errors import DataError, Interrupted, UsageError
from glassformer.runs.folder import RunFolder
from glassformer.sklearn.inputs import TextsError
from glassformer.utils.atomic_io import atomic_write_bytes, atomic_write_text, json_line
from glassformer.utils.console import log_to_stderr

if TYPE_CHECKING:
    from glassformer.run import Run

TEXTS, ANSWERS = "texts.jsonl", "label"
"""The file of the texts of a training, and its column of answers."""
NOT_PICKLED = {"checkpoints", "snapshots", "exports", "means"}
"""Folders of a run that only training, or looking into it, needs; they are made again or are not there."""
OF_TEXTS = {f.name for f in fields(FilesConfig)} | {"dataset", "data_dir", "files"}
"""Settings that `fit` makes itself."""
SIGINT_CODE = Interrupted.exit_code


@contextmanager
def log_silently() -> Iterator[None]:
    """Write no log message to stderr within the block; a logger with a level is left alone by `log_to_stderr`."""
    logger = logging.getLogger("glassformer")
    before = logger.level
    logger.setLevel(before or logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


_one_training = threading.Lock()
"""Held while a run trains: threads of a process have torch's random generators in common."""


class TextEstimator(BaseEstimator):
    """What estimators of texts have in common: parameters, training, the run, and how it is pickled.

    A subclass names its task, whose recipe is the default, and calls `train_run` in its `fit`.
    """

    task: ClassVar = ""

    def __init__(
        self,
        recipe: str | Path | Config | None = None,
        *,
        out: str | Path | None = None,
        init_from: str | Path | None = None,
        random_state: Any = None,
        device: str | None = None,
        threads: int | None = None,
        options: Mapping[str, Any] | None = None,
        verbose: bool = False,
    ) -> None:
        self.recipe, self.out, self.init_from, self.random_state = recipe, out, init_from, random_state
        self.device, self.threads, self.options, self.verbose = device, threads, options, verbose

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; with `deep` each setting in `options` too, as `options__train.epochs`."""
        params = super().get_params(deep)
        settings = self.options if deep and isinstance(self.options, Mapping) else {}
        return params | {f"options__{name}": value for name, value in settings.items()}

    def set_params(self, **params: Any) -> TextEstimator:
        """Set parameters, and settings in `options` by name: `options__lr`, `options__train__lr`."""
        settings = {name[9:]: value for name, value in params.items() if name.startswith("options__")}
        super().set_params(**{name: value for name, value in params.items() if not name.startswith("options__")})
        if settings:
            new = {_full_name(name) for name in settings}
            kept = {name: value for name, value in (self.options or {}).items() if _full_name(name) not in new}
            self.options = kept | settings
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_run")

    @property
    def run_(self) -> Run:
        """Return the trained run, which also explains, evaluates and exports."""
        check_is_fitted(self)
        if self._run is None:
            self._run = _restored(self._files)
        return self._run

    def train_run(self, texts: list[str], answers: list[str]) -> None:
        """Train on texts and answers, and keep the run.

        Raises:
            TextsError: nothing can be learned from them.
            UsageError: a parameter cannot be used, or `out` is not empty.
            KeyboardInterrupt, SystemExit: a signal stopped the training; a search stops with it.
        """
        settings = self._settings()
        private = Path(tempfile.mkdtemp(prefix="glassformer-"))
        out, table = private / "run", private / TEXTS
        if self.out is not None:
            out = Path(self.out).absolute()
            table = out.with_name(f"{out.name}.{TEXTS}")  # so that the run can be evaluated and resumed
        run = None
        try:
            _check_new(out, table)
            out.parent.mkdir(parents=True, exist_ok=True)
            rows = ({"text": text, ANSWERS: answer} for text, answer in zip(texts, answers, strict=True))
            atomic_write_text(table, "".join(json_line(row) + "\n" for row in rows))
            data = settings.pop("data", {}) | {
                "dataset": "files",
                "train_file": str(table),
                "text_column": "text",
                "label_column": ANSWERS,
            }
            with _one_training, self._logging():
                run = api.train(self.recipe or self.task, out=out, data=data, **settings)
        except Interrupted as error:
            where = f"{error.message}; {error.hint}" if self.out is not None else "the training was stopped"
            raise (
                KeyboardInterrupt(where) if error.exit_code == SIGINT_CODE else SystemExit(error.exit_code)
            ) from None
        except DataError as error:
            if not RunFolder(out).resumable:
                table.unlink(missing_ok=True)
            raise TextsError(error.message, error.hint) from error
        finally:
            if run is None or self.out is not None:
                shutil.rmtree(private, ignore_errors=True)
        if run is None:
            raise UsageError("an estimator is trained by one process, and several were started", "leave out torchrun")
        if self.out is None:
            _remove_with(run, private)
        self._run: Run | None = run
        self._files: dict[str, bytes] = {}

    def _settings(self) -> dict[str, Any]:
        """Return the settings of `glassformer.train`, by section."""
        recipe = self.recipe or self.task
        config = recipe if isinstance(recipe, Config) else load_recipe(recipe)
        if config.task != self.task:
            message = f"{type(self).__name__} trains recipes of the task {self.task}, not {config.task or 'none'}"
            raise UsageError(message, f"name another recipe, such as {self.task!r}")
        if not isinstance(self.options, Mapping | None):
            message = f"options is a dictionary of settings, not {type(self.options).__name__}"
            raise UsageError(message, 'as in: options={"train.epochs": 3}')
        nested: dict[str, Any] = {}
        for name, value in (self.options or {}).items():
            *path, last = _full_name(name).split(".")
            if OF_TEXTS & {*path, last, *(value if isinstance(value, Mapping) else ())}:
                raise UsageError(f"options name {name}, and the texts come from fit(X, y)", "leave it out")
            table = nested
            for part in path:
                table = table.setdefault(part, {})
            table[last] = table.get(last, {}) | value if isinstance(value, dict) else value
        train = nested.setdefault("train", {})
        own = {"init_from": self.init_from, "seed": self._seed(), "device": self.device, "threads": self.threads}
        train |= {name: value for name, value in own.items() if value is not None}
        return nested

    def _seed(self) -> int | None:
        if self.random_state is None or isinstance(self.random_state, int | np.integer):
            return self.random_state if self.random_state is None else int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _logging(self) -> AbstractContextManager[None]:
        return log_to_stderr() if self.verbose else log_silently()

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        if (run := state.get("_run")) is None:
            return state
        files = {path.relative_to(run.path).as_posix(): path for path in run.path.rglob("*") if path.is_file()}
        kept = {name: path.read_bytes() for name, path in files.items() if name.split("/")[0] not in NOT_PICKLED}
        return state | {"_run": None, "_files": kept}


def _full_name(setting: str) -> str:
    """Return the name of a setting with its section: train.lr for lr and train__lr."""
    name = str(setting).replace("__", ".")
    return f"{homes()[name]}.{name}" if name in homes() else name


def _check_new(out: Path, table: Path) -> None:
    """Refuse a folder for a run that is in use, and a file for its texts that is there; raise UsageError."""
    RunFolder(out).check_new()
    if table.exists():
        raise UsageError(f"{table}, which the texts are written to, is there already", "name another out")


def _remove_with(run: Run, folder: Path) -> None:
    """Remove a folder when nothing refers to its run any more, or the process ends; a forked process does not."""
    weakref.finalize(run, _remove, folder, os.getpid())


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _restored(files: Mapping[str, bytes]) -> Run:
    """Return a run from the content of its files."""
    folder = Path(tempfile.mkdtemp(prefix="glassformer-"))
    try:
        for name, content in files.items():
            path = folder / "run" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write_bytes(path, content)
        run = api.load(folder / "run")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    _remove_with(run, folder)
    return run
