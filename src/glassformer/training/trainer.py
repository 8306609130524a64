"""Training a run into its folder: log, checkpoints, snapshots, resuming.

Its files are described in `runs/folder.py`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TextIO

import torch
from torch import nn

from glassformer.config import Config
from glassformer.distributed.process_group import SINGLE_PROCESS, init_distributed
from glassformer.errors import CheckpointError, DivergedError, ResourceError, UsageError
from glassformer.runs.checkpoints import STATE, latest_checkpoint, load_checkpoint, save_checkpoint
from glassformer.runs.folder import BEGUN, RunFolder
from glassformer.runs.lock import lock_folder
from glassformer.runs.records import StepMetrics
from glassformer.runs.snapshots import is_snapshot_step, save_snapshot
from glassformer.runs.tensor_file import load_weights
from glassformer.training.context import RunContext
from glassformer.training.environment import describe_data, describe_environment
from glassformer.training.finalize import finish_run
from glassformer.training.finetune import copy_pretrained_weights, reload_pretrained
from glassformer.training.loop import requested_stop, train_steps
from glassformer.training.preparation import prepare_distributed, settle_budget
from glassformer.training.saved_state import HINT, check_groups, count_groups, read_progress
from glassformer.training.signals import StopRequest, interruption_error, stop_requests, where_it_stopped
from glassformer.training.state import TrainState
from glassformer.training.validation import Validator
from glassformer.utils.device import choose_device, tuned
from glassformer.utils.process_settings import turns

logger = logging.getLogger(__name__)


OnStep = Callable[[StepMetrics], None]


@contextmanager
def _running(config: Config, folder: RunFolder) -> Iterator[tuple[StopRequest, ExitStack]]:
    """Note signals and tune torch until the report is written; what is entered in the stack is held as long."""
    device, deterministic = choose_device(config.train.device), config.train.deterministic
    with stop_requests(lambda: where_it_stopped(folder)) as request, tuned(device, deterministic), ExitStack() as held:
        yield request, held


def start_run(config: Config, folder: RunFolder, on_step: OnStep | None = None) -> None:
    """Train a new run into `folder`, evaluate it once and write its report.

    Raises:
        UsageError: the folder is not empty, cannot be written, or another process trains into it.
        Interrupted: a signal stopped the run.
    """
    with _running(config, folder) as (request, held):
        with init_distributed(config.train.device) as group:
            group.assert_same(run_folder="new")
            with group.raise_together():
                if group.is_main:
                    folder.check_new()
                    held.enter_context(lock_folder(folder.path))
                    folder.check_new()
                    held.callback(lambda: None if folder.resumable else folder.remove_incomplete_start())
            context, facts = settle_budget(prepare_distributed(config, group))
            with group.raise_together():
                if group.is_main:
                    environment = describe_environment(context.device, context.precision)
                    folder.begin(context.config, environment, describe_data(context, facts), context.task.tokenizer)
            with group.raise_together():
                if not folder.resumable:
                    message = f"{folder.path} is not visible to every process"
                    raise UsageError(message, "name an --out on a disk that all machines share")
            model = Trainer(context, folder, on_step).fit(request)
        if group.is_main:
            finish_run(replace(context, group=SINGLE_PROCESS), model, folder)


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
    if config.train.minutes is not None:
        raise CheckpointError(f"{folder.config} has a budget in minutes, not in steps", "start a new run")
    with _running(config, folder) as (request, held):
        with init_distributed(config.train.device) as group:
            group.assert_same(run_folder="begun")
            with group.raise_together():
                if group.is_main:
                    held.enter_context(lock_folder(folder.path))
                    folder.check_unchanged()
            context = prepare_distributed(config, group, folder.read_tokenizer(), folder.path)
            model = Trainer(context, folder, on_step, resume=True).fit(request)
        if group.is_main:
            finish_run(replace(context, group=SINGLE_PROCESS), model, folder)


class Trainer:
    """The training of one run: its state, and what is logged and saved after each step.

    Args:
        context: data, task, device and processes.
        folder: the run folder; of several processes only the main one writes there.
        on_report: called with each report in the main process.
        resume: continue from the newest sound checkpoint; without one training starts from the beginning.
    """

    def __init__(
        self, context: RunContext, folder: RunFolder, on_step: OnStep | None = None, *, resume: bool = False
    ) -> None:
        self.context, self.folder, self.on_step = context, folder, on_step
        self.config, self.is_main = context.config.train, context.group.is_main
        self.start_record = folder.check_unchanged()
        self.state = self._setup(resume)

    def fit(self, request: StopRequest) -> nn.Module:
        """Train to the end and return the model with its best weights; the last ones if it was never validated.

        Raises:
            Interrupted: a signal stopped the run after a step; a checkpoint is saved.
            DivergedError: a loss was not finite; noted in the folder.
        """
        state, context, folder = self.state, self.context, self.folder
        if self.config.snapshots and state.progress.step == 0:
            self._save_snapshot()
        path = folder.metrics if self.is_main else Path(os.devnull)
        hint = f"resume, with any number of processes: … {folder.resume_command}"
        with request.waiting_for_step(), open(path, "a", encoding="utf-8", newline="\n") as log:
            try:
                with context.group.peer_failures(self._position, hint):
                    for report in train_steps(state, context, Validator(context), request):
                        self._after_step(report, log)
                    stop = requested_stop(context.group, request)
            except DivergedError as error:
                if self.is_main:
                    folder.write_divergence(state.progress.step + 1, error.message)
                raise
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
        facts = {"progress": asdict(progress), "groups": count_groups(tensors), BEGUN: self.start_record}
        try:
            save_checkpoint(self.folder.checkpoints, f"step-{progress.step:08d}", tensors, facts)
        except ResourceError as error:
            logger.warning(f"{error.message}; this checkpoint is not saved, the previous one stays")
            return False
        finally:
            progress.seconds += time.perf_counter() - began
        return True

    def _setup(self, resume: bool) -> TrainState:
        """Build the model with random, pretrained or saved weights, and the state around it."""
        context, folder = self.context, self.folder
        torch.manual_seed(self.config.seed)
        model = context.task.build_model().to(context.device)
        checkpoint = self._newest_checkpoint() if resume else None
        context.group.assert_same(newest_checkpoint=checkpoint.name if checkpoint else "")
        if checkpoint is None and self.config.init_from:
            sha256 = folder.read_data().base.get("sha256", "")
            copy_pretrained_weights(model, context.pretrained or reload_pretrained(self.config.init_from, sha256))
        state = TrainState.start(model, context.task, context.group)
        if checkpoint is not None:
            tensors, saved = load_checkpoint(checkpoint)
            where = checkpoint / STATE
            folder.compare_start(saved.get(BEGUN), self.start_record, where)
            progress = read_progress(saved.get("progress"), where, context)
            check_groups(tensors, saved.get("groups"), where)
            try:
                state.load(tensors, progress)
            except CheckpointError as error:
                raise CheckpointError(f"{checkpoint}: {error.message}", error.hint or HINT) from error
            logger.info(f"resumed at step {state.progress.step:,} from {checkpoint}")
        elif resume:
            logger.info("no checkpoint yet: starting from the beginning")
        if resume and self.is_main:
            folder.truncate_metrics(state.progress.step)
            folder.clear_divergence()
        return state

    def _after_step(self, report: StepMetrics, log: TextIO) -> None:
        """Log the step, save what is due, and end the run where a signal asks for it."""
        log.write(report.line())
        if self.on_step is not None and self.is_main:
            with turns.released():  # it may wait for another thread that predicts
                self.on_step(report)
        if self.config.snapshots and is_snapshot_step(report.step):
            self._save_snapshot()
        saved = False
        if report.valid is not None or report.step % self.config.save_every == 0 or report.stop is not None:
            log.flush()
            saved = self.save_checkpoint()
        if report.stop is not None and not self.state.progress.finished:
            kept = "everything is saved" if saved else "the steps since the last checkpoint are lost"
            where = f" at step {report.step}; {kept} in {self.folder.path}"
            raise interruption_error(report.stop, where, f"resume with: {self.folder.resume_command}")

    def _save_snapshot(self) -> None:
        """Save the weights as they would be validated now, the time counted."""
        if self.is_main:
            began, progress = time.perf_counter(), self.state.progress
            save_snapshot(self.folder.snapshots, progress.step, self.state.weights())
            progress.seconds += time.perf_counter() - began

    def _newest_checkpoint(self) -> Path | None:
        path, warnings = latest_checkpoint(self.folder.checkpoints)
        for warning in warnings:
            logger.warning(warning)
        return path

    def _position(self) -> str:
        return f"at step {self.state.progress.step + 1}; the last checkpoint is in {self.folder.path}"
