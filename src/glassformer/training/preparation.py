"""From a configuration to everything a run needs, in every process, and what is known and logged before the first step.

The speed is measured once, on real steps of the model, which are then undone. From there the learning rate and the end
of the run are functions of the step alone: `--minutes 10` is, to the last bit, the run that `--steps` with the number
found would have been, and can be repeated and resumed.
"""

from __future__ import annotations

import logging
import math
import os
import platform
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import nn

from glassformer.config import Config, TrainConfig
from glassformer.config.recipes import BUDGETS, dump_config, override
from glassformer.data.check import KnownData, compared, label_counts, of_data
from glassformer.data.corpus import RaggedArray
from glassformer.data.datasets.local_files import load_text_data
from glassformer.data.splits import TextData, check_texts_differ
from glassformer.distributed import SINGLE_PROCESS, ProcessGroup
from glassformer.errors import DataError, UsageError
from glassformer.runs.folder import RunFolder
from glassformer.runs.model_folder import read_origin
from glassformer.runs.records import IMPORT, INITIAL, DataRecord, JsonObject, SplitRecord
from glassformer.runs.run_data import load_run_data
from glassformer.tasks import Task, task_class
from glassformer.training.computing import flops_per_token
from glassformer.training.finetune import (
    check_compatible,
    copy_pretrained_weights,
    freeze,
    is_below_head,
    load_pretrained,
    log_start,
    pretrained_folder,
)
from glassformer.training.loop import RunContext, TrainState, local_batches, optimizer_step, validation_scores
from glassformer.utils.device import choose_device
from glassformer.utils.formatting import counted, duration, glassformer_command

logger = logging.getLogger(__name__)


def apply_auto_config(config: Config, task_type: type[Task], data: TextData) -> tuple[Config, TextData]:
    """Return the configuration with every setting of `config.auto` chosen, and the data with a note on them.

    The run writes the chosen values to its `config.toml`, so that resuming it chooses nothing again.

    Raises:
        UsageError: the task cannot choose one of them automatically.
    """
    if not config.auto:
        return config, data
    suggested, reason = task_type.suggest_settings(data, config)
    if missing := [name for name in config.auto if name not in suggested]:
        raise UsageError(
            f"the task {task_type.name} cannot choose {missing[0]} automatically",
            f"it can choose: {', '.join(suggested) or 'nothing'}; set {missing[0]}, or remove it from auto",
        )
    settings = {name: suggested[name] for name in config.auto}
    values = ", ".join(f"{name} {value:g}" for name, value in settings.items() if value is not None)
    note = f"{reason}: {values} (chosen automatically; override with flags)"
    return override(config, settings, "auto"), replace(data, notes=[*data.notes, note])


def prepare(config: Config, begun: RunFolder | None = None, group: ProcessGroup = SINGLE_PROCESS) -> RunContext:
    """Load and encode the data and choose the device; return everything training needs.

    Of several processes one on each machine is first: the others find a data set that it has downloaded.

    Args:
        config: the configuration, with settings of `auto` still to be chosen from the data.
        begun: the run when it is resumed, with its tokenizer.
        group: the processes that train together.

    Raises:
        UsageError: no budget is given, or the processes differ in what they were given.
        DataError: the data cannot be read, leaves nothing to learn, or has changed since the run began.
    """
    task_type, pretrained, tokenizer = task_class(config.task), None, begun and begun.read_tokenizer()
    with group.local_main_first():
        if not any(getattr(config.train, name) for name in BUDGETS) and not set(BUDGETS) & set(config.auto):
            raise UsageError("nothing says when to stop", "give --epochs, --steps or --minutes")
        device = choose_device(config.train.device)
        if config.train.init_from and begun is None:
            pretrained = load_pretrained(config.train.init_from)
            check_compatible(config, pretrained)
            tokenizer = pretrained.task.tokenizer
        if begun is None:
            data = load_text_data(task_type.schema, config.data)
        else:
            data = load_run_data(begun.path, task_type.schema, config.data, allow_changed=None)
        config, data = apply_auto_config(config, task_type, data)
        if task_type.schema.columns is not None:
            check_texts_differ(data.train)
        task = task_type.from_data(config, data, tokenizer)
        pretrained = None if pretrained is None else pretrained.for_task(task)
        train, valid = task.encode(data.train, training=True), task.encode(data.valid, training=False)
        if len(train) == 0 or len(valid) == 0:
            raise DataError(f"{data.train.source}: nothing is left to train or validate on", "check --max-len")
    group.assert_same(
        configuration=dump_config(task.config),
        data=str(sorted(data.hashes.items())),
        tokenizer=task.tokenizer.sha256,
        versions=str([version(name) for name in PACKAGES]),
        examples=f"{len(train)} {len(valid)}",
    )
    return RunContext(data, task, train, valid, device, pretrained, group)


def new_state(context: RunContext) -> TrainState:
    """Build the model, with random or pretrained weights, and its optimizer."""
    torch.manual_seed(context.config.train.seed)
    model, probe = initial_model(context)
    initial = None
    if probe:
        scores = context.task.validate(model, context.valid, context.data.valid)
        value = f"{context.task.metric} {scores[context.task.metric]:.4f}"
        logger.info(f"probe       valid {value}: a linear model on the vectors of the encoder as it is")
        initial = scores[context.task.metric], scores["loss"]
    freeze(model, context.config.train.frozen_layers)
    return TrainState(model, context.task, context.group, initial)


def initial_model(context: RunContext, logs: bool = True) -> tuple[nn.Module, bool]:
    """Return the model before the first step, and whether its head is fitted to the vectors of a pretrained encoder."""
    model = context.task.build_model().to(context.device)
    context.task.initialise_output(model, context.train)
    if (pretrained := context.pretrained) is None:
        return model, False
    new = copy_pretrained_weights(model, pretrained)
    if logs:
        log_start(model, pretrained, new)
    probe = pretrained.imported and any("head." in name for name in new) and not any(map(is_below_head, new))
    return model, probe and context.task.start_head(model, context.train)


def settle_budget(context: RunContext, state: TrainState) -> tuple[RunContext, DataRecord]:
    """Measure the speed, log the facts of the run, and turn a budget in minutes into steps.

    Args:
        context: data, task and device.
        state: the run's, before its first step; so it is afterwards.

    Returns:
        The context with a budget that does not depend on the clock, and the record of its data.
    """
    for note in [*context.data.notes, *([f"computing   {context.choice}"] if context.choice else [])]:
        logger.info(note)
    pace, config = measure_pace(context, state), context.config.train
    n_batches = len(context.task.epoch_batches(context.train, 0))
    settled = context.with_config(in_updates(context.config, pace, math.ceil(n_batches / config.accumulate)))
    state.restart(settled.config.train)
    data = preflight(settled, pace, state.model, state.initial)
    facts, train = data.preflight, data.splits["train"]
    met = {"truncated": train.n_truncated, "too long and left out": train.n_dropped}
    met |= {"empty and left out": train.n_empty, "duplicates kept": train.n_duplicates, **data.counts}
    size, examples = f"{facts['n_parameters']:,} parameters", counted(train.n, "examples")
    epoch, whole = duration(facts["seconds_per_epoch"]), duration(facts["estimated_seconds"])
    logger.info(f"model       {size}, {facts['flops_per_token'] / 1e6:.1f} MFLOP per token")
    logger.info(f"data        {examples}, {train.n_tokens or 0:,} tokens; {facts['padding']:.1%} padding")
    if shown := ", ".join(f"{name}: {n:,}" for name, n in met.items() if n):
        logger.info(f"met         {shown}")
    speed = f"{facts['tokens_per_s']:,.0f} tokens/s, measured"
    logger.info(f"speed       {speed}; an epoch takes {epoch}, the run about {whole}")
    for finding in data.findings:
        logger.warning(str(finding))
    if config.minutes is not None:
        logger.info(f"budget      {config.minutes:g} min: {settled.config.train.steps:,} steps on this machine")
    return settled, data


WARM_UP, TIMED, FEWEST = 8, 32, 3
"""Steps before the clock counts (caches and thread pools are cold), steps it counts, and the fewest it does."""
MOST_TIMED = 0.1
"""The most of a run that is timed before it; a budget in minutes is measured by all of TIMED."""
PATIENCE_SECONDS = 4.0
"""A measurement ends after this, or after MEASURING of a budget in minutes."""
MEASURING, VALIDATING = 0.02, 0.15
"""The most of a budget in minutes that measuring and validating may take."""


@dataclass(frozen=True)
class Pace:
    """Seconds of a step, its batches made, and of a validation, real tokens per second, and the share of padding."""

    step: float
    validation: float
    tokens_per_s: float
    padding: float


def measure_pace(context: RunContext, state: TrainState) -> Pace:
    """Time real steps, and a validation where the budget is in minutes; the state is then as before.

    Of several processes the first has the clock.
    """
    train, group, plan = context.config.train, context.group, context.task.epoch_batches(context.train, 0)
    warm_up, n_timed = batches_to_time(train, len(plan))
    patience = max(PATIENCE_SECONDS, MEASURING * 60 * (train.minutes or 0))
    times, n_tokens, n_slots, began = list[float](), 0.0, 0.0, time.perf_counter()
    with state.trial(train):
        for step in range(warm_up + n_timed):
            (late,) = group.broadcast(time.perf_counter() - began > patience)
            if late and len(times) >= FEWEST:
                break
            start = time.perf_counter()
            if context.threads is not None:
                context.threads.adjust()
            taken = optimizer_step(state, context, local_batches(context, [plan[step % len(plan)]]), 0.1 * train.lr)
            if step >= warm_up or (late and step > 0):
                times.append(time.perf_counter() - start)
                n_tokens += taken.n_tokens
                n_slots += taken.n_slots
        began, validation = time.perf_counter(), 0.0
        if train.minutes:
            if context.valid.target is not None:  # an untrained model never ends its output: decode as much as that
                longest = 2 + math.ceil(context.valid.target.lengths.mean())
                decode = replace(context.config.decode, max_new_tokens=longest)
                context = context.with_config(replace(context.config, decode=decode))
            validation_scores(context, state, context.valid, context.data.valid)
            validation = time.perf_counter() - began
    seconds = sum(times)
    step = seconds / len(times) * train.accumulate
    return Pace(*group.broadcast(step, validation, n_tokens / seconds, 1 - n_tokens / n_slots))


def batches_to_time(train: TrainConfig, n_in_epoch: int) -> tuple[int, int]:
    """Return how many batches to train on before the clock counts, and how many to time: of a short run fewer."""
    n = min((train.epochs or math.inf) * n_in_epoch, (train.steps or math.inf) * train.accumulate)
    timed = TIMED if train.minutes else int(min(TIMED, max(FEWEST, MOST_TIMED * n)))
    return min(WARM_UP, timed), timed


def in_updates(config: Config, pace: Pace, updates_per_epoch: float) -> Config:
    """Return the configuration with a budget in minutes converted to steps; others are returned unchanged.

    Epochs or steps given with the minutes still limit the run. The time of validations is counted; if they would take
    more than a share of VALIDATING, they come at longer intervals. The last one comes at the end, whenever it was due.
    """
    c = config.train
    if c.minutes is None:
        return config
    budget = 60 * c.minutes
    most = max(1, int(VALIDATING * budget / pace.validation)) if pace.validation else math.inf
    n_validations = min(most, math.ceil(budget / (c.validate_every * updates_per_epoch * pace.step + pace.validation)))
    steps = max(1, int((budget - n_validations * pace.validation) / pace.step))
    every, steps = max(c.validate_every, steps / updates_per_epoch / n_validations), min(steps, c.steps or steps)
    return replace(config, train=replace(c, minutes=None, steps=steps, validate_every=every))


PACKAGES = ("glassformer", "torch", "numpy", "tokenizers", "safetensors", "sacrebleu", "scikit-learn")
COUNTS = {f.name for f in fields(SplitRecord) if f.name.startswith("n_")} - {"n_texts_unknown"}
"""Counts of a corpus that a split's record has fields for; others are the task's own."""


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Return versions, platform, device, threads and processors."""
    cpu = torch.cpu.get_capabilities().get("cpu_name") or platform.processor() or platform.machine()
    return {
        "versions": {name: version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else str(cpu),
        "threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
    }


def describe_environment(context: RunContext) -> dict[str, Any]:
    """Return the machine, the precision and what it was chosen by, the time (UTC) and the command."""
    started, command = datetime.now(UTC).isoformat(timespec="seconds"), glassformer_command(*sys.argv[1:])
    of_run = {"precision": context.precision, "started": started, "command": command}
    return describe_machine(context.device) | of_run | ({"computing": context.choice} if context.choice else {})


def preflight(
    context: RunContext, pace: Pace, model: nn.Module, initial: tuple[float, float] | None = None
) -> DataRecord:
    """Look at the data and the model, and return what is known before the first step.

    FLOPs are those of a training step per real token, three times those of the forward pass. The estimated seconds are
    those of the steps: validations and an earlier end by patience are not known.
    """
    task, config, corpus, data = context.task, context.config, context.train, context.data
    lengths, n_batches, train, t = corpus.ids.lengths, len(task.epoch_batches(corpus, 0)), config.train, task.tokenizer
    squares = (lengths.astype("float64") ** 2).sum()
    typical = float(squares / max(1, lengths.sum()))  # the length of the text that a token is in
    per_epoch = pace.step * n_batches / train.accumulate
    base: JsonObject = {} if initial is None else {INITIAL: initial[0]}
    if (pretrained := context.pretrained) is not None:
        base |= {"path": pretrained.path, "sha256": pretrained.sha256}
        if (origin := read_origin(pretrained_folder(pretrained.path))) is not None:
            base[IMPORT] = asdict(origin)
    record = DataRecord(
        config.task,
        task.metric,
        config.data.dataset,
        data.train.source,
        describe_splits(context),
        label_names=task.label_names,
        hashes=data.hashes,
        notes=data.notes,
        tokenizer={"kind": t.kind, "vocab_size": t.vocab_size, "sha256": t.sha256, "has_ngrams": t.ngrams is not None},
        preflight={
            "n_parameters": sum(p.numel() for p in model.parameters()),  # frozen ones too; shared ones count once
            "flops_per_token": flops_per_token(task, min(typical, config.text.max_len)),
            "padding": pace.padding,
            "tokens_per_s": pace.tokens_per_s,
            "seconds_per_epoch": per_epoch,
            "estimated_seconds": min((train.epochs or math.inf) * per_epoch, (train.steps or math.inf) * pace.step),
        },
        columns=data.columns,
        counts=data.counts,
        base=base,
        scale={name: x for name, x in task.decision.to_json().items() if name in ("mean", "sd")},
    )
    labels, better = label_counts(task.schema, data.train), "" if "text.truncate" in task.ignores else "head+tail"
    known = KnownData(config, record.splits, labels, t.ngrams is not None, better)
    found = [*data.findings, *of_data(known)]
    return replace(record, preflight=record.preflight | {"warnings": [*map(asdict, found)]})


def describe_splits(context: RunContext) -> dict[str, SplitRecord]:
    """Return each split as the model sees it, as counted while it was encoded; of the test split its size alone."""
    task, splits = context.task, dict[str, SplitRecord]()
    for name, split in context.data.splits().items():
        counts: dict[str, Any] = {"n": len(split.text)}
        if (corpus := {"train": context.train, "valid": context.valid}.get(name)) is not None:
            stats, own = corpus.stats, {name: n for name, n in corpus.stats.items() if name not in {*COUNTS, "n"}}
            counts = {name: stats[name] for name in stats.keys() & COUNTS} | {"n": len(corpus), "counts": own or None}
            counts["unknown_rate"] = stats.get("n_unknown", 0) / max(1, stats.get("n_tokens", 0))
            if len(corpus) > 1:
                counts["n_texts_unknown"] = n_texts_with_unknown(task.token_columns(corpus), task.tokenizer.unk_id)
        counts |= compared(split, context.data.train, len(context.train) == 1)  # running text is one sequence
        splits[name] = SplitRecord(**counts, sha256=split.sha256)
    return splits


def n_texts_with_unknown(columns: Iterable[RaggedArray], unk_id: int) -> int:
    """Count the examples with at least one unknown token in any of their columns."""
    hits = [np.searchsorted(c.offsets, np.flatnonzero(c.flat == unk_id), side="right") for c in columns]
    return len(np.unique(np.concatenate(hits)))
