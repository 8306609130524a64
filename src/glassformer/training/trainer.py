"""Training a run into its folder, new or resumed: what follows each step, and the end.

Its files are described in `runs/folder.py`.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial

import torch
from torch import nn

from glassformer.config import Config
from glassformer.distributed.process_group import SINGLE_PROCESS, ProcessGroup, init_distributed
from glassformer.errors import CheckpointError, DivergedError, ResourceError, UsageError
from glassformer.runs.folder import BEGUN, ControlFile, RunFolder, lock_folder
from glassformer.runs.model_folder import (
    STATE,
    is_snapshot_step,
    latest_checkpoint,
    load_checkpoint,
    load_weights,
    save_checkpoint,
    save_snapshot,
)
from glassformer.runs.records import StepMetrics
from glassformer.training.computing import computing
from glassformer.training.finalize import finish_run
from glassformer.training.finetune import reload_pretrained
from glassformer.training.loop import end_of_budget, train_steps
from glassformer.training.preflight import describe_environment
from glassformer.training.preparation import new_state, prepare_distributed, settle_budget
from glassformer.training.signals import STOPPING, StopRequest, interruption_error, stop_requests, where_it_stopped
from glassformer.training.state import Progress, RunContext, TrainState
from glassformer.training.validation import Validation
from glassformer.utils.process_settings import turns
from glassformer.utils.safe_read import dataclass_from_json

logger = logging.getLogger(__name__)

OnStep = Callable[[StepMetrics], None]
PAUSE_SECONDS = 0.05
"""Time between two looks at `control.json` while the training is paused."""


Begun = tuple[RunContext, TrainState, str]
"""A run before its next step, and the record of what it was begun with, for its checkpoints."""


def start_run(config: Config, folder: RunFolder, on_step: OnStep | None = None) -> None:
    """Train a new run into `folder`, evaluate it once and write its report.

    Raises:
        UsageError: the folder is not empty, cannot be written, or another process trains into it.
        Interrupted: a signal stopped the run.
    """
    _run(config, folder, on_step, _new)


def resume_run(folder: RunFolder, on_step: OnStep | None = None, finish: bool = False) -> None:
    """Resume a run as if it had never stopped; of a finished one only the report is written again.

    With `finish` its best weights so far are evaluated instead, and it trains no more.

    Raises:
        CheckpointError: there is no run in `folder`, its budget is not in steps, its settings have changed, or there is
            no checkpoint to finish from.
        DataError: the data has changed since the run began.
        UsageError: another process trains into the folder.
        Interrupted: a signal stopped the run.
    """
    folder.refuse_links()
    config = folder.read_config()
    if config.train.minutes is not None:
        raise CheckpointError(f"{folder.config} has a budget in minutes, not in steps", "start a new run")
    _run(config, folder, on_step, partial(_resumed, finish=finish))


def _run(config: Config, folder: RunFolder, on_step: OnStep | None, begin: Callable[..., Begun]) -> None:
    with stop_requests(lambda: where_it_stopped(folder)) as request, ExitStack() as held:
        with init_distributed(config.train.device) as group:
            context, state, record = begin(config, folder, group, held)
            model = Trainer(context, state, record, folder, request, on_step).fit()
        if group.is_main:
            finish_run(replace(context, group=SINGLE_PROCESS), model, folder, state.progress)


def _new(config: Config, folder: RunFolder, group: ProcessGroup, held: ExitStack) -> Begun:
    """Return a new run, after writing what is known before the first step."""
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
    record = ""
    with group.raise_together():
        if group.is_main:
            record = folder.begin(context.config, describe_environment(context), data, context.task.tokenizer)
    with group.raise_together():
        if not folder.resumable:
            message = f"{folder.path} is not visible to every process"
            raise UsageError(message, "name an --out on a disk that all machines share")
    return context, state, record


def _resumed(config: Config, folder: RunFolder, group: ProcessGroup, held: ExitStack, finish: bool) -> Begun:
    """Return a run at its newest sound checkpoint; without one before its first step."""
    group.assert_same(run_folder="begun")
    with group.raise_together():
        if group.is_main:
            held.enter_context(lock_folder(folder.path))
        record = folder.check_unchanged()
    context = prepare_distributed(config, group, folder.read_tokenizer(), folder.path)
    context = held.enter_context(computing(context))
    state = resumed_state(context, folder)
    if finish and state.progress.step == 0:
        raise CheckpointError(f"{folder.path} has no step to finish from", f"resume it: {folder.resume_command}")
    if finish or folder.trained:  # where a model is, training is over
        state.progress.finished = state.progress.finished or "stopped"
    return context, state, record


def resumed_state(context: RunContext, folder: RunFolder) -> TrainState:
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
        folder.check_begun(saved.get(BEGUN), checkpoint / STATE)
        try:
            state.load(tensors, dataclass_from_json(Progress, saved.get("progress"), checkpoint / STATE))
        except CheckpointError as error:
            raise CheckpointError(f"{checkpoint}: {error.message}", "start a new run") from error
        logger.info(f"resumed at step {state.progress.step:,} from {checkpoint}")
    if context.group.is_main:
        folder.truncate_metrics(state.progress.step)
    return state


@dataclass
class Trainer:
    """The training of one run, and what follows each of its steps.

    Attributes:
        context: data, task, device and processes. state: the model and its optimizer, perhaps resumed.
        record: what the run was begun with, for its checkpoints.
        folder: the run folder; of several processes only the main one writes there.
        request: the signal that came, if any.
        on_step: called with the metrics of each step in the main process.
    """

    context: RunContext
    state: TrainState
    record: str
    folder: RunFolder
    request: StopRequest
    on_step: OnStep | None = None

    def __post_init__(self) -> None:
        self.config, self.is_main = self.context.config.train, self.context.group.is_main
        self.control = ControlFile(self.folder.control) if self.is_main else None
        if self.control is not None:
            self.control.close()  # it was meant for an earlier training

    def fit(self) -> nn.Module:
        """Train to the end and return the model with its best weights; the last ones if it was never validated.

        Raises:
            Interrupted: a signal stopped the run after a step; a checkpoint is saved.
            DivergedError: a loss was not finite; noted in the folder.
        """
        state, context, folder = self.state, self.context, self.folder
        if state.progress.step == 0:  # a pretrained run that it begins from may move
            self._save(snapshot=self.config.snapshots, checkpoint=bool(self.config.init_from))
        callbacks = [
            end_of_budget(state),
            Validation(state, context),  # scores, the best weights, patience
            self.note_requests,
            self.write_log,
            self.show,
            self.keep_weights,
            self.pause_or_stop,
        ]
        path = folder.metrics if self.is_main else os.devnull
        last = f"the last checkpoint is in {folder.path}"
        lost = f"resume, with any number of processes: … {folder.resume_command}"
        try:
            with (
                open(path, "a", 1, encoding="utf-8", newline="\n") as self.log,
                closing(self.control) if self.control else nullcontext(),
                self.request.waiting_for_step(),
                context.group.peer_failures(lambda: f"at step {state.progress.step + 1}; {last}", lost),
            ):
                train_steps(state, context, callbacks)
                self._stop_after(self._requested(state.progress.step)[1])  # came since the last look
        except DivergedError as error:
            if self.is_main:
                folder.write_divergence(state.progress.step + 1, error.message)
            raise
        if context.threads is not None:
            torch.set_num_threads(context.threads.most)
        load_weights(state.eval_model, state.best or state.weights())
        return state.eval_model

    # What follows each step, in the order of the list above; none touches a random generator

    def note_requests(self, metrics: StepMetrics) -> StepMetrics:
        """Note what a signal or `control.json` asks; nothing pauses at the end."""
        pause, stop = self._requested(metrics.step)
        return replace(metrics, paused=pause and not self.state.progress.finished, stop=stop)

    def write_log(self, metrics: StepMetrics) -> StepMetrics:
        self.log.write(metrics.line())
        return metrics

    def show(self, metrics: StepMetrics) -> StepMetrics:
        """Call whoever follows; they may wait for another thread that predicts, and draw random numbers."""
        devices = [self.context.device] if self.context.device.type == "cuda" else []
        if self.on_step is not None and self.is_main:
            with turns.released(), torch.random.fork_rng(devices=devices):
                self.on_step(metrics)
        return metrics

    def keep_weights(self, metrics: StepMetrics) -> StepMetrics:
        """Save a snapshot and a checkpoint where they are due."""
        due = metrics.valid is not None or metrics.step % self.config.save_every == 0
        self._save(snapshot=self.config.snapshots and is_snapshot_step(metrics.step), checkpoint=due)
        return metrics

    def pause_or_stop(self, metrics: StepMetrics) -> StepMetrics:
        """Wait until the training continues, for one more step perhaps, and end it where a signal came."""
        pause, stop = metrics.paused, metrics.stop
        with turns.released() if pause else nullcontext():
            while pause and stop is None:
                if self.is_main:  # the others wait for it in each message
                    time.sleep(PAUSE_SECONDS)
                pause, stop = self._requested(metrics.step)
        self._stop_after(stop)
        return metrics

    # What these use

    def _requested(self, step: int) -> tuple[bool, int | None]:
        """Return whether a process asks to pause after a step, and the signal that reached any; in all the same."""
        pause = self.control is not None and self.control.pauses(step)
        if self.control is not None and self.control.control.stop:
            self.request.signal = self.request.signal or signal.SIGINT
        received = (self.request.signal == number for number in STOPPING)
        n_pause, *counts = self.context.group.all_reduce(float(pause), *received)
        return n_pause > 0, next((number for number, n in zip(STOPPING, counts, strict=True) if n), None)

    def _stop_after(self, number: int | None) -> None:
        """Save and end the run if there is a signal."""
        if number is not None:
            kept = "everything is saved" if self._save() else "the steps since the last checkpoint are lost"
            where = f" at step {self.state.progress.step}; {kept} in {self.folder.path}"
            go_on = f"resume with: {self.folder.resume_command}; add --finish to score its best weights"
            raise interruption_error(number, where, go_on)

    def _save(self, snapshot: bool = False, checkpoint: bool = True) -> bool:
        """Save what is named, its time counted; return False where the disk is full: the previous checkpoint stays."""
        began, progress, saved = time.perf_counter(), self.state.progress, True
        try:
            if self.is_main and checkpoint:
                facts = {"progress": asdict(progress), BEGUN: self.record}
                save_checkpoint(self.folder.checkpoints, progress.step, self.state.tensors(), facts)
            if self.is_main and snapshot:
                save_snapshot(self.folder.snapshots, progress.step, self.state.weights())
        except ResourceError as error:
            logger.warning(f"{error.message}; this checkpoint is not saved, the previous one stays")
            saved = False
        progress.seconds += time.perf_counter() - began
        return saved
