"""What the files of a run folder hold, as values: the data it saw, a line of its log, its scores, where it began.

Reading leaves out what it does not know; only what could not be used is refused. Which file holds what is
`folder.py`'s business.

`interop/imported.py` writes the record of an import into `model/config.json`. Fine-tuning copies it, so that licence
and source of the weights are on the card of every run and of every export that descends from it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from glassformer.config import Config, Count
from glassformer.config.recipes import config_to_dict
from glassformer.data.diagnostics import Finding
from glassformer.errors import CheckpointError
from glassformer.utils.atomic_io import finite
from glassformer.utils.formatting import cell_text, code
from glassformer.utils.safe_read import from_json, read_json

JsonObject = dict[str, Any]
"""A JSON object."""


def start_sum(config: Config, data: JsonObject, tokenizer_sha256: str) -> str:
    """Return a SHA-256 of what a run is begun with: its settings, the content of `data.json` and its tokenizer."""
    text = json.dumps(finite([config_to_dict(config), data, tokenizer_sha256]), sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


NOT_LOGGED = {"progress", "eta_seconds"}
LOGGED_IF_SET = {"best", "paused"}


INITIAL = "initial"
"""Key of the validation metric of the weights that a run begins with, in `DataRecord.base`."""


@dataclass(frozen=True)
class SplitRecord:
    """A part of the data as the model sees it; what was not counted is None.

    Attributes:
        n: examples. n_tokens: kept. n_truncated: texts cut. n_tokens_cut: tokens cut off. n_unknown: tokens the
            vocabulary lacks. n_dropped: pairs too long and left out. n_empty: pairs with an empty side, or texts
            without a token to predict, left out. n_duplicates: examples equal to one before.
        n_in_training: texts that are in the training part too (of running text, lines), out of n_compared.
        unknown_rate: n_unknown / n_tokens. n_texts_unknown: texts with at least one such token. sha256: of texts and
            answers, so that two runs can tell whether they were scored on the same. counts: what else the task
            counted, by its own names.
    """

    n: int = 0
    n_tokens: int | None = None
    n_truncated: int | None = None
    n_tokens_cut: int | None = None
    n_unknown: int | None = None
    n_dropped: int | None = None
    n_empty: int | None = None
    n_duplicates: int | None = None
    n_in_training: int | None = None
    n_compared: int | None = None
    unknown_rate: float | None = None
    n_texts_unknown: int | None = None
    sha256: str | None = None
    counts: dict[str, int] | None = None


@dataclass(frozen=True)
class DataRecord:
    """`data.json`: what a run was given, known before its first step.

    Attributes:
        metric: what chooses the weights. splits: train, valid and perhaps test. hashes: file to SHA-256.
        notes: sentences for people. tokenizer: kind, vocab_size, sha256. preflight: size, work, memory, time.
        base: the run it begins from, path and sha256 of its weights, and their validation metric where it was computed;
            empty where they are random.
        columns: the columns that were read of the training table. counts: what was met in the files, by name.
        scale: where targets are numbers, mean and sd of those of training; else empty.
    """

    task: str = ""
    metric: str = ""
    dataset: str = ""
    source: str = ""
    splits: dict[str, SplitRecord] = field(default_factory=dict)
    label_names: list[str] | None = None
    hashes: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    tokenizer: JsonObject = field(default_factory=dict)
    preflight: JsonObject = field(default_factory=dict)
    base: JsonObject = field(default_factory=dict)
    columns: JsonObject = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    scale: dict[str, float] = field(default_factory=dict)

    @property
    def findings(self) -> list[Finding]:
        """Return the warnings from before the first step."""
        return from_json(list[Finding], self.preflight.get("warnings", []), "data.json: preflight")

    @property
    def train(self) -> SplitRecord:
        return self.splits.get("train", SplitRecord())

    def as_json(self) -> JsonObject:
        return asdict(self) | {"splits": {name: _known(asdict(split)) for name, split in self.splits.items()}}


UPDATES_EVERY = 50
"""Steps from one that logs how far each matrix moved to the next; a copy of the weights in each would cost too much."""


def logs_updates(step: int) -> bool:
    """Return whether the line of a step, counted from 1, holds `update_ratios`, `clipped` and `wait`."""
    return step == 1 or step % UPDATES_EVERY == 0


@dataclass
class StepMetrics:
    """Metrics of an optimizer step and of the validation after it, if any; its line in `metrics.jsonl`.

    Attributes:
        loss: nats per label. lr, grad_norm (before clipping), tokens_per_s. padding: share of the batch.
        seconds: of training since the run began, those before a resume included.
        threads: of the CPU; fewer while other programs use it. valid: validation scores by name.
        update_ratios: ‖Δw‖ / ‖w‖ of this step by the name of each trained matrix; in the first and every fiftieth step.
        clipped: share of the steps since the last with ratios whose gradient was clipped. wait: share of this step's
            time that the main process spent making batches.
        best: the validation is the best so far, so that its weights are kept; logged where it is.
        paused: training pauses after this step, as `control.json` asks; logged where it does.
        progress: share of the budget that is used, and the seconds left; these two are not logged.
    """

    step: Count
    epoch: float = math.nan
    loss: float = math.nan
    lr: float = math.nan
    grad_norm: float = math.nan
    tokens_per_s: float = math.nan
    padding: float = math.nan
    seconds: float = math.nan
    progress: float = 0.0
    eta_seconds: float | None = None
    threads: int | None = None
    update_ratios: dict[str, float] | None = None
    clipped: float | None = None
    wait: float | None = None
    valid: dict[str, float] | None = None
    best: bool = False
    paused: bool = False

    def line(self) -> str:
        left_out = NOT_LOGGED | {name for name in LOGGED_IF_SET if not getattr(self, name)}
        return json.dumps({key: value for key, value in _known(asdict(self)).items() if key not in left_out}) + "\n"


def read_log_lines(data: bytes, path: Path, damaged: list[int] | None = None, first: int = 1) -> list[StepMetrics]:
    """Return what the whole lines of a log say, in order; a last line without its newline was cut, and is left out.

    Args:
        data: the lines.
        path: their file.
        damaged: gets the number of each line that is none of a log; without it such a line raises a CheckpointError.
        first: the number of the first line.
    """
    rows = list[StepMetrics]()
    for number, line in enumerate(data.split(b"\n")[:-1], start=first):
        try:
            if line.strip():
                rows.append(from_json(StepMetrics, line, f"{path}:{number}"))
        except CheckpointError:
            if damaged is None:
                raise
            damaged.append(number)
    return rows


@dataclass(frozen=True)
class Divergence:
    """The file `diverged.json`: the step with a NaN or infinite loss or gradient, and the final message."""

    step: int
    message: str


def interval_key(metric: str) -> str:
    """Return the key of a score's 95% interval in an evaluation; accuracy's is called plain `ci95`."""
    return "ci95" if metric == "accuracy" else f"{metric}_ci95"


Rows = list[JsonObject]


class Scores(TypedDict, total=False):
    """Types of what an evaluation may hold beside numbers, whatever the task."""

    task: str
    split: str
    n: int
    headline: str | None
    baselines: dict[str, JsonObject] | None
    examples: Rows | None
    notes: list[str] | None
    label_names: list[str] | None
    confusion: list[list[int]] | None
    per_class: Rows | None
    per_label: Rows | None


@dataclass
class Evaluation:
    """`evaluation.json`: what a task scored on a split, once. Which scores there are is the task's choice."""

    task: str = ""
    split: str = "test"
    scores: JsonObject = field(default_factory=dict)

    n: int = field(init=False)
    headline: str | None = field(init=False)
    baselines: dict[str, JsonObject] = field(init=False)
    examples: list[JsonObject] = field(init=False)

    def __post_init__(self) -> None:
        found = self.scores
        self.n, self.headline = found.get("n") or 0, found.get("headline")
        self.baselines, self.examples = found.get("baselines") or {}, found.get("examples") or []

    def value(self, name: str) -> float | int | None:
        value = self.scores.get(name)
        return value if isinstance(value, int | float) else None

    def interval(self, name: str) -> list[float | int] | None:
        """Return a score's 95% interval."""
        match self.scores.get(interval_key(name)):
            case [int() | float() as low, int() | float() as high]:
                return [low, high]
        return None

    def as_json(self) -> JsonObject:
        return {"task": self.task, "split": self.split, **self.scores}

    @classmethod
    def read(cls, path: Path) -> Evaluation | None:
        """Read the file; None where there is none. Anything else that it holds is a CheckpointError that names it."""
        if not path.exists():
            return None
        scores = read_json(path)
        from_json(Scores, scores, path)
        return cls(scores.pop("task", ""), scores.pop("split", "test"), scores)


def _known(values: JsonObject) -> JsonObject:
    """Return what is not None, and the numbers that JSON has, those of tables inside too."""
    kept = {name: _known(value) if isinstance(value, dict) else finite(value) for name, value in values.items()}
    return {name: value for name, value in kept.items() if value is not None}


IMPORT = "import"
"""Key of the record in `model/config.json`, and in the record of the run that a run begins from (`DataRecord.base`)."""
_LICENSE = re.compile(r"[\w.+-]{1,100}")
_MODEL = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?")


@dataclass(frozen=True)
class Origin:
    """The record of an import.

    Attributes:
        library: whose format it was: "transformers", "ctranslate2".
        family: the kind of model there.
        name: the name of the folder.
        files: SHA-256 of each file that was read, by name.
        license: the identifier of its licence; empty where its card states none.
        base_model: the model that it was made from, as its card says; empty where it says none.
        task: the task that it was imported as.
        notes: what was repeated, permuted or folded, and what was left out.
        check: the comparison with the library; None if it was not made.
    """

    library: str
    family: str
    name: str
    files: dict[str, str] = field(default_factory=dict)
    license: str = ""
    base_model: str = ""
    task: str = ""
    notes: list[str] = field(default_factory=list)
    check: dict[str, Any] | None = None

    @classmethod
    def from_json(cls, value: object, where: Path | str) -> Origin | None:
        """Return the record; None where there is none. Anything else is a CheckpointError that names `where`."""
        return None if value is None else from_json(cls, value, f"{where}: {IMPORT}")

    def front_matter(self, license: str | None = None) -> list[str]:
        """Return the lines on licence and base model for the metadata of a card, as model hubs read them.

        A value that is no identifier is left out. `license` stands for another licence than that of the source.
        """
        chosen = license or self.license
        lines = [f"license: {chosen}"] if _LICENSE.fullmatch(chosen) else []
        return lines + ([f"base_model: {self.base_model}"] if _MODEL.fullmatch(self.base_model) else [])

    @property
    def title(self) -> str:
        """Return which model it is, for a sentence in Markdown."""
        return f"{code(self.name)} ({cell_text(self.family)} in the format of {cell_text(self.library)})"

    def source(self) -> list[str]:
        """Return the paragraphs on what was changed as it was imported, the files of the source and its licence."""
        changes = "\n".join(f"- {cell_text(note, 1000)}" for note in self.notes)
        hashes = "\n".join(f"- {code(name)}: SHA-256 {cell_text(sha)}" for name, sha in sorted(self.files.items()))
        base = f" It was made from {code(self.base_model)}." if self.base_model else ""
        licence = f"Licence of the source: {cell_text(self.license) or 'not stated'}.{base}"
        return [*(["Changed as it was imported:", changes] if changes else []), *([hashes] if hashes else []), licence]

    def of_descendant(self) -> list[str]:
        """Return the paragraphs of the card of a run that began with these weights."""
        return [f"Its weights began as those of {self.title}.", *self.source()]
