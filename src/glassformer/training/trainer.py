"""Training a run into its folder: log, checkpoints, snapshots, resuming.

A checkpoint may be damaged by hand or made by someone else: each value must have its type, lie in its interval, and
agree with the others, so that training ends in bounded time and never continues with something that the run had not.

Its files are described in `runs/folder.py`.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, get_args, get_type_hints

from torch import Tensor, nn

from glassformer.config import Config
from glassformer.distributed.process_group import SINGLE_PROCESS, init_distributed
from glassformer.errors import CheckpointError, DivergedError, ResourceError, UsageError
from glassformer.runs.checkpoints import (
    STATE,
    is_snapshot_step,
    latest_checkpoint,
    load_checkpoint,
    save_checkpoint,
    save_snapshot,
)
from glassformer.runs.folder import BEGUN, RunFolder
from glassformer.runs.lock import lock_folder
from glassformer.runs.model_folder import load_weights
from glassformer.runs.records import INITIAL, UPDATES_EVERY, DataRecord, JsonObject, StepMetrics
from glassformer.training.computing import computing
from glassformer.training.finalize import finish_run
from glassformer.training.finetune import reload_pretrained
from glassformer.training.loop import budget_used, requested_stop, train_steps
from glassformer.training.pauses import Pauses
from glassformer.training.preflight import describe_environment
from glassformer.training.preparation import new_state, prepare_distributed, settle_budget
from glassformer.training.signals import StopRequest, interruption_error, stop_requests, where_it_stopped
from glassformer.training.state import Progress, RunContext, TrainState
from glassformer.training.validation import Validator
from glassformer.utils.process_settings import turns

if TYPE_CHECKING:
    from glassformer.runs.tracking import Tracking

LARGEST = 2**53
"""Counts beyond are not exact in the floats they are compared with."""
HINT = "restore the checkpoint from a copy, or remove it to resume from the one before"


def count_groups(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Return how many tensors of each group a state holds: model, optimizer and so on."""
    return dict(Counter(name.partition(":")[0] for name in tensors))


def check_groups(tensors: Mapping[str, Tensor], recorded: object, where: Path) -> None:
    """Compare the groups of tensors with the record of those that were saved.

    Raises:
        CheckpointError: some are missing, or were added.
    """
    now, before = count_groups(tensors), recorded if isinstance(recorded, dict) else {}
    differs = [name for name in sorted(now.keys() | before) if now.get(name) != before.get(name)]
    if differs:
        name, n = str(differs[0])[:100], str(before.get(differs[0], 0))[:20]
        message = f"{where}: {now.get(differs[0], 0)} tensors of the group {name!r} are there, {n} were saved"
        raise CheckpointError(message, HINT)


def read_progress(value: object, where: Path, context: RunContext) -> dict[str, Any]:
    """Return the fields of `Progress` after checking them against the run's settings and data.

    Raises:
        CheckpointError: a field is missing, unknown, of another type, or impossible.
    """
    if not isinstance(value, dict) or value.keys() != {f.name for f in fields(Progress)}:
        raise CheckpointError(f"{where}: progress has other fields than it should", HINT)
    for name, kind in get_type_hints(Progress).items():
        if not _has_type(value[name], kind):
            raise CheckpointError(f"{where}: progress.{name} cannot be {str(value[name])[:100]!r}", HINT)
    progress = Progress(**value)
    for holds, rule in _rules(progress, where, context):
        if not holds:
            raise CheckpointError(f"{where}: progress is not that of this run: {rule}", HINT)
    return value


def _has_type(value: object, kind: Any) -> bool:
    """Return whether a JSON value is a finite number, in no case negative, or a string, as the field's type says."""
    kinds = get_args(kind) or (kind,)  # float | None: a metric, which may be negative or infinite
    if str in kinds:
        return isinstance(value, str)
    if type(None) in kinds:
        return value is None or (type(value) in (int, float))
    numbers = (int,) if int in kinds else (int, float)
    return type(value) in numbers and 0 <= value < LARGEST  # pyright: ignore[reportOperatorIssue]


def _rules(p: Progress, where: Path, context: RunContext) -> Iterator[tuple[bool, str]]:
    """Yield what must hold, each with words for where it does not; later ones rely on those before."""
    train = context.config.train
    yield where.parent.name == f"step-{p.step:08d}", f"step {p.step} in {where.parent.name}"
    first = 0 if train.init_from else 1  # weights of another run are kept before the first step
    yield first <= p.step <= (train.steps or LARGEST), f"step {p.step} of {train.steps}"
    yield p.epoch <= min(p.step, math.ceil(train.epochs or p.step)), f"epoch {p.epoch} at step {p.step}"
    n_batches = len(context.task.epoch_batches(context.train, p.epoch))
    yield p.position < n_batches, f"batch {p.position} of {n_batches} in an epoch"
    steps_of_epoch, rest = divmod(p.position, train.accumulate)
    yield rest == 0, f"batch {p.position}, and a step takes {train.accumulate}"
    enough = p.step == steps_of_epoch if p.epoch == 0 else p.step >= p.epoch + steps_of_epoch
    yield enough, f"step {p.step} at batch {p.position} of epoch {p.epoch}"
    yield p.finished in ("", "budget", "patience"), f"finished {p.finished[:100]!r}"
    used = budget_used(p, train, n_batches)
    yield (used >= 1.0) == (p.finished == "budget") or (p.finished == "patience"), f"{used:.0%} of the budget is used"
    lost = train.patience is not None and p.validations_since_best >= train.patience
    yield lost or p.finished != "patience", f"{p.validations_since_best} validations without improvement"
    epoch, every = p.epoch + p.position / n_batches, train.validate_every
    yield every * (1 - 1e-6) <= p.next_validation <= epoch + every + 1e-6, f"next validation at {p.next_validation}"
    yield (
        p.n_validations <= p.validated_step <= p.step,
        f"{p.n_validations} validations, the last at {p.validated_step}",
    )
    yield (p.n_validations == 0) == (p.validated_step == 0), f"a validation at step {p.validated_step}"
    yield p.best_step <= p.validated_step, f"the best validation at step {p.best_step}"
    # Weights with a probe for a head may be the best before the first step.
    yield p.best_metric is not None or p.best_step == 0, f"best metric {p.best_metric}"
    yield p.best_metric is None or p.best_step > 0 or bool(train.init_from), f"best metric {p.best_metric} at step 0"
    yield (p.best_loss is None) == (p.best_metric is None), f"best loss {p.best_loss}"
    yield p.best_metric is None or not math.isnan(p.best_metric), "a best metric that is no number"
    yield p.validations_since_best <= p.n_validations - (p.best_step > 0), "more validations than there were"
    yield p.seconds_validating <= p.seconds, "more time of validation than in all"
    most = max(0, p.step - max(1, p.step - p.step % UPDATES_EVERY))
    yield p.steps_clipped <= p.steps_counted <= most, f"{p.steps_counted} steps counted at step {p.step}"
    yield (p.steps_counted == 0) == (p.seconds_counted == 0), f"{p.steps_counted} steps in {p.seconds_counted} s"
    yield p.seconds_batching <= p.seconds_counted <= p.seconds, "more time of batches than of steps, or than in all"


logger = logging.getLogger(__name__)


OnStep = Callable[[StepMetrics], None]
FLUSH_SECONDS = 1.0
"""Time after which a line of the log is on the disk, for who watches."""


def start_run(config: Config, folder: RunFolder, on_step: OnStep | None = None, track: str | None = None) -> None:
    """Train a new run into `folder`, evaluate it once and write its report; `track` names an experiment tracker.

    Raises:
        UsageError: the folder is not empty, cannot be written, or another process trains into it.
        Interrupted: a signal stopped the run.
    """
    with stop_requests(lambda: where_it_stopped(folder)) as request, ExitStack() as held:
        with init_distributed(config.train.device) as group:
            group.assert_same(run_folder="new")
            with group.raise_together():
                if group.is_main:
                    folder.check_new()
                    held.enter_context(lock_folder(folder.path))
                    folder.check_new()
                    held.callback(lambda: None if folder.resumable else folder.remove_incomplete_start())
            context = prepare_distributed(config, group)  # data, tokenizer, ids
            context = held.enter_context(computing(context))  # precision, kernels, threads
            state = new_state(context)  # model, optimizer
            context, data = settle_budget(context, state)
            begun_with = _begin(folder, context, data, state.initial)
            tracking = _tracking(track, folder, context)
            model = Trainer(context, folder, state, begun_with, on_step, tracking).fit(request)
        if group.is_main:
            finish_run(replace(context, group=SINGLE_PROCESS), model, folder)


def _begin(folder: RunFolder, context: RunContext, data: DataRecord, initial: tuple[float, float] | None) -> JsonObject:
    """Write what is known before the first step, and return the record of it; in the main process alone.

    `initial` are metric and loss of the weights, where these count as validated.
    """
    begun_with: JsonObject = {}
    with context.group.raise_together():
        if context.group.is_main:
            environment = describe_environment(context)
            if initial is not None:
                data = replace(data, base=data.base | {INITIAL: initial[0]})
            begun_with = folder.begin(context.config, environment, data, context.task.tokenizer)
    with context.group.raise_together():
        if not folder.resumable:
            message = f"{folder.path} is not visible to every process"
            raise UsageError(message, "name an --out on a disk that all machines share")
    return begun_with


def resume_run(folder: RunFolder, on_step: OnStep | None = None, track: str | None = None) -> None:
    """Resume a run as if it had never stopped; of a finished one only the report is written again.

    `track` names an experiment tracker; the run continues where it was tracked before.

    Raises:
        CheckpointError: there is no run in `folder`, its budget is not in steps, or its settings have changed.
        DataError: the data has changed since the run began.
        UsageError: another process trains into the folder.
        Interrupted: a signal stopped the run.
    """
    folder.refuse_links()
    config = folder.read_config()
    if config.train.minutes is not None:
        raise CheckpointError(f"{folder.config} has a budget in minutes, not in steps", "start a new run")
    with stop_requests(lambda: where_it_stopped(folder)) as request, ExitStack() as held:
        with init_distributed(config.train.device) as group:
            group.assert_same(run_folder="begun")
            with group.raise_together():
                if group.is_main:
                    held.enter_context(lock_folder(folder.path))
                begun_with = folder.check_unchanged()
            context = prepare_distributed(config, group, folder.read_tokenizer(), folder.path)
            context = held.enter_context(computing(context))
            tracking = _tracking(track, folder, context)  # which looks at the log before it is cut
            state = resumed_state(context, folder, begun_with)
            model = Trainer(context, folder, state, begun_with, on_step, tracking).fit(request)
        if group.is_main:
            finish_run(replace(context, group=SINGLE_PROCESS), model, folder)


def _tracking(track: str | None, folder: RunFolder, context: RunContext) -> Tracking | None:
    """Return what sends steps to a tracker, in the main process."""
    if track is None or not context.group.is_main:
        return None
    from glassformer.runs.tracking import Tracking

    return Tracking(track, folder)


def resumed_state(context: RunContext, folder: RunFolder, begun_with: JsonObject) -> TrainState:
    """Return the state in the newest sound checkpoint; without one that before the first step.

    Raises:
        CheckpointError: the checkpoint is not of this run, or its state is not that of this model.
    """
    checkpoint, warnings = latest_checkpoint(folder.checkpoints)
    for warning in warnings:
        logger.warning(warning)
    context.group.assert_same(newest_checkpoint=checkpoint.name if checkpoint else "")
    if checkpoint is None:
        logger.info("no checkpoint yet: starting from the beginning")
        if begin := context.config.train.init_from:
            pretrained = reload_pretrained(begin, folder.read_data().base.get("sha256", ""))
            context = replace(context, pretrained=pretrained.for_task(context.task))
    state = new_state(context)
    if checkpoint is not None:
        tensors, saved = load_checkpoint(checkpoint)
        where = checkpoint / STATE
        folder.compare_start(saved.get(BEGUN), begun_with, where)
        progress = read_progress(saved.get("progress"), where, context)
        check_groups(tensors, saved.get("groups"), where)
        try:
            state.load(tensors, progress)
        except CheckpointError as error:
            raise CheckpointError(f"{checkpoint}: {error.message}", error.hint or HINT) from error
        logger.info(f"resumed at step {state.progress.step:,} from {checkpoint}")
    if context.group.is_main:
        folder.truncate_metrics(state.progress.step)
        folder.clear_divergence()
    return state


class Trainer:
    """The training of one run: its state, and what is logged and saved after each step.

    Args:
        context: data, task, device and processes.
        folder: the run folder; of several processes only the main one writes there.
        state: the model and its optimizer, perhaps resumed.
        begun_with: the record of what the run was begun with, for its checkpoints.
        on_step: called with the metrics of each step in the main process.
        tracking: sends them to an experiment tracker.
    """

    def __init__(
        self,
        context: RunContext,
        folder: RunFolder,
        state: TrainState,
        begun_with: JsonObject,
        on_step: OnStep | None = None,
        tracking: Tracking | None = None,
    ) -> None:
        self.context, self.folder, self.state = context, folder, state
        self.begun_with, self.on_step, self.tracking = begun_with, on_step, tracking
        self.config, self.is_main = context.config.train, context.group.is_main
        self._flushed = time.monotonic()

    def fit(self, request: StopRequest) -> nn.Module:
        """Train to the end and return the model with its best weights; the last ones if it was never validated.

        Raises:
            Interrupted: a signal stopped the run after a step; a checkpoint is saved.
            DivergedError: a loss was not finite; noted in the folder.
        """
        state, context, folder = self.state, self.context, self.folder
        if self.config.snapshots and state.progress.step == 0:
            self._save_snapshot()
        if self.config.init_from and state.progress.step == 0:
            self.save_checkpoint()  # so that the run resumes where the pretrained run has moved
        path = folder.metrics if self.is_main else Path(os.devnull)
        hint = f"resume, with any number of processes: … {folder.resume_command}"
        pauses = Pauses(context.group, request, folder.control)
        pauses.remove_file()
        tracking, done = self.tracking, state.progress.step
        tracked = tracking.running(context.config, done) if tracking is not None else nullcontext()
        with tracked, request.waiting_for_step(), open(path, "a", encoding="utf-8", newline="\n") as log:
            try:
                with context.group.peer_failures(self._position, hint):
                    for report in train_steps(state, context, Validator(context), request, pauses):
                        self._after_step(report, log)
                        if report.paused and (stop := pauses.wait(report.step)) is not None:
                            self._stop(stop, saved=self.save_checkpoint())
                    stop = requested_stop(context.group, request)
            except DivergedError as error:
                if self.is_main:
                    folder.write_divergence(state.progress.step + 1, error.message)
                raise
            finally:
                pauses.remove_file()
        if stop is not None:  # it came with the last step or its validation
            raise interruption_error(stop, *where_it_stopped(folder))
        load_weights(state.eval_model, state.best or state.weights())
        return state.eval_model

    def save_checkpoint(self) -> bool:
        """Save the state, its time counted; return False where the disk is full: the previous checkpoint stays."""
        if not self.is_main:
            return True
        began, progress = time.perf_counter(), self.state.progress
        tensors = self.state.tensors()
        facts = {"progress": asdict(progress), "groups": count_groups(tensors), BEGUN: self.begun_with}
        try:
            save_checkpoint(self.folder.checkpoints, f"step-{progress.step:08d}", tensors, facts)
        except ResourceError as error:
            logger.warning(f"{error.message}; this checkpoint is not saved, the previous one stays")
            return False
        finally:
            progress.seconds += time.perf_counter() - began
        return True

    def _after_step(self, report: StepMetrics, log: TextIO) -> None:
        """Log the step, save what is due, and end the run where a signal asks for it."""
        log.write(report.line())
        if report.paused or self.tracking is not None or time.monotonic() - self._flushed >= FLUSH_SECONDS:
            log.flush()
            self._flushed = time.monotonic()
        for follow in (self.tracking, self.on_step if self.is_main else None):
            if follow is not None:
                with turns.released():  # it may wait for another thread that predicts
                    follow(report)
        if self.config.snapshots and is_snapshot_step(report.step):
            self._save_snapshot()
        saved = False
        if report.valid is not None or report.step % self.config.save_every == 0 or report.stop is not None:
            log.flush()
            saved = self.save_checkpoint()
        if report.stop is not None and not self.state.progress.finished:
            self._stop(report.stop, saved)

    def _stop(self, number: int, saved: bool) -> NoReturn:
        kept = "everything is saved" if saved else "the steps since the last checkpoint are lost"
        where = f" at step {self.state.progress.step}; {kept} in {self.folder.path}"
        raise interruption_error(number, where, f"resume with: {self.folder.resume_command}")

    def _save_snapshot(self) -> None:
        if self.is_main:
            began, progress = time.perf_counter(), self.state.progress
            save_snapshot(self.folder.snapshots, progress.step, self.state.weights())
            progress.seconds += time.perf_counter() - began

    def _position(self) -> str:
        return f"at step {self.state.progress.step + 1}; the last checkpoint is in {self.folder.path}"
