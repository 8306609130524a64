"""What a run folder says about itself, read whole, with the judgements that reports share.

Only the small files are read, never weights, and nothing is written. Each of them but the configuration may be
missing, since a report is also written for a run that was cut short.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from glassformer.config import Config
from glassformer.errors import CheckpointError
from glassformer.evaluate.metrics import Metric
from glassformer.runs.folder import RunFolder
from glassformer.runs.records import INITIAL, DataRecord, Divergence, Evaluation, JsonObject, StepMetrics
from glassformer.tasks import task_class
from glassformer.tasks.reporting import Score, TaskReport


@dataclass(frozen=True)
class RunRecord:
    """A run folder's own account of itself.

    Attributes:
        training: lines of the log with a loss, in order of step, one a step.
        validations: lines with a validation, likewise.
        evaluation: None when the run was not evaluated.
        diverged: where training ended in no number; None where it did not.
        damaged: numbers of the lines of the log that could not be read, and were left out.
    """

    path: Path
    config: Config = field(default_factory=Config)
    env: JsonObject = field(default_factory=dict)
    data: DataRecord = field(default_factory=DataRecord)
    training: list[StepMetrics] = field(default_factory=list)
    validations: list[StepMetrics] = field(default_factory=list)
    evaluation: Evaluation | None = None
    diverged: Divergence | None = None
    damaged: list[int] = field(default_factory=list)

    @property
    def task_report(self) -> TaskReport:
        return task_class(self.config.task).report

    @property
    def name(self) -> str:
        return self.config.recipe or self.path.name

    @property
    def steps(self) -> int:
        return self.training[-1].step if self.training else 0

    @property
    def seconds(self) -> float | None:
        """Return the seconds of training so far, validation included; None if nothing was logged."""
        return max(self.logged("seconds"), default=None)

    def logged(self, name: str) -> list[float]:
        """Return what the steps logged of a field, without those that logged none."""
        return [value for row in self.training if not math.isnan(value := getattr(row, name))]

    @property
    def score(self) -> Score:
        return self.task_report.score(self.evaluation or Evaluation())

    @property
    def metric(self) -> Metric:
        return self.task_report.metric(self.data.metric or "loss")

    def best_validation(self) -> StepMetrics | None:
        """Return the validation whose weights are kept, as training logged it.

        None without any, and where the weights before the first step are kept.
        """
        return next((row for row in reversed(self.validations) if row.best), None)

    @property
    def kept_score(self) -> float | None:
        """Return the validation metric of the weights that are kept; None where it was not computed."""
        best = self.best_validation()
        return (best.valid or {}).get(self.metric.name) if best else self.data.base.get(INITIAL)


@contextmanager
def readable_records(*paths: Path) -> Iterator[None]:
    """Raise a CheckpointError where records are of a form that no version wrote, so that they cannot be shown."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        what = f"{', '.join(map(str, paths))}: the records are not as they were written ({str(error)[:200]})"
        raise CheckpointError(what, "restore the folder from a copy; with --debug the place is shown") from error


def load_run_record(path: Path | str, config: Config | None = None, *, damaged_log: bool = False) -> RunRecord:
    """Read what a run folder holds; of a step that was logged twice (resumed after a kill) the later line counts.

    Its configuration is read unless it is given. With `damaged_log`, lines of the log that cannot be read are left out,
    and their numbers kept.

    Raises:
        CheckpointError: no such folder, no configuration in it, or a file that is damaged.
    """
    folder, damaged = RunFolder(path), list[int]()
    config = config or folder.read_config()
    rows = sorted(folder.read_metrics(damaged if damaged_log else None), key=lambda row: row.step)
    training = list({row.step: row for row in rows}.values())
    validations = list({row.step: row for row in rows if row.valid is not None}.values())
    env, data = folder.read_env(), folder.read_data()
    evaluation, diverged = folder.read_evaluation(), folder.read_divergence()
    return RunRecord(folder.path, config, env, data, training, validations, evaluation, diverged, damaged)
