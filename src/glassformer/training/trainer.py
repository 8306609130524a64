"""Training a run into its folder, new or resumed: what follows each step, and the end; and several seeds in a row.

Its files are described in `runs/folder.py`. Every seed is trained as a run alone would be; `report/compare.py`
summarises them.

Ctrl-C, SIGTERM and SIGHUP request a stop after the current step, with a checkpoint; a second Ctrl-C aborts. Before the
first step and after the last they stop the run at once. In each case an error says what is saved and how to resume; its
exit code is 128 and the signal's number, as in shells: 129 (SIGHUP), 130 (Ctrl-C) or 143 (SIGTERM).
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TypeAlias

import torch
from torch import nn

from glassformer.config import Config
from glassformer.config.recipes import config_to_dict
from glassformer.data.corpus import corpora_kept
from glassformer.distributed import SINGLE_PROCESS, init_distributed
from glassformer.errors import CheckpointError, DataError, DivergedError, Interrupted, ResourceError, UsageError
from glassformer.report.compare import SeedsRecord, write_seeds_report
from glassformer.runs.folder import BEGUN, ControlFile, RunFolder, SeedsFolder, lock_folder
from glassformer.runs.model_folder import (
    STATE,
    is_snapshot_step,
    latest_checkpoint,
    load_checkpoint,
    load_weights,
    save_checkpoint,
    save_snapshot,
)
from glassformer.runs.records import Evaluation, StepMetrics
from glassformer.training.computing import computing
from glassformer.training.finalize import finish_run
from glassformer.training.finetune import load_pretrained
from glassformer.training.loop import Progress, RunContext, TrainState, Validation, train_steps
from glassformer.training.preparation import describe_environment, new_state, prepare, settle_budget
from glassformer.training.progress import check_tensorboard, event_files
from glassformer.utils.atomic_io import write_json
from glassformer.utils.process_settings import turns
from glassformer.utils.safe_read import from_json

logger = logging.getLogger(__name__)

OnStep = Callable[[StepMetrics], None]
PAUSE_SECONDS = 0.05
"""Time between two looks at `control.json` while the training is paused."""
STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""The signals that stop a run. Windows has no SIGHUP; where it is ignored, as under `nohup`, it stays ignored."""


class Stopped(KeyboardInterrupt):
    """Raised by the handler of a signal where the run cannot wait for the end of a step."""


@dataclass
class StopRequest:
    """The signal that reached this process, if any; all processes decide together when to stop (`trainer.py`).

    Attributes:
        signal: the first that came. in_steps: training, so that the loop stops after the step. reported: the run is
            stopping, and later signals are ignored.
    """

    signal: int | None = None
    in_steps: bool = False
    reported: bool = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Note the first signal and stop, or wait for the end of the step; there only Ctrl-C does not wait twice."""
        again, self.signal = self.signal is not None, self.signal or number
        if not self.reported and (not self.in_steps or (again and number == signal.SIGINT)):
            raise Stopped


def interruption_error(number: int, where: str, hint: str) -> Interrupted:
    """Return the error that ends a run: the signal, where it stopped and what is saved, and how to resume."""
    return Interrupted(f"stopped by {signal.Signals(number).name}{where}", hint, 128 + number)


@contextmanager
def stop_requests(where_stopped: Callable[[], tuple[str, str]]) -> Iterator[StopRequest]:
    """Catch the signals within the block; outside the main thread none can be caught.

    Args:
        where_stopped: returns what the message and the hint say if the block is left by a signal.

    Raises:
        Interrupted: a signal came while it could not wait.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.getsignal(number) for number in STOPPING}
    if before.get(getattr(signal, "SIGHUP", None)) is signal.SIG_IGN:  # pyright: ignore[reportArgumentType]
        del before[signal.SIGHUP]
    try:
        for number in before:
            signal.signal(number, request.handle)
        yield request
    except Stopped:
        request.reported = True
        raise interruption_error(request.signal or signal.SIGINT, *where_stopped()) from None
    finally:
        for number, handler in before.items():
            # A handler that is not Python's own cannot be put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def where_it_stopped(folder: RunFolder) -> tuple[str, str]:
    """Return what is saved in a run folder whose run ends now, and how to resume."""
    path, resume = folder.path, folder.resume_command
    if folder.finished:
        return f" while writing the report; model and scores are saved in {path}", f"finish it with: {resume}"
    if folder.model.is_dir():
        return f" while scoring the trained model, which is saved in {path}", f"finish it with: {resume}"
    if folder.resumable:
        return f"; {path} holds the run up to its last checkpoint", f"resume with: {resume}"
    return f" before the first step; nothing is saved in {path}", "give the same command again"


def train_run(
    folder: RunFolder, config: Config | None = None, on_step: OnStep | None = None, finish: bool = False
) -> None:
    """Train a new run of a configuration into `folder`, evaluate it once and write its report; without one resume it.

    It is resumed as if it had never stopped; of a finished one only the report is written again. With `finish` its best
    weights so far are evaluated instead, and it trains no more.

    Raises:
        UsageError: the folder of a new run is not empty, or cannot be written; or another process trains into it.
        CheckpointError: there is no run in `folder`, its settings have changed, or there is no checkpoint to finish
            from.
        DataError: the data has changed since the run began.
        Interrupted: a signal stopped the run.
    """
    begun = config is None
    if config is None:
        folder.refuse_links()
        config = folder.read_config()
    check_tensorboard(config.train.tensorboard)
    with stop_requests(lambda: where_it_stopped(folder)) as request, ExitStack() as held:
        with init_distributed(config.train.device) as group:
            group.assert_same(run_folder="begun" if begun else "new")
            with group.raise_together():
                if group.is_main and not begun:
                    folder.check_new()
                if group.is_main:
                    held.enter_context(lock_folder(folder.path))
                if group.is_main and not begun:
                    folder.check_new()
                    held.callback(lambda: None if folder.resumable else folder.remove_incomplete_start())
                record = folder.check_unchanged() if begun else ""
            context = prepare(config, folder if begun else None, group)  # data, tokenizer, ids
            context = held.enter_context(computing(context))  # precision, kernels, threads
            if begun:
                state = resumed_state(context, folder, finish)
            else:
                state = new_state(context)  # model, optimizer
                context, data = settle_budget(context, state)
                with group.raise_together():
                    if group.is_main:
                        environment = describe_environment(context)
                        record = folder.begin(context.config, environment, data, context.task.tokenizer)
                with group.raise_together():
                    if not folder.resumable:
                        message = f"{folder.path} is not visible to every process"
                        raise UsageError(message, "name an --out on a disk that all machines share")
            model = Trainer(context, state, record, folder, request, on_step).fit()
        if group.is_main:
            finish_run(replace(context, group=SINGLE_PROCESS), model, folder, state.progress)


def resumed_state(context: RunContext, folder: RunFolder, finish: bool = False) -> TrainState:
    """Return the state in the newest sound checkpoint; without one that before the first step.

    With `finish`, and where the model is made, training is over.

    Raises:
        CheckpointError: the checkpoint is not of this run, its state is not that of this model, or there is none to
            finish from.
    """
    checkpoint, warnings = latest_checkpoint(folder.checkpoints)
    for warning in warnings:
        logger.warning(warning)
    context.group.assert_same(newest_checkpoint=checkpoint.name if checkpoint else "")
    if checkpoint is None:
        logger.info("no checkpoint yet: starting from the beginning")
        if begin := context.config.train.init_from:
            pretrained = load_pretrained(begin, folder.read_data().base.get("sha256", ""))
            context = replace(context, pretrained=pretrained.for_task(context.task))
    state = new_state(context)
    if checkpoint is not None:
        tensors, saved = load_checkpoint(checkpoint)
        folder.check_unchanged(checkpoint / STATE)
        if lost := {*from_json(list[str], saved.get("tensors"), checkpoint / STATE)} - tensors.keys():
            raise CheckpointError(f"{checkpoint} lacks the tensor {min(lost)}", "restore it from a copy")
        try:
            state.load(tensors, from_json(Progress, saved.get("progress"), checkpoint / STATE))
        except CheckpointError as error:
            raise CheckpointError(f"{checkpoint}: {error.message}", "start a new run") from error
        logger.info(f"resumed at step {state.progress.step:,} from {checkpoint}")
    if context.group.is_main:
        folder.truncate_metrics(state.progress.step)
    if finish and state.progress.step == 0:
        raise CheckpointError(f"{folder.path} has no step to finish from", f"resume it: {folder.resume_command}")
    if finish or folder.trained:  # where a model is, training is over
        state.progress.finished = state.progress.finished or "stopped"
        if not finish:
            logger.info(f"{folder.path} trains no more: its model is made, and only missing files are written")
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
        control: what whoever watches asks; it is read by the main process.
    """

    context: RunContext
    state: TrainState
    record: str
    folder: RunFolder
    request: StopRequest
    on_step: OnStep | None = None
    control: ControlFile | None = None

    def fit(self) -> nn.Module:
        """Train to the end and return the model with its best weights; the last ones if it was never validated.

        Raises:
            Interrupted: a signal stopped the run after a step; a checkpoint is saved.
            DivergedError: a loss was not finite; noted in the folder.
        """
        state, context, folder = self.state, self.context, self.folder
        self.config, self.is_main = context.config.train, context.group.is_main
        if self.is_main:
            self.control = ControlFile(folder.control)
            self.control.close()  # it was meant for an earlier training
        if state.progress.step == 0:  # a pretrained run that it begins from may move
            self._save(snapshot=self.config.snapshots, checkpoint=bool(self.config.init_from))
        # Scores, best weights and patience; the log, and who follows; checkpoints; pauses and the end.
        callbacks = [Validation(state, context), self.show, self.keep_weights, self.pause_or_stop]
        path = folder.metrics if self.is_main else os.devnull
        last = f"the last checkpoint is in {folder.path}"
        lost = f"resume, with any number of processes: … {folder.resume_command}"
        with_events = self.config.tensorboard and self.is_main
        try:
            with (
                event_files(folder.path, state.progress.step) if with_events else nullcontext() as self.events,
                open(path, "a", 1, encoding="utf-8", newline="\n") as self.log,
                closing(self.control) if self.control else nullcontext(),
                context.group.peer_failures(lambda: f"at step {state.progress.step + 1}; {last}", lost),
            ):
                self.request.in_steps = True
                train_steps(state, context, callbacks)
                self.look(state.progress.step)  # for what came since the last time
                self._stop_if_signalled()
                self.request.in_steps = False
        except DivergedError as error:
            if self.is_main:
                folder.write_divergence(state.progress.step + 1, error.message)
            raise
        if context.threads is not None:
            torch.set_num_threads(context.threads.most)
        load_weights(state.eval_model, state.best or state.weights())
        return state.eval_model

    def look(self, step: int) -> bool:
        """Look whether to stop after a step, by a signal or as `control.json` asks, and return whether to pause.

        All processes find the same.
        """
        pause = self.control is not None and self.control.pauses(step)
        ends = self.control is not None and self.control.control.stop
        received = (self.request.signal == number for number in STOPPING)
        n_pause, n_ends, *counts = self.context.group.all_reduce(float(pause), float(ends), *received)
        self.signal = next((number for number, n in zip(STOPPING, counts, strict=True) if n), None)
        self.ends = n_ends > 0
        return n_pause > 0

    # What follows each step, in the order of the list in `fit`; none touches a random generator

    def show(self, metrics: StepMetrics) -> None:
        """Log the step, and whether the training pauses after it, and call whoever follows.

        Nothing pauses at the end. Who follows may wait for another thread that predicts, and draw random numbers.
        """
        metrics.paused = self.look(metrics.step) and not self.state.progress.finished
        self.log.write(metrics.line())
        devices = [self.context.device] if self.context.device.type == "cuda" else []
        for follow in (self.events, self.on_step if self.is_main else None):
            if follow is not None:
                with turns.released(), torch.random.fork_rng(devices=devices):
                    follow(metrics)

    def keep_weights(self, metrics: StepMetrics) -> None:
        """Save a snapshot and a checkpoint where they are due."""
        due = metrics.valid is not None or metrics.step % self.config.save_every == 0
        self._save(snapshot=self.config.snapshots and is_snapshot_step(metrics.step), checkpoint=due)

    def pause_or_stop(self, metrics: StepMetrics) -> None:
        """Wait until the training continues, for one more step perhaps, and end it where that was asked.

        After a signal it can be resumed; where the page asks, the best weights so far are scored and reported.
        """
        pause = metrics.paused
        with turns.released() if pause else nullcontext():
            while pause and self.signal is None and not self.ends:
                if self.is_main:  # the others wait for it in each message
                    time.sleep(PAUSE_SECONDS)
                pause = self.look(metrics.step)
        self._stop_if_signalled()
        if self.ends and not self.state.progress.finished:
            self._save()
            self.state.progress.finished = "stopped"

    def _stop_if_signalled(self) -> None:
        """Save and end the run if a signal came."""
        if self.signal is not None:
            kept = "everything is saved" if self._save() else "the steps since the last checkpoint are lost"
            where = f" at step {self.state.progress.step}; {kept} in {self.folder.path}"
            resume = f"resume with: {self.folder.resume_command}; add --finish to score its best weights"
            raise interruption_error(self.signal, where, resume)

    def _save(self, snapshot: bool = False, checkpoint: bool = True) -> bool:
        """Save what is named, its time counted; return False where the disk is full: the previous checkpoint stays."""
        began, progress, saved = time.perf_counter(), self.state.progress, True
        try:
            if self.is_main and checkpoint:
                tensors = self.state.tensors()
                facts = {"progress": asdict(progress), BEGUN: self.record, "tensors": sorted(tensors)}
                save_checkpoint(self.folder.checkpoints, progress.step, tensors, facts)
            if self.is_main and snapshot:
                save_snapshot(self.folder.snapshots, progress.step, self.state.weights())
        except ResourceError as error:
            logger.warning(f"{error.message}; this checkpoint is not saved, the previous one stays")
            saved = False
        progress.seconds += time.perf_counter() - began
        return saved


EvaluateEnsemble: TypeAlias = Callable[[Sequence[Path]], Evaluation]
"""Scores the runs of several folders as an ensemble."""


def start_seeds(
    config: Config, path: Path, n: int, evaluate: EvaluateEnsemble, on_step: OnStep | None = None
) -> SeedsRecord:
    """Train `n` consecutive seeds of a configuration, each into a run folder in `path`; see `resume_seeds`.

    Raises:
        UsageError: there are fewer than two seeds, or the folder is not empty.
        DivergedError: all seeds diverged; a warning is logged for some.
    """
    if n < 2:
        raise UsageError(f"seeds is the number of runs to compare, at least 2; got {n}", "leave it out for one run")
    RunFolder(path).check_new()
    folder = SeedsFolder(path)
    with lock_folder(path):
        RunFolder(path).check_new()
        seeds = [config.train.seed + i for i in range(n)]
        write_json(folder.seeds_file, {"seeds": seeds, "config": config_to_dict(config)})
    try:
        return resume_seeds(folder, evaluate, on_step)
    except (DataError, UsageError):
        if not any(path.glob("seed-*")):  # no seed was begun, and the folder is free for another command
            folder.seeds_file.unlink()
            path.rmdir()
        raise


def resume_seeds(folder: SeedsFolder, evaluate: EvaluateEnsemble, on_step: OnStep | None = None) -> SeedsRecord:
    """Train the unfinished seeds of a seeds folder, score all as an ensemble, and write and return the summary.

    The first seed converts a budget in minutes to steps; the others take as many, so that runs are comparable.

    Args:
        folder: the seeds folder.
        evaluate: scores the runs of several folders as an ensemble.
        on_step: called with the metrics of each step.

    Raises:
        UsageError: another process trains into the folder.
        CheckpointError: the settings or the data record of a seed that was begun have changed since.
    """
    RunFolder(folder.path).refuse_links()
    resume = f"resume with: {RunFolder(folder.path).resume_command}"
    where = f"; the seeds that are trained are saved in {folder.path}", resume
    with lock_folder(folder.path), stop_requests(lambda: where), corpora_kept():
        try:
            config, seeds = folder.read()
            for begun in (run for run in map(folder.run, seeds) if run.resumable):
                begun.check_unchanged()  # the others take its settings, and the report compares them
            _train_each(folder, config, seeds, on_step)
            _evaluate_ensemble(folder, evaluate)
            return write_seeds_report(folder)
        except Interrupted as error:
            raise Interrupted(error.message, resume, error.exit_code) from None


def _train_each(folder: SeedsFolder, config: Config, seeds: list[int], on_step: OnStep | None) -> None:
    for number, seed in enumerate(seeds, start=1):
        run, first = folder.run(seed), folder.run(seeds[0])
        if run.finished and run.report.is_file():
            continue
        logger.info(f"seed {seed}, run {number} of {len(seeds)}: {run.path}")
        folder.ensemble.unlink(missing_ok=True)  # an earlier one was of fewer runs
        try:
            if run.resumable:
                train_run(run, on_step=on_step)
                continue
            with lock_folder(run.path):
                run.remove_incomplete_start()
            settled = first.read_config() if first.resumable else config
            train_run(run, replace(settled, train=replace(settled.train, seed=seed)), on_step)
        except DivergedError as error:
            logger.warning(f"seed {seed}: {error.message}")
            if number == len(seeds) and not folder.finished:
                raise


def _evaluate_ensemble(folder: SeedsFolder, evaluate: EvaluateEnsemble) -> None:
    runs = folder.finished
    if len(runs) < 2 or folder.ensemble.is_file():
        return
    logger.info(f"evaluating the {len(runs)} runs as an ensemble, by the mean of their outputs")
    try:
        write_json(folder.ensemble, evaluate([run.path for run in runs]).as_json())
    except (DataError, UsageError) as error:
        logger.warning(f"the runs are not scored as an ensemble: {error.message}")
