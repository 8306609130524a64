"""A run from recipe to report: what is written when, and resuming it. What the files are: `runs/folder.py`."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TextIO

import torch
from torch import nn

from glassformer.config import Config
from glassformer.config.recipes import BUDGETS, dump_config
from glassformer.data.datasets.loading import load_text_data
from glassformer.data.diagnostics import changed_files
from glassformer.data.download import cache_dir
from glassformer.distributed.process_group import ALONE, Ranks, joined
from glassformer.errors import CheckpointError, DataError, DivergedError, ResourceError, UsageError
from glassformer.runs.checkpoints import latest_checkpoint, load_checkpoint, save_checkpoint
from glassformer.runs.folder import RunFolder
from glassformer.runs.records import MetricsLine, StepReport, pick
from glassformer.runs.sealed_folder import installed
from glassformer.runs.snapshots import is_snapshot_step, save_snapshot
from glassformer.runs.tensor_file import load_weights
from glassformer.tasks import task_class
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.auto_config import apply_auto_config
from glassformer.training.budget import in_updates, measure_pace
from glassformer.training.context import RunContext
from glassformer.training.environment import PACKAGES, describe_data, describe_environment
from glassformer.training.finalize import finish_run
from glassformer.training.finetune import check_compatible, copy_pretrained_weights, load_pretrained, reload_pretrained
from glassformer.training.loop import train_steps
from glassformer.training.preflight import Preflight, preflight
from glassformer.training.signals import interruption_error, stop_requests
from glassformer.training.state import TrainState
from glassformer.training.validation import Validator
from glassformer.utils import atomic_io, console
from glassformer.utils.device import choose_device, choose_precision, tuned
from glassformer.utils.formatting import counted

OnReport = Callable[[StepReport], None]
MANY_CHARS = 20_000_000
"""From so many characters on a person is told that reading them takes a while, before anything else can be said."""


def prepare(config: Config, tokenizer: Tokenizer | None = None) -> RunContext:
    """Load the text, train the tokenizer unless given (by a run to begin from, too), encode both splits, choose the device."""
    kind, base = task_class(config.task), None
    budget = any(getattr(config.train, name) for name in BUDGETS) or set(BUDGETS) & set(config.auto)
    if not budget:
        raise UsageError("nothing says when to stop", "give --epochs, --steps or --minutes")
    device = choose_device(config.train.device)
    precision = choose_precision(config.train.precision, device)
    if config.train.init_from and tokenizer is None:
        base = load_pretrained(config.train.init_from)
        check_compatible(config, base)
        tokenizer = base.tokenizer
    config, data = apply_auto_config(config, kind, load_text_data(kind.schema, config.data))
    if kind.schema.columns is not None and len(data.train) > 1 and len(set(data.train.text)) == 1:
        what = (
            f"{data.train.source}: all {len(data.train):,} texts are the same, so there is nothing to learn from them"
        )
        raise DataError(what, "look at the column of texts: glassformer data show")
    if (n_chars := sum(map(len, data.train.text))) >= MANY_CHARS:
        told = f"{counted(len(data.train.text), 'texts')} of {n_chars / 1e6:,.1f} million characters"
        console.say(f"reading     {told}: tokenizer and encoding can take minutes")
    task = kind.from_data(config, data, tokenizer)
    cache = cache_dir() / "encoded"
    train = task.encode(data.train, training=True, cache=cache)
    valid = task.encode(data.valid, training=False, cache=cache)
    if len(train) == 0 or len(valid) == 0:
        raise DataError(f"{data.train.source}: nothing is left to train or validate on", "check --max-len")
    return RunContext(data, task, train, valid, device, precision, base)


def prepare_together(config: Config, ranks: Ranks, tokenizer: Tokenizer | None = None) -> RunContext:
    """`prepare` in every process: the first of a machine encodes, the others find what it did.

    Raises:
        UsageError: they differ in what they were given, or are more than an update can be divided among.
    """
    run = None
    for first_of_machine in (True, False):
        with ranks.agreed():
            if (ranks.local == 0) is first_of_machine:
                run = prepare(config, tokenizer)
    assert run is not None
    run, versions = replace(run, ranks=ranks), installed(*PACKAGES)
    ranks.same(
        configuration=dump_config(run.config),
        data=str(sorted(run.data.hashes.items())),
        tokenizer=run.task.tokenizer.sha256,
        versions=str(versions),
        precision=run.precision,
        examples=f"{len(run.train)} {len(run.valid)}",
    )
    plan, n = run.task.epoch_batches(run.train, 0), config.train.accumulate
    sizes = (sum(map(len, plan[i : i + n])) for i in range(0, len(plan), n))
    most = 0
    for size in sizes:  # the first update that is large enough ends it: a plan may be very long
        if (most := max(most, size)) >= ranks.size:
            break
    else:
        told = f"an update has {most} examples at most, too few for {ranks.size} processes"
        raise UsageError(told, "start fewer, or raise --max-tokens or --accumulate")
    return run


def look_ahead(run: RunContext) -> tuple[RunContext, Preflight]:
    """Measure the speed, tell people the facts before step 1, and settle a budget in minutes as updates.

    Returns:
        The run with a budget that no clock decides, and the facts.
    """
    for note in run.data.notes:
        console.say(note)
    pace, c = measure_pace(run), run.config.train
    n_batches = len(run.task.epoch_batches(run.train, 0))
    settled = run.with_config(in_updates(run.config, pace, math.ceil(n_batches / c.accumulate)))
    facts = preflight(settled, pace)
    for line in facts.lines():
        console.say(line)
    for sentence in facts.warnings:
        console.warn(sentence)
    if c.minutes is not None:
        console.say(f"budget      {c.minutes:g} min is {settled.config.train.steps:,} updates here")
    return settled, facts


def start_run(config: Config, folder: RunFolder, on_report: OnReport | None = None) -> None:
    """Train a new run into `folder`, evaluate it once, write its report.

    Raises:
        UsageError: it holds something already, or cannot be written.
    """
    with joined(config.train.device) as ranks:
        ranks.same(run_folder="new")
        with ranks.agreed():
            if ranks.first:
                folder.check_new()
        run, facts = look_ahead(prepare_together(config, ranks))
        with ranks.agreed():
            if ranks.first:
                env = describe_environment(run.device, run.precision)
                folder.begin(run.config, env, describe_data(run, facts), run.task.tokenizer)
        with ranks.agreed():
            if not folder.resumable:
                told = f"{folder.path} is not there for every process"
                raise UsageError(told, "name an --out on a disk that all machines share")
        model = _train(run, folder, on_report, resume=False)
    if ranks.first:
        finish_run(replace(run, ranks=ALONE), model, folder)


def resume_run(folder: RunFolder, on_report: OnReport | None = None) -> None:
    """Go on with a run as if it had never stopped; does nothing more to a finished one but its report.

    Raises:
        CheckpointError: there is no run in `folder`, or its budget is not in updates.
        DataError: the data is no longer what the run began with.
    """
    config = folder.read_config()
    if config.train.minutes is not None:
        raise CheckpointError(f"{folder.config} has a budget in minutes, not in updates", "start a new run")
    with (
        tuned(choose_device(config.train.device), config.train.deterministic),
        joined(config.train.device) as ranks,
    ):
        ranks.same(run_folder="begun")
        prepared = prepare_together(config, ranks, folder.read_tokenizer())
        if changed := changed_files(folder.read_data().hashes, prepared.data.hashes):
            raise DataError(f"{changed[0]} has changed since the run began", "restore it, or start a new run")
        model = _train(prepared, folder, on_report, resume=True)
    if ranks.first:
        finish_run(replace(prepared, ranks=ALONE), model, folder)


def _train(p: RunContext, folder: RunFolder, on_report: OnReport | None, *, resume: bool) -> nn.Module:
    """Train to the end, and return the model with its best weights; of several processes the first alone writes."""
    torch.manual_seed(p.config.train.seed)
    model = p.task.build_model().to(p.device)
    checkpoint = _newest_checkpoint(folder) if resume else None
    p.ranks.same(newest_checkpoint=checkpoint.name if checkpoint else "")
    if checkpoint is None and p.config.train.init_from:
        known = folder.read_data().base.get("sha256", "")
        copy_pretrained_weights(model, p.base or reload_pretrained(p.config.train.init_from, known))
    state = TrainState.start(model, p.config.train, p.ranks)
    if resume:
        _restore(state, folder, checkpoint)
        if p.ranks.first:
            folder.cut_metrics(state.progress.step)
            folder.forget_divergence()
    if p.config.train.snapshots and state.progress.step == 0:
        _keep_snapshot(state, p, folder)
    mine = nullcontext() if p.ranks.first else atomic_io.reading_only()
    log = folder.metrics if p.ranks.first else Path(os.devnull)
    on = f"go on, in as many processes as you like: … glassformer train --resume {folder.path}"
    with stop_requests() as request, mine, open(log, "a", encoding="utf-8", newline="\n") as lines:
        try:
            with p.ranks.watched(lambda: _standing(state, folder), on):
                for report in train_steps(state, p, Validator(p), request):
                    saved = _keep(report, state, p, folder, lines, on_report)
                    if report.stop is not None and not state.progress.finished:
                        raise interruption_error(report.stop, report.step, folder.path, saved)
        except DivergedError as error:
            if p.ranks.first:
                folder.note_divergence(state.progress.step + 1, error.message)
            raise
    load_weights(state.eval_model, state.best or state.weights())  # the last ones if none was ever validated
    return state.eval_model


def _standing(state: TrainState, folder: RunFolder) -> str:
    """What a lost process leaves."""
    return f"at update {state.progress.step + 1}; the last checkpoint stands in {folder.path}"


def _keep(
    report: StepReport,
    state: TrainState,
    p: RunContext,
    folder: RunFolder,
    lines: TextIO,
    on_report: OnReport | None,
) -> bool:
    """Log and show an update, and save where it is time to; returns whether everything is saved."""
    lines.write(pick(MetricsLine, asdict(report), folder.metrics).line())
    if on_report is not None and p.ranks.first:
        on_report(report)
    if p.config.train.snapshots and is_snapshot_step(report.step):
        _keep_snapshot(state, p, folder)
    if report.valid is None and report.step % p.config.train.save_every and report.stop is None:
        return False
    lines.flush()
    return save_state(state, p, folder)


def save_state(state: TrainState, p: RunContext, folder: RunFolder) -> bool:
    """Save a checkpoint, its time counted; a failure is told and survived, for the earlier one still stands.

    Of several ranks the first alone writes.
    """
    if not p.ranks.first:
        return True
    began = time.perf_counter()
    extra = {"progress": asdict(state.progress), "tokenizer": p.task.tokenizer.sha256}
    name = f"step-{state.progress.step:08d}"
    try:
        save_checkpoint(folder.checkpoints, name, state.tensors(), extra)
    except ResourceError as error:
        console.warn(f"{error.message}; this checkpoint is not saved, the previous one stands")
        return False
    finally:
        state.progress.seconds += time.perf_counter() - began
    return True


def _keep_snapshot(state: TrainState, p: RunContext, folder: RunFolder) -> None:
    """The weights as they would be validated now, the time it takes counted; of several ranks the first alone writes."""
    if not p.ranks.first:
        return
    began = time.perf_counter()
    save_snapshot(folder.snapshots, state.progress.step, state.weights())
    state.progress.seconds += time.perf_counter() - began


def _newest_checkpoint(folder: RunFolder) -> Path | None:
    """The newest sound checkpoint; people are told of those that are not."""
    path, warnings = latest_checkpoint(folder.checkpoints)
    for warning in warnings:
        console.warn(warning)
    return path


def _restore(state: TrainState, folder: RunFolder, path: Path | None) -> None:
    """A checkpoint into the state."""
    if path is not None:
        tensors, saved = load_checkpoint(path)
        if saved["tokenizer"] != folder.read_tokenizer().sha256:
            raise CheckpointError(f"{folder.tokenizer} is not the tokenizer this run was trained with")
        state.load(tensors, saved["progress"])
        console.say(f"resumed at update {state.progress.step} from {path}")
    else:
        console.say("no checkpoint yet: starting from the beginning")
