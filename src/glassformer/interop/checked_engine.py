"""An engine whose files somebody else may have made: what it raises is one error, and what it returns is checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.config import DecodeConfig
from glassformer.errors import CheckpointError, DivergedError, GlassformerError
from glassformer.interop.engine import Engine, Hypotheses
from glassformer.text.tokenizer import Tokenizer


class CheckedEngine(Engine):
    """An engine, called through here.

    Args:
        engine: the engine of a library.
        path: the folder of its files, for messages.
        tokenizer: the tokenizer of the texts, each of whose tokens the model has to know.
        n_classes: classes of a classifier.

    Raises:
        CheckpointError: the model knows other tokens than the tokenizer.
    """

    def __init__(self, engine: Engine, path: Path, tokenizer: Tokenizer, n_classes: int) -> None:
        self._engine, self._path, self._n_classes = engine, path, n_classes
        self._n_tokens = self.n_tokens = tokenizer.vocab_size
        if engine.n_tokens not in (None, self._n_tokens):
            message = f"{path}: the tokenizer has {self._n_tokens} tokens, and the model {engine.n_tokens}"
            raise CheckpointError(message, "export the run again")

    def classify(self, ids: list[int], words: list[str]) -> np.ndarray:
        probabilities = self._numbers("classify", ids, words)
        return self._of_shape(probabilities, (self._n_classes,))

    def fill(self, ids: list[int], words: list[str]) -> np.ndarray:
        logits = self._numbers("fill", ids, words)
        return self._of_shape(logits, (len(logits), self._n_tokens))

    def search(self, sources: Sequence[list[int]], decode: DecodeConfig, limit: int, n_best: int) -> list[Hypotheses]:
        found = self._call("search", sources, decode, limit, n_best)
        rows = [ids for hypotheses in found for ids, _ in hypotheses]
        self._check(len(found) == len(sources) and all(found), "search", "a sentence without a translation")
        self._check_ids("search", rows, limit)
        return found

    def generate(
        self, prompts: Sequence[list[int]], decode: DecodeConfig, n_new: int, places: Sequence[tuple[int, int]]
    ) -> list[list[int]]:
        rows = self._call("generate", prompts, decode, n_new, places)
        self._check(len(rows) == len(prompts), "generate", f"{len(rows)} texts for {len(prompts)}")
        self._check_ids("generate", rows, n_new)
        return rows

    def _call(self, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self._engine, name)(*arguments)
        except (GlassformerError, MemoryError):
            raise
        except Exception as error:  # each library has classes of its own
            message = f"the library of {self._path} cannot compute with it: {str(error)[:300]}"
            raise CheckpointError(message, "export the run again") from error

    def _numbers(self, name: str, *arguments: Any) -> np.ndarray:
        numbers = np.asarray(self._call(name, *arguments))
        if not np.isfinite(numbers).all():
            raise DivergedError(f"the model in {self._path} gives numbers that are not finite", "export the run again")
        return numbers

    def _of_shape(self, numbers: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        self._check(numbers.shape == shape, "compute", f"an array {numbers.shape}, where {shape} is expected")
        return numbers

    def _check_ids(self, name: str, rows: Sequence[Sequence[int]], most: int) -> None:
        for row in rows:
            self._check(1 <= len(row) <= most, name, f"{len(row)} tokens, where 1 to {most} are expected")
            self._check(all(0 <= token < self._n_tokens for token in row), name, "a token that is in no vocabulary")

    def _check(self, is_right: bool, name: str, what: str) -> None:
        if not is_right:
            message = f"the library of {self._path} gives {what} when it should {name}"
            raise CheckpointError(message, "export the run again")
