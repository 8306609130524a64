"""Send what a training logs to an experiment tracker too: TensorBoard, Trackio, Weights & Biases or MLflow.

A thread of its own talks to the tracker. One that fails is named in a warning and left; one that hangs is left after
`PATIENCE` seconds; neither stops the run. `tracking.json` keeps the tracker's id of the run, so that a resumed run goes
on in it, and each step is sent once: the tracker says which it has, or else the log does, as it was before the resume.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import math
import os
import queue
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from glassformer.config import Config
from glassformer.config.recipes import config_to_dict
from glassformer.errors import GlassformerError, UsageError
from glassformer.runs.folder import RunFolder, SeedsFolder
from glassformer.runs.records import StepMetrics
from glassformer.utils import atomic_io, safe_read

logger = logging.getLogger(__name__)

PROJECT = "glassformer"
PATIENCE = 30.0
"""Seconds to wait for a tracker that does not answer: when the queue is full, and at the end."""
MAX_WAITING = 10_000
"""Most steps that wait to be sent."""


@dataclass(frozen=True)
class Start:
    """What a tracker is given of a run.

    Attributes:
        id: the tracker's id of the run; empty where it is new. step: the last one that is not done again.
        settings: the configuration by dotted name.
    """

    folder: Path
    name: str
    settings: dict[str, Any]
    id: str
    step: int


class Connection(Protocol):
    """A run in a tracker; `last` is the last step that it has, None where it does not say."""

    id: str
    last: int | None

    def log(self, step: int, values: dict[str, float]) -> None: ...

    def close(self, finished: bool) -> None: ...


class TensorBoard:
    """Event files in the run folder; those of steps that are done again are void."""

    package = "tensorboard"

    def __init__(self, start: Start) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.id = start.id or "tensorboard"
        self.last: int | None = start.step
        self._writer = SummaryWriter(str(start.folder / "tensorboard"), purge_step=start.step + 1 if start.id else None)

    def log(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self, finished: bool) -> None:
        self._writer.close()


class Trackio:
    """A run in the project of TRACKIO_PROJECT; Trackio finds it again by its name."""

    package = "trackio"

    def __init__(self, start: Start) -> None:
        trackio: Any = importlib.import_module("trackio")
        self.id = start.id or f"{start.name}-{uuid.uuid4().hex[:8]}"
        self.last: int | None = None
        project = os.environ.get("TRACKIO_PROJECT") or PROJECT
        quiet = dict(embed=False, auto_log_gpu=False, auto_log_cpu=False)  # noqa: C408  (names of its arguments)
        self._run = trackio.init(project=project, name=self.id, config=start.settings, resume="allow", **quiet)

    def log(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def close(self, finished: bool) -> None:
        self._run.finish()


class WeightsAndBiases:
    """A run in the project of WANDB_PROJECT; its files stay where WANDB_DIR says, as they hold links."""

    package = "wandb"

    def __init__(self, start: Start) -> None:
        wandb: Any = importlib.import_module("wandb")
        if wandb.setup().settings.mode == "online" and not wandb.login(prompt=False):
            raise RuntimeError("not logged in: run `wandb login`, or set WANDB_MODE=offline")
        self.id = start.id or uuid.uuid4().hex
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            name=start.name,
            id=self.id,
            config=start.settings,
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(console="off", silent=True),
        )
        self.last: int | None = self._run.step - 1 if self._run.step else None

    def log(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def close(self, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)


class MLflow:
    """A run in the experiment of MLFLOW_EXPERIMENT_NAME, on the server of MLFLOW_TRACKING_URI."""

    package = "mlflow"

    def __init__(self, start: Start) -> None:
        mlflow: Any = importlib.import_module("mlflow")
        self._client, self._metric, self.id = mlflow.MlflowClient(), mlflow.entities.Metric, start.id
        self.last: int | None = None
        if start.id:
            self._client.update_run(start.id, status="RUNNING")
            self.last = max((each.step for each in self._client.get_metric_history(start.id, "loss")), default=0)
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment is not None else self._client.create_experiment(name)
        self.id = self._client.create_run(number, run_name=start.name).info.run_id
        params = [mlflow.entities.Param(key, str(value)[:500]) for key, value in start.settings.items()]
        for first in range(0, len(params), 100):  # most that it takes at once
            self._client.log_batch(self.id, params=params[first : first + 100])

    def log(self, step: int, values: dict[str, float]) -> None:
        now = int(time.time() * 1000)
        self._client.log_batch(self.id, metrics=[self._metric(name, x, now, step) for name, x in values.items()])

    def close(self, finished: bool) -> None:
        self._client.set_terminated(self.id, "FINISHED" if finished else "KILLED")


TRACKERS = {each.package: each for each in (TensorBoard, Trackio, WeightsAndBiases, MLflow)}


def check_tracker(tracker: str) -> None:
    """Import the package of a tracker.

    Raises:
        UsageError: there is no such tracker, or its package is not installed.
    """
    if tracker not in TRACKERS:
        raise UsageError(f"no tracker is called {str(tracker)!r}", f"there are: {', '.join(TRACKERS)}")
    try:
        importlib.import_module(tracker)
    except ImportError as error:
        message = f"the tracker {tracker} needs the package {error.name or tracker}, which is not installed"
        raise UsageError(message, f'install it: pip install "glassformer[{tracker}]"') from None


def values_of(report: StepMetrics) -> dict[str, float]:
    """Return the finite numbers of a line of the log by name; those of a table as `valid/accuracy`."""
    found: dict[str, Any] = {}
    for key, value in json.loads(report.line()).items():
        found |= {f"{key}/{name}": each for name, each in value.items()} if isinstance(value, dict) else {key: value}
    del found["step"]
    return {n: x for n, x in found.items() if isinstance(x, int | float) and x is not True and math.isfinite(x)}


class Tracking:
    """What sends the steps of one training to a tracker; made before the log is cut to the step of a checkpoint.

    It is a function of each `StepMetrics` within `running`. Nothing here raises an error of the tracker.
    """

    def __init__(self, tracker: str, folder: RunFolder) -> None:
        self.tracker, self.folder = tracker, folder
        self._last = max((row.step for row in folder.read_metrics([])), default=0)
        self._waiting: queue.Queue[tuple[int, dict[str, float]] | None] = queue.Queue(MAX_WAITING)
        self._failure, self._warned, self._finished = "", False, False

    @contextlib.contextmanager
    def running(self, config: Config, step: int) -> Iterator[None]:
        """Send what is logged within the block, after `step`; wait at its end until all is sent."""
        thread = threading.Thread(
            target=self._send, args=(config, step), name=f"glassformer-{self.tracker}", daemon=True
        )
        thread.start()
        try:
            yield
            self._finished = True
        finally:
            self._put(None)
            thread.join(0 if self._warned else PATIENCE)
            if thread.is_alive():
                self._failure = self._failure or f"no answer within {PATIENCE:g} s"
            self._warn()
            with contextlib.suppress(queue.Full):  # one that answers later ends then
                self._waiting.put_nowait(None)

    def __call__(self, report: StepMetrics) -> None:
        """Send a step, which is in the log already."""
        self._warn()
        self._put((report.step, values_of(report)))

    def _put(self, item: tuple[int, dict[str, float]] | None) -> None:
        try:
            if not self._failure:
                self._waiting.put(item, timeout=PATIENCE)
        except queue.Full:
            self._failure = f"no answer within {PATIENCE:g} s"

    def _warn(self) -> None:
        if self._failure and not self._warned:
            self._warned = True
            logger.warning(f"the tracker {self.tracker} is left, and the run continues without it: {self._failure}")

    def _send(self, config: Config, step: int) -> None:
        """Connect, and send what waits until None comes."""
        try:
            with contextlib.redirect_stdout(sys.stderr):  # stdout is for results
                connection: Connection = TRACKERS[self.tracker](self._start(config, step))
            self._keep(connection.id)
            last = self._last if connection.last is None else connection.last
            while not self._failure and (item := self._waiting.get()) is not None:
                if item[0] > last:
                    connection.log(*item)
            with contextlib.redirect_stdout(sys.stderr):
                connection.close(self._finished)
        except BaseException as error:  # a library may end with SystemExit; it ends this thread alone
            self._failure = self._failure or f"{type(error).__name__}: {str(error)[:300]}"

    def _start(self, config: Config, step: int) -> Start:
        path, settings = self.folder.path.resolve(), dict[str, Any]()
        tables: list[tuple[str, dict[str, Any]]] = [("", config_to_dict(config))]
        while tables:
            prefix, table = tables.pop()
            tables += [(f"{prefix}{name}.", value) for name, value in table.items() if isinstance(value, dict)]
            settings |= {f"{prefix}{name}": value for name, value in table.items() if not isinstance(value, dict)}
        name = f"{path.parent.name}/{path.name}" if SeedsFolder(path.parent).exists else path.name
        return Start(path, name, settings, self._ids().get(self.tracker, ""), step)

    def _ids(self) -> dict[str, str]:
        """Return the ids of the run in each tracker; none where the file is damaged, so that a new run begins there."""
        try:
            ids = safe_read.read_json_object(self.folder.tracking) if self.folder.tracking.exists() else {}
        except GlassformerError:
            return {}
        return {name: value for name, value in ids.items() if isinstance(value, str)}

    def _keep(self, number: str) -> None:
        if self._ids().get(self.tracker) != number:
            atomic_io.write_json(self.folder.tracking, self._ids() | {self.tracker: number})
