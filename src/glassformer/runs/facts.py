"""What a run folder says about itself, read back for the report, the model card and comparisons.

Only the small JSON and TOML files are read here, never weights; nothing is written. Each file may be missing,
since a report is also written for a run that was cut short.
"""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError

Facts = dict[str, Any]

HEADLINES = {"classify": "accuracy", "translate": "bleu", "lm": "bits_per_char"}
"""The score of each task that is quoted first, unless the evaluation names another under `headline`."""


@dataclass(frozen=True)
class RunFacts:
    """A run folder's own account of itself.

    Attributes:
        path: the folder.
        config: `config.toml`.
        env: `env.json`: versions, device, command …
        data: `data.json`: splits with counts and length histograms, hashes, notes, tokenizer, preflight.
        training: lines of `metrics.jsonl` with a training loss, in order of step, one a step.
        validations: lines with a `valid` dict, likewise.
        evaluation: `evaluation.json`, the scores on the test split; None when the run was not evaluated.
    """

    path: Path
    config: Facts = field(default_factory=dict)
    env: Facts = field(default_factory=dict)
    data: Facts = field(default_factory=dict)
    training: list[Facts] = field(default_factory=list)
    validations: list[Facts] = field(default_factory=list)
    evaluation: Facts | None = None

    @property
    def task(self) -> str:
        """classify, translate or lm."""
        return self.config.get("task") or self.data.get("task") or "classify"

    @property
    def name(self) -> str:
        """What to call the run: its recipe, or the folder where there is none."""
        return self.config.get("recipe") or self.path.name

    @property
    def seconds(self) -> float | int | None:
        """Seconds of training so far, validation included; None when nothing was logged."""
        logged = [row["seconds"] for row in (*self.training, *self.validations) if "seconds" in row]
        return max(logged, default=None)

    @property
    def n_parameters(self) -> int | None:
        """Trainable parameters, as counted before the first update."""
        return self.data.get("preflight", {}).get("n_parameters")

    @property
    def metric(self) -> str:
        """The metric that chose the weights, of those each validation logs; the loss when it logs no other.

        `data.json` names it; without that, the score the evaluation quotes, or the first logged.
        """
        rows = self.validations
        logged = [key for row in rows for key in row["valid"] if not key.startswith("averaged_")]
        wanted: list[str] = [str(self.data.get("metric")), str((self.evaluation or {}).get("headline"))]
        others = [key for key in logged if key != "loss"]
        return next((key for key in (*wanted, *others) if key in logged), "loss")

    def validation_score(self, row: Facts) -> tuple[float | int, bool]:
        """Return the metric of a validation, and whether it is that of averaged weights, which were better."""
        own, averaged = row["valid"].get(self.metric), row["valid"].get(f"averaged_{self.metric}")
        sign = 1 if higher_is_better(self.metric) else -1
        if averaged is not None and (own is None or sign * averaged > sign * own):
            return averaged, True
        return (math.nan if own is None else own), False

    def best_validation(self) -> Facts | None:
        """Return the validation with the best metric, the earliest among equals; None without any."""
        rows = [row for row in self.validations if math.isfinite(self.validation_score(row)[0])]
        sign = 1 if higher_is_better(self.metric) else -1
        return max(rows, key=lambda row: sign * self.validation_score(row)[0], default=None)


def load_facts(run_dir: Path) -> RunFacts:
    """Read what a run folder holds.

    Raises:
        CheckpointError: no such folder, no config.toml in it, or a file that cannot be parsed.
    """
    run_dir = Path(run_dir)
    if not (run_dir / "config.toml").is_file():
        raise CheckpointError(
            f"Expected a run folder with a config.toml, found none at {run_dir}.",
            hint="Pass the folder given to --out when training.",
        )
    training, validations = _read_metrics(run_dir / "metrics.jsonl")
    return RunFacts(
        path=run_dir,
        config=_read_toml(run_dir / "config.toml"),
        env=_read_json(run_dir / "env.json") or {},
        data=_read_json(run_dir / "data.json") or {},
        training=training,
        validations=validations,
        evaluation=_read_json(run_dir / "evaluation.json"),
    )


def higher_is_better(metric: str) -> bool:
    """Whether a larger value is better: true of scores, false of losses, errors and perplexity."""
    lower = ("loss", "nats", "bits", "perplexity", "error", "ece")
    return not any(word in metric for word in lower)


def headline(task: str, evaluation: Facts) -> tuple[str, float | int | None, list[float | int] | None]:
    """Return the score to quote first: its name, its value, and its 95% interval where there is one."""
    name = evaluation.get("headline") or HEADLINES.get(task, "accuracy")
    return name, evaluation.get(name), interval_of(name, evaluation)


def interval_of(name: str, scores: Facts) -> list[float | int] | None:
    """Return a score's 95% interval; accuracy's is called plain `ci95`."""
    return scores.get("ci95") if name == "accuracy" else scores.get(f"{name}_ci95")


def _read_json(path: Path) -> Facts | None:
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}.") from error


def _read_toml(path: Path) -> Facts:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not valid TOML: {error}.") from error


def _read_metrics(path: Path) -> tuple[list[Facts], list[Facts]]:
    """Read the log; of a step that was logged twice (resumed after a kill) the later line counts.

    A last line without its newline was cut off by a kill and is ignored; any other broken line is an error.
    """
    if not path.is_file():
        return [], []
    training: dict[int, Facts] = {}
    validations: dict[int, Facts] = {}
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            step = int(row["step"])
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                break
            raise CheckpointError(
                f"{path}:{number} is not a JSON object with a step: {line[:80]!r}."
            ) from error
        if isinstance(row.get("valid"), dict):
            validations[step] = row
        if "loss" in row:
            training[step] = row
    return (
        [training[step] for step in sorted(training)],
        [validations[step] for step in sorted(validations)],
    )
