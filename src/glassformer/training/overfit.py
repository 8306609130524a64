"""`--overfit-batch`: train on one batch; a model that cannot memorise it has a bug, or its data has no answer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from glassformer.nn.dropout import Dropout
from glassformer.runs.records import StepMetrics
from glassformer.training.context import RunContext
from glassformer.training.loop import optimizer_step
from glassformer.training.state import TrainState

logger = logging.getLogger(__name__)


MAX_STEPS = 500
MEMORISED_LOSS = 0.02
"""Nats per label at which a batch counts as memorised."""
MAX_EXAMPLES = 32


def overfit_batch(context: RunContext, on_step: Callable[[StepMetrics], None] | None = None) -> float:
    """Train on the first batch without dropout, word dropout, label smoothing and weight decay; save nothing.

    Returns:
        The last loss in nats per label; what it means is logged.
    """
    config = context.config.train
    config = replace(config, label_smoothing=0.0, word_mask_prob=0.0, word_unknown_prob=0.0, ema_decay=0.0)
    config = replace(config, adversarial=0.0)
    config = replace(config, **{config.optimizer: _without_decay(getattr(config, config.optimizer))})
    context = context.with_config(replace(context.config, train=config))
    torch.manual_seed(config.seed)
    state = TrainState.start(context.task.build_model().to(context.device), context.task)
    for module in state.model.modules():
        if isinstance(module, Dropout):
            module.p = 0.0
    index = context.task.epoch_batches(context.train, 0)[0][:MAX_EXAMPLES]
    batch = context.task.make_batch(context.train, index).to(context.device)
    loss = float("inf")
    for step in range(1, MAX_STEPS + 1):
        lr = config.lr * min(1.0, step / 20)
        loss, norm = optimizer_step(state, context, [batch], lr)
        state.progress.step = step
        if on_step is not None:
            on_step(StepMetrics(step, 0.0, loss, lr, norm, 0.0, 0.0, 0.0, step / MAX_STEPS))
        if loss < MEMORISED_LOSS:
            logger.info(f"{len(index)} examples memorised after {step} steps (loss {loss:.3f}): the model can learn")
            return loss
    result = f"after {MAX_STEPS} steps on {len(index)} examples the loss is still {loss:.3f}"
    logger.warning(f"{result}: look for equal inputs with different answers, an unsuitable learning rate, or a bug")
    return loss


def _without_decay(section: Any) -> Any:
    """Return an optimizer's settings without weight decay, where it has one."""
    return replace(section, weight_decay=0.0) if hasattr(section, "weight_decay") else section
