"""What the JSON files of a run folder hold, as values: the data it saw, a line of its log, its scores.

Reading forgives what it does not know and what is not there, since a run may be older than this code or cut
short; only what could not be used is refused. Which file holds what is `folder.py`'s business.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from glassformer.errors import CheckpointError
from glassformer.utils.atomic_io import parse_json

Facts = dict[str, Any]
"""A JSON object."""
T = TypeVar("T")


@dataclass(frozen=True)
class SplitFacts:
    """A part of the data as the model sees it; what was not counted is None.

    Attributes:
        n: examples. n_tokens: kept. n_truncated: texts cut. n_tokens_cut: tokens cut off. n_unknown: tokens the
            vocabulary lacks. n_dropped: pairs too long and left out. n_empty: pairs with an empty side.
        unknown_rate: n_unknown / n_tokens. n_texts_unknown: texts with at least one such token. sha256: of texts and
            answers, so that two runs can tell whether they were scored on the same. lengths: a histogram in tokens, `edges` and `counts`.
    """

    n: int = 0
    n_tokens: int | None = None
    n_truncated: int | None = None
    n_tokens_cut: int | None = None
    n_unknown: int | None = None
    n_dropped: int | None = None
    n_empty: int | None = None
    unknown_rate: float | None = None
    n_texts_unknown: int | None = None
    sha256: str | None = None
    lengths: dict[str, list[float]] | None = None


@dataclass(frozen=True)
class DataFacts:
    """`data.json`: what a run was given, known before its first update.

    Attributes:
        metric: what chooses the weights. splits: train, valid and perhaps test. hashes: file to SHA-256.
        notes: sentences for people. tokenizer: kind, vocab_size, sha256. preflight: size, work, memory, time.
        base: the run it begins from, path and sha256 of its weights; empty where those are random.
    """

    task: str = ""
    metric: str = ""
    dataset: str = ""
    source: str = ""
    splits: dict[str, SplitFacts] = field(default_factory=dict)
    label_names: list[str] | None = None
    hashes: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    tokenizer: Facts = field(default_factory=dict)
    preflight: Facts = field(default_factory=dict)
    base: Facts = field(default_factory=dict)

    @property
    def train(self) -> SplitFacts:
        """The training split; an empty one where nothing is known."""
        return self.splits.get("train", SplitFacts())

    def as_json(self) -> Facts:
        """For the file: all fields, and of a split those that were counted."""
        return asdict(self) | {"splits": {name: _given(split) for name, split in self.splits.items()}}

    @classmethod
    def from_json(cls, value: Any, where: Path) -> DataFacts:
        """Read the file's value; `where` is named in the CheckpointError that anything else raises."""
        value = _object(value, where)
        splits = _object(value.get("splits") or {}, where)
        read = {name: pick(SplitFacts, split, where) for name, split in splits.items()}
        return pick(cls, value | {"splits": read}, where)


@dataclass(frozen=True)
class StepReport:
    """What one update did. loss in nats per label; seconds since the run began, over all sittings; threads of a CPU."""

    step: int
    epoch: float
    loss: float
    lr: float
    grad_norm: float
    tokens_per_s: float
    padding: float
    seconds: float
    progress: float
    eta_seconds: float | None = None
    threads: int | None = None
    valid: dict[str, float] | None = None
    best: bool = False
    stop: int | None = None
    """The signal after which the run stops here, the same in every process."""


@dataclass(frozen=True)
class MetricsLine:
    """A line of `metrics.jsonl`: an update, and the validation after it if there was one.

    Attributes:
        loss: nats a label. seconds: since the run began, over all sittings. valid: scores by name.
        threads: of the processor, fewer where others used it.
    """

    step: int
    epoch: float | None = None
    loss: float | None = None
    lr: float | None = None
    grad_norm: float | None = None
    tokens_per_s: float | None = None
    padding: float | None = None
    seconds: float | None = None
    threads: int | None = None
    valid: dict[str, float] | None = None

    def line(self) -> str:
        """One line of JSON, its end included."""
        return json.dumps(_given(self)) + "\n"


@dataclass(frozen=True)
class Divergence:
    """`diverged.json`: the update that made no number, and the sentence that ended the run."""

    step: int
    told: str


@dataclass(frozen=True)
class Evaluation:
    """`evaluation.json`: what a task scored on a split, once. Which scores there are is the task's choice."""

    task: str = ""
    split: str = "test"
    scores: Facts = field(default_factory=dict)

    @property
    def n(self) -> int:
        """How many were scored."""
        return self.scores.get("n", 0)

    @property
    def headline(self) -> str | None:
        """The score to quote first, where the evaluation names one."""
        return self.scores.get("headline")

    @property
    def baselines(self) -> dict[str, Facts]:
        """Yardsticks by name, each with scores of its own."""
        return self.scores.get("baselines") or {}

    @property
    def examples(self) -> list[Facts]:
        """A few predictions, for people."""
        return self.scores.get("examples") or []

    def value(self, name: str) -> float | int | None:
        """Return a score; None where there is none."""
        value = self.scores.get(name)
        return value if isinstance(value, int | float) else None

    def interval(self, name: str) -> list[float | int] | None:
        """Return a score's 95% interval; accuracy's is called plain `ci95`."""
        return self.scores.get("ci95" if name == "accuracy" else f"{name}_ci95")

    def as_json(self) -> Facts:
        """For the file: task and split beside the scores."""
        return {"task": self.task, "split": self.split, **self.scores}

    @classmethod
    def from_json(cls, value: Any, where: Path) -> Evaluation:
        """Read the file's value; `where` is named in the CheckpointError that anything else raises."""
        scores = dict(_object(value, where))
        return cls(str(scores.pop("task", "")), str(scores.pop("split", "test")), scores)


def pick(cls: type[T], value: Any, where: Path | str) -> T:
    """Make a dataclass of those of its fields that a JSON object has.

    A CheckpointError names `where` if it is no object, or lacks a field that has no default.
    """
    known = {f.name for f in fields(cls)}  # pyright: ignore[reportArgumentType]
    try:
        return cls(**{name: item for name, item in _object(value, where).items() if name in known})
    except TypeError as error:
        raise CheckpointError(f"{where} lacks what it should hold: {error}") from error


def parse_object(data: bytes, where: Path) -> Facts:
    """The JSON object that bytes hold; `where` is named in the CheckpointError that anything else raises."""
    return _object(parse_json(data, where), where)


def _object(value: Any, where: Path | str) -> Facts:
    if not isinstance(value, dict):
        raise CheckpointError(f"{where} should hold a JSON object")
    return value


def _given(value: Any) -> Facts:
    """A dataclass's fields that are not None."""
    return {name: item for name, item in asdict(value).items() if item is not None}
