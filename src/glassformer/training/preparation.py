"""From a configuration to everything a run needs, in every process, and what is logged before the first step."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import torch
from torch import nn

from glassformer.config import Config
from glassformer.config.recipes import BUDGETS, dump_config, override
from glassformer.data.datasets.local_files import load_text_data
from glassformer.data.splits import TextData, check_texts_differ
from glassformer.distributed.process_group import ProcessGroup
from glassformer.errors import DataError, UsageError
from glassformer.runs.records import DataRecord
from glassformer.runs.run_data import load_run_data
from glassformer.tasks import Task, task_class
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.budget import in_updates, measure_pace
from glassformer.training.finetune import (
    check_compatible,
    copy_pretrained_weights,
    freeze,
    is_below_head,
    load_pretrained,
    log_start,
)
from glassformer.training.preflight import PACKAGES, lines, preflight
from glassformer.training.state import RunContext, TrainState
from glassformer.utils.device import choose_device
from glassformer.utils.formatting import counted


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


logger = logging.getLogger(__name__)


SLOW_CHARS = 20_000_000
"""Characters from which reading takes so long that it is announced."""


def prepare(config: Config, tokenizer: Tokenizer | None = None, resumed: Path | None = None) -> RunContext:
    """Load and encode the data and choose the device; return everything training needs.

    Args:
        config: the configuration, with settings of `auto` still to be chosen from the data.
        tokenizer: that of the run when it is resumed; trained, or taken from a pretrained run, when absent.
        resumed: folder of the run when it is resumed.

    Raises:
        UsageError: no budget is given.
        DataError: the data cannot be read, leaves nothing to learn, or has changed since the run began.
    """
    task_type, pretrained = task_class(config.task), None
    if not any(getattr(config.train, name) for name in BUDGETS) and not set(BUDGETS) & set(config.auto):
        raise UsageError("nothing says when to stop", "give --epochs, --steps or --minutes")
    device = choose_device(config.train.device)
    if config.train.init_from and tokenizer is None:
        pretrained = load_pretrained(config.train.init_from)
        check_compatible(config, pretrained)
        tokenizer = pretrained.tokenizer
    if resumed is None:
        data = load_text_data(task_type.schema, config.data)
    else:
        data = load_run_data(resumed, task_type.schema, config.data, allow_changed=None)
    config, data = apply_auto_config(config, task_type, data)
    if task_type.schema.columns is not None:
        check_texts_differ(data.train)
    if (n_chars := sum(map(len, data.train.text))) >= SLOW_CHARS:
        size = f"{counted(len(data.train.text), 'texts')} of {n_chars / 1e6:,.1f} million characters"
        logger.info(f"reading     {size}: tokenizer and encoding can take minutes")
    task = task_type.from_data(config, data, tokenizer)
    pretrained = None if pretrained is None else pretrained.for_task(task)
    train, valid = task.encode(data.train, training=True), task.encode(data.valid, training=False)
    if len(train) == 0 or len(valid) == 0:
        raise DataError(f"{data.train.source}: nothing is left to train or validate on", "check --max-len")
    return RunContext(data, task, train, valid, device, pretrained)


def new_state(context: RunContext) -> TrainState:
    """Build the model, with random or pretrained weights, and its optimizer."""
    torch.manual_seed(context.config.train.seed)
    model, probe = initial_model(context)
    if context.pretrained is not None:
        log_start(model, context.pretrained)
    initial = None
    if probe:
        scores = context.task.validate(model, context.valid, context.data.valid)
        value = f"{context.task.metric} {scores[context.task.metric]:.4f}"
        logger.info(f"probe       valid {value}: a linear model on the vectors of the encoder as it is")
        initial = scores[context.task.metric], scores["loss"]
    freeze(model, context.config.train.frozen_layers)
    return TrainState.start(model, context.task, context.group, initial)


def initial_model(context: RunContext) -> tuple[nn.Module, bool]:
    """Return the model before the first step, and whether its head is fitted to the vectors of a pretrained encoder."""
    model = context.task.build_model().to(context.device)
    context.task.initialise_output(model, context.train)
    if (pretrained := context.pretrained) is None:
        return model, False
    new = copy_pretrained_weights(model, pretrained)
    probe = pretrained.imported and any("head." in name for name in new) and not any(map(is_below_head, new))
    return model, probe and context.task.start_head(model, context.train)


def prepare_distributed(
    config: Config, group: ProcessGroup, tokenizer: Tokenizer | None = None, resumed: Path | None = None
) -> RunContext:
    """Run `prepare` in every process, first in one per machine: the others find a data set that it has downloaded.

    Raises:
        UsageError: the processes differ in what they were given.
    """
    with group.local_main_first():
        context = prepare(config, tokenizer, resumed)
    context, versions = replace(context, group=group), [version(name) for name in PACKAGES]
    group.assert_same(
        configuration=dump_config(context.config),
        data=str(sorted(context.data.hashes.items())),
        tokenizer=context.task.tokenizer.sha256,
        versions=str(versions),
        examples=f"{len(context.train)} {len(context.valid)}",
    )
    return context


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
    for line in lines(data):
        logger.info(line)
    for finding in data.findings:
        logger.warning(str(finding))
    if config.minutes is not None:
        logger.info(f"budget      {config.minutes:g} min: {settled.config.train.steps:,} steps on this machine")
    return settled, data
