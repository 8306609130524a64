"""Training a run into its folder: log, checkpoints, snapshots, resuming.

A checkpoint may be damaged by hand or made by someone else: each value must have its type and limits, and the position
be one of the run, so that training ends in bounded time.

Its files are described in `runs/folder.py`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import NoReturn, TextIO

import torch
from torch import nn

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
from glassformer.runs.records import INITIAL, DataRecord, JsonObject, StartRecord, StepMetrics
from glassformer.runs.tracking import EventFiles, check_tensorboard
from glassformer.training.computing import computing
from glassformer.training.finalize import finish_run
from glassformer.training.finetune import reload_pretrained
from glassformer.training.loop import requested_stop, train_steps
from glassformer.training.pauses import Pauses
from glassformer.training.preflight import describe_environment
from glassformer.training.preparation import new_state, prepare_distributed, settle_budget
from glassformer.training.signals import StopRequest, interruption_error, stop_requests, where_it_stopped
from glassformer.training.state import Progress, RunContext, TrainState
from glassformer.training.validation import Validator
from glassformer.utils.process_settings import turns
from glassformer.utils.safe_read import dataclass_from_json

HINT = "restore the checkpoint from a copy, or remove it to resume from the one before"


def read_progress(value: object, where: Path, context: RunContext) -> JsonObject:
    """Return the fields of `Progress` in a checkpoint, where it is a position in this run.

    Raises:
        CheckpointError: a field is missing, unknown, of another type, or beyond the run's settings and data.
    """
    p, train = dataclass_from_json(Progress, value, f"{where}: progress"), context.config.train
    n_batches = len(context.task.epoch_batches(context.train, p.epoch)) if p.epoch <= p.step else 0
    sound = (
        asdict(p) == value
        and where.parent.name == f"step-{p.step:08d}"
        and (1 - bool(train.init_from)) <= p.step <= (train.steps or p.step)  # weights begun with are kept at step 0
        and p.position < n_batches
        and p.position % train.accumulate == 0
    )
    if not sound:
        raise CheckpointError(f"{where}: progress is not that of this run: {str(value)[:500]}", HINT)
    return asdict(p)


logger = logging.getLogger(__name__)


OnStep = Callable[[StepMetrics], None]
FLUSH_SECONDS = 1.0
"""Time after which a line of the log is on the disk, for who watches."""


def start_run(config: Config, folder: RunFolder, on_step: OnStep | None = None) -> None:
    """Train a new run into `folder`, evaluate it once and write its report.

    Raises:
        UsageError: the folder is not empty, cannot be written, or another process trains into it.
        Interrupted: a signal stopped the run.
    """
    check_tensorboard(config.train.tensorboard)
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
            model = Trainer(context, folder, state, begun_with, on_step).fit(request)
        if group.is_main:
            finish_run(replace(context, group=SINGLE_PROCESS), model, folder)


def _begin(
    folder: RunFolder, context: RunContext, data: DataRecord, initial: tuple[float, float] | None
) -> StartRecord:
    """Write what is known before the first step, and return the record of it; in the main process alone.

    `initial` are metric and loss of the weights, where these count as validated.
    """
    begun_with = StartRecord({}, "", "")
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


def resume_run(folder: RunFolder, on_step: OnStep | None = None) -> None:
    """Resume a run as if it had never stopped; of a finished one only the report is written again.

    Raises:
        CheckpointError: there is no run in `folder`, its budget is not in steps, or its settings have changed.
        DataError: the data has changed since the run began.
        UsageError: another process trains into the folder.
        Interrupted: a signal stopped the run.
    """
    folder.refuse_links()
    config = folder.read_config()
    check_tensorboard(config.train.tensorboard)
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
            state = resumed_state(context, folder, begun_with)
            model = Trainer(context, folder, state, begun_with, on_step).fit(request)
        if group.is_main:
            finish_run(replace(context, group=SINGLE_PROCESS), model, folder)


def resumed_state(context: RunContext, folder: RunFolder, begun_with: StartRecord) -> TrainState:
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
    """

    def __init__(
        self,
        context: RunContext,
        folder: RunFolder,
        state: TrainState,
        begun_with: StartRecord,
        on_step: OnStep | None = None,
    ) -> None:
        self.context, self.folder, self.state = context, folder, state
        self.begun_with, self.on_step = begun_with, on_step
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
        writes_events = self.config.tensorboard and self.is_main
        events = EventFiles(folder.path, state.progress.step) if writes_events else nullcontext()
        with events as self.events, request.waiting_for_step(), open(path, "a", encoding="utf-8", newline="\n") as log:
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
        facts = {"progress": asdict(progress), BEGUN: asdict(self.begun_with)}
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
        if report.paused or time.monotonic() - self._flushed >= FLUSH_SECONDS:
            log.flush()
            self._flushed = time.monotonic()
        devices = [self.context.device] if self.context.device.type == "cuda" else []
        for follow in (self.events, self.on_step if self.is_main else None):
            if follow is not None:
                # It may wait for another thread that predicts, and draw random numbers.
                with turns.released(), torch.random.fork_rng(devices=devices):
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
