"""`--overfit-batch`: a model that cannot learn one batch by heart has a bug, or data without an answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from glassformer.nn.dropout import Dropout
from glassformer.runs.records import StepReport
from glassformer.training.context import RunContext
from glassformer.training.loop import update
from glassformer.training.state import TrainState
from glassformer.utils import console

MOST_UPDATES = 500
BY_HEART = 0.02
"""Nats per label at which a batch counts as known by heart."""
MOST_EXAMPLES = 32


def overfit_batch(p: RunContext, on_report: Callable[[StepReport], None] | None = None) -> float:
    """Train on the first batch of epoch 0 alone, without dropout, masking, smoothing or weight decay; nothing is saved.

    Returns:
        The last loss, in nats per label; people are told what it means.
    """
    c = replace(p.config.train, label_smoothing=0.0, word_mask_prob=0.0, word_unknown_prob=0.0, ema_decay=0.0)
    c = replace(c, adversarial=0.0)
    c = replace(c, **{c.optimizer: _without_decay(getattr(c, c.optimizer))})
    p = p.with_config(replace(p.config, train=c))
    torch.manual_seed(c.seed)
    state = TrainState.start(p.task.build_model().to(p.device), c)
    for module in state.model.modules():
        if isinstance(module, Dropout):
            module.p = 0.0
    index = p.task.epoch_batches(p.train, 0)[0][:MOST_EXAMPLES]
    batch = p.task.make_batch(p.train, index).to(p.device)
    loss = float("inf")
    for step in range(1, MOST_UPDATES + 1):
        lr = c.lr * min(1.0, step / 20)
        loss, norm = update(state, p, [batch], lr)
        state.progress.step = step
        if on_report is not None:
            on_report(StepReport(step, 0.0, loss, lr, norm, 0.0, 0.0, 0.0, step / MOST_UPDATES))
        if loss < BY_HEART:
            learned = f"{len(index)} examples known by heart after {step} updates (loss {loss:.3f})"
            console.say(f"{learned}: the model can learn")
            return loss
    still = f"after {MOST_UPDATES} updates on {len(index)} examples the loss is still {loss:.3f}"
    console.warn(f"{still}: look for equal inputs with different answers, a learning rate far off, or a bug")
    return loss


def _without_decay(section: Any) -> Any:
    """Return an optimizer's settings with no weight decay, where it has one."""
    return replace(section, weight_decay=0.0) if hasattr(section, "weight_decay") else section
