"""A run from recipe to report: the run folder, what is written when, and resuming it.

RUN/
  config.toml  env.json  data.json  tokenizer.json     written before the first update
  metrics.jsonl  checkpoints/                          while training
  model/  evaluation.json  predictions.jsonl           after it
  report.md  report.json  plots/
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from glassformer import console
from glassformer.config import Config
from glassformer.data.datasets import load_text_data
from glassformer.data.download import cache_dir
from glassformer.data.reading import changed_files
from glassformer.errors import CheckpointError, DataError, Interrupted, ResourceError, UsageError
from glassformer.files import atomic_write_text, read_json, write_json
from glassformer.finish import evaluate_and_report, save_task_model
from glassformer.recipes import dump_config, load_recipe
from glassformer.runs.checkpoints import latest_checkpoint, load_checkpoint, save_checkpoint
from glassformer.runs.snapshots import is_snapshot_step, save_snapshot
from glassformer.runtime import choose_device, choose_precision, tune_process
from glassformer.tasks import task_class
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.budget import in_updates, measure_pace
from glassformer.training.context import RunContext
from glassformer.training.environment import describe_data, describe_environment
from glassformer.training.loop import StepReport, train_steps
from glassformer.training.preflight import Preflight, preflight
from glassformer.training.signals import StopRequest, stop_requests
from glassformer.training.state import TrainState
from glassformer.training.validation import Validator

OnReport = Callable[[StepReport], None]


def prepare(config: Config, tokenizer: Tokenizer | None = None) -> RunContext:
    """Load the text, train the tokenizer unless given, encode both splits, choose the device."""
    if not any((config.train.epochs, config.train.steps, config.train.minutes)):
        raise UsageError("nothing says when to stop", "give --epochs, --steps or --minutes")
    device = choose_device(config.train.device)
    precision = choose_precision(config.train.precision, device)
    tune_process(device, config.train.deterministic)
    kind = task_class(config.task)
    data = load_text_data(kind.form, config.data)
    task = kind.fit(config, data, tokenizer)
    cache = cache_dir() / "encoded"
    train = task.encode(data.train, training=True, cache=cache)
    valid = task.encode(data.valid, training=False, cache=cache)
    if len(train) == 0 or len(valid) == 0:
        raise DataError(f"{data.train.source}: nothing is left to train or validate on", "check --max-len")
    return RunContext(config, data, task, train, valid, device, precision)


def look_ahead(run: RunContext) -> tuple[RunContext, Preflight]:
    """Measure the speed, tell people the facts before step 1, and settle a budget in minutes as updates.

    Returns:
        The run with a budget that no clock decides, and the facts.
    """
    for note in run.data.notes:
        console.say(note)
    pace, c = measure_pace(run), run.config.train
    n_batches = len(run.task.epoch_batches(run.train, 0))
    settled = replace(run, config=in_updates(run.config, pace, math.ceil(n_batches / c.accumulate)))
    facts = preflight(settled, pace)
    for line in facts.lines():
        console.say(line)
    if c.minutes is not None:
        console.say(f"budget      {c.minutes:g} minutes are {settled.config.train.steps:,} updates here")
    return settled, facts


def start_run(config: Config, out: Path, on_report: OnReport | None = None) -> None:
    """Train a new run into `out`, evaluate it once, write its report.

    Raises:
        UsageError: `out` holds something already.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        resumable = (out / "config.toml").exists()
        hint = f"go on with: glassformer train --resume {out}" if resumable else "name another --out"
        raise UsageError(f"{out} is not empty", hint)
    run, facts = look_ahead(prepare(config))
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "env.json", describe_environment(run.device, run.precision))
    write_json(out / "data.json", describe_data(run) | {"preflight": facts.as_dict()})
    run.task.tokenizer.save(out / "tokenizer.json")
    atomic_write_text(out / "config.toml", dump_config(run.config))  # last: its presence means "resumable"
    _train(run, out, on_report, resume=False)


def resume_run(out: Path, on_report: OnReport | None = None) -> None:
    """Go on with a run as if it had never stopped; does nothing more to a finished one but its report.

    Raises:
        CheckpointError: there is no run in `out`.
        DataError: the data is no longer what the run began with.
    """
    if not (out / "config.toml").exists():
        raise CheckpointError(
            f"{out} holds no run (no config.toml)", "start one: glassformer train RECIPE --out …"
        )
    config = load_recipe(str(out / "config.toml"))
    prepared = prepare(config, Tokenizer.load(out / "tokenizer.json"))
    if changed := changed_files(read_json(out / "data.json")["hashes"], prepared.data.hashes):
        raise DataError(f"{changed[0]} has changed since the run began", "restore it, or start a new run")
    _train(prepared, out, on_report, resume=True)


def _train(p: RunContext, out: Path, on_report: OnReport | None, *, resume: bool) -> None:
    torch.manual_seed(p.config.train.seed)
    model = p.task.build_model().to(p.device)
    state = TrainState.start(model, p.config.train)
    log = out / "metrics.jsonl"
    if resume:
        _restore(state, out, log)
        if p.config.train.minutes is not None:  # a run of an older version, which the clock would have ended
            p = replace(p, config=_settled(p.config, state, out))
    if p.config.train.snapshots and state.progress.step == 0:
        save_snapshot(out, 0, state.weights())
    with stop_requests() as request, open(log, "a", encoding="utf-8", newline="\n") as lines:
        for report in train_steps(state, p, Validator(p)):
            lines.write(json.dumps(_log_line(report)) + "\n")
            if on_report is not None:
                on_report(report)
            if p.config.train.snapshots and is_snapshot_step(report.step):
                _keep_snapshot(state, out)
            due = report.valid is not None or report.step % p.config.train.save_every == 0
            if due or request.signal is not None:
                lines.flush()
                saved = save_state(state, p, out)
                if request.signal is not None and not state.progress.finished:
                    raise _interrupted(request, state, out, saved)
    load_best(state)
    save_task_model(p.task, model, out)
    evaluate_and_report(p, model, out)


def save_state(state: TrainState, p: RunContext, out: Path) -> bool:
    """Save a checkpoint, its time counted; a failure is told and survived, for the earlier one still stands."""
    began = time.perf_counter()
    extra = {"progress": state.progress_dict(), "tokenizer": p.task.tokenizer.sha256}
    name = f"step-{state.progress.step:08d}"
    try:
        save_checkpoint(out / "checkpoints", name, state.tensors(), extra, keep=p.config.train.keep)
    except ResourceError as error:
        console.warn(f"{error.message}; this checkpoint is not saved, the previous one stands")
        return False
    finally:
        state.progress.seconds += time.perf_counter() - began
    return True


def _keep_snapshot(state: TrainState, out: Path) -> None:
    """The weights as they would be validated now, the time it takes counted."""
    began = time.perf_counter()
    save_snapshot(out, state.progress.step, state.weights())
    state.progress.seconds += time.perf_counter() - began


def load_best(state: TrainState) -> None:
    """Give the model the weights that validated best (its last ones if none ever did)."""
    weights = state.best if state.best is not None else state.weights()
    with torch.no_grad():
        for name, parameter in state.model.named_parameters():
            parameter.copy_(weights[name])


def _restore(state: TrainState, out: Path, log: Path) -> None:
    """The newest sound checkpoint into the state, and the log cut back to it."""
    path, warnings = latest_checkpoint(out / "checkpoints")
    for warning in warnings:
        console.warn(warning)
    if path is not None:
        tensors, saved = load_checkpoint(path)
        sha = Tokenizer.load(out / "tokenizer.json").sha256
        if saved["tokenizer"] != sha:
            raise CheckpointError(f"{out / 'tokenizer.json'} is not the tokenizer this run was trained with")
        state.load(tensors, saved["progress"])
        console.say(f"resumed at update {state.progress.step} from {path}")
    else:
        console.say("no checkpoint yet: starting from the beginning")
    kept = []
    if log.exists():
        for line in log.read_bytes().split(b"\n"):
            try:  # a killed process may have left half a line
                if line and json.loads(line)["step"] <= state.progress.step:
                    kept.append(line.decode("utf-8"))
            except ValueError:
                break
    atomic_write_text(log, "".join(line + "\n" for line in kept))


def _settled(config: Config, state: TrainState, out: Path) -> Config:
    """A budget in minutes as updates, from the speed of the run so far; written down."""
    at, minutes = state.progress, config.train.minutes or 0.0
    seconds = max(at.seconds, 1e-9)
    steps = max(at.step, round(at.step * 60 * minutes / seconds)) or config.train.steps
    settled = replace(config, train=replace(config.train, minutes=None, steps=steps))
    atomic_write_text(out / "config.toml", dump_config(settled))
    console.say(f"{minutes:g} minutes are {steps:,} updates at the speed of this run so far")
    return settled


def _interrupted(request: StopRequest, state: TrainState, out: Path, saved: bool) -> Interrupted:
    what = "everything is saved" if saved else "what came after the last checkpoint is lost"
    return Interrupted(
        f"stopped at update {state.progress.step}; {what} in {out}",
        f"go on with: glassformer train --resume {out}",
        request.exit_code,
    )


def _log_line(report: StepReport) -> dict[str, Any]:
    """A report for the log: one JSON object, without what only a progress bar wants."""
    row = {k: v for k, v in asdict(report).items() if k not in ("progress", "eta_seconds", "best")}
    return {k: v for k, v in row.items() if v is not None}
