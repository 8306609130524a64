"""The training loop: what a step does, and what follows each step. Plain PyTorch, shared by all tasks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from glassformer.config import TrainConfig
from glassformer.data.batches import Batch
from glassformer.errors import DivergedError
from glassformer.runs.model_folder import Weights
from glassformer.runs.records import StepMetrics, logs_updates
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.losses import adversarial_backward, backward
from glassformer.training.optimizer import lr_factor
from glassformer.training.state import Progress, RunContext, TrainState
from glassformer.utils.process_settings import turns

Callback = Callable[[StepMetrics], StepMetrics]
"""What follows a step: gets its metrics and returns them, perhaps with more in them. None draws a random number."""


def train_steps(state: TrainState, context: RunContext, callbacks: Sequence[Callback]) -> None:
    """Train from where the run is until a callback says why it is finished, in `state.progress`."""
    progress, n = state.progress, context.config.train.accumulate
    while not progress.finished:
        plan = context.task.epoch_batches(context.train, progress.epoch)
        for start in range(progress.position, len(plan), n):
            metrics = train_step(state, context, plan[start : start + n], len(plan))
            for act in callbacks:
                metrics = act(metrics)
            if progress.finished:
                break


def end_of_budget(state: TrainState) -> Callback:
    """Return a callback that says so where the budget is used."""

    def act(metrics: StepMetrics) -> StepMetrics:
        if metrics.progress >= 1.0:
            state.progress.finished = "budget"
        return metrics

    return act


def train_step(state: TrainState, context: RunContext, plan: Sequence[np.ndarray], n_in_epoch: int) -> StepMetrics:
    """Take one step on entries of the plan of an epoch, and return its metrics; the loss is in nats per label."""
    progress, config = state.progress, context.config.train
    turns.give_way()  # to threads of this process that predict with other settings of torch
    n_threads = context.threads.adjust() if context.threads else torch.get_num_threads()
    began, is_logged = time.perf_counter(), logs_updates(progress.step + 1)
    context.group.seed_step(config.seed, progress.step)
    used = budget_used(progress, config, n_in_epoch)
    lr = config.lr * lr_factor(config.schedule, config.warmup, progress.step + 1, used)
    batches = local_batches(context, plan)
    made = time.perf_counter()
    counts = [sum(counts) for counts in zip(*((b.n_labels, b.n_tokens, b.n_slots) for b in batches), strict=True)]
    n_labels, n_tokens, n_slots = context.group.all_reduce(*counts)
    loss, norm = add_gradients(state, context, batches, n_labels)
    ratios = update_weights(state, lr, is_logged)
    seconds = time.perf_counter() - began
    progress.advance(len(plan), n_in_epoch, seconds, norm > (config.max_grad_norm or math.inf))
    used = budget_used(progress, config, n_in_epoch)
    return StepMetrics(
        step=progress.step,
        epoch=progress.epoch + progress.position / n_in_epoch,
        loss=loss,
        lr=lr,
        grad_norm=norm,
        tokens_per_s=n_tokens / seconds,
        padding=1 - n_tokens / max(1, n_slots),
        seconds=progress.seconds,
        progress=used,
        eta_seconds=progress.seconds * (1 - used) / used if used > 0 else None,
        threads=n_threads if context.device.type == "cpu" else None,
        update_ratios=ratios,
        clipped=progress.take_clipped() if is_logged else None,
        wait=(made - began) / seconds if is_logged else None,
    )


def local_batches(context: RunContext, plan: Sequence[np.ndarray]) -> list[Batch]:
    """Return this process's share of the batches of a step, on its device."""
    made = [
        (context.task.make_batch(context.train, rows), counts) for rows, counts in context.group.split_batches(plan)
    ]
    return [(batch if counts else batch.unscored()).to(context.device) for batch, counts in made]


def add_gradients(
    state: TrainState, context: RunContext, batches: Sequence[Batch], n_labels: float
) -> tuple[float, float]:
    """Add the gradients of one or more batches; return the loss in nats per label and the norm before clipping.

    Losses are summed and divided once by the labels of all batches and processes, so that accumulated small batches
    give the step of one large batch, whatever their lengths. DDP averages the gradients of the processes, so each
    divides by its share of all labels. A batch without labels runs with the others and adds zero.

    Raises:
        DivergedError: loss or gradient is not finite; no weight was changed.
    """
    config, group, total = context.config.train, context.group, torch.zeros((), device=context.device)
    state.model.train()
    n_labels = max(1.0, n_labels)  # texts of special tokens alone have none
    add_gradient = adversarial_backward if config.adversarial else backward
    for i, batch in enumerate(batches):
        batch = word_dropout(batch, context.task.tokenizer, config.word_mask_prob, config.word_unknown_prob)
        is_last = i == len(batches) - 1
        total += add_gradient(state.train_module, context, batch, n_labels / group.world_size, is_last)
    clipped = nn.utils.clip_grad_norm_(state.model.parameters(), config.max_grad_norm or math.inf)
    # The only place where the CPU waits for a GPU.
    local_loss, norm = torch.stack([total, clipped]).tolist()
    (loss_sum,) = group.all_reduce(local_loss)
    if not (math.isfinite(loss := loss_sum / n_labels) and math.isfinite(norm)):
        raise divergence_error(state, context, loss, norm, batches)
    return loss, norm


def update_weights(state: TrainState, lr: float, with_ratios: bool = False) -> dict[str, float] | None:
    """Update the weights by their gradients, and the moving average; return the `update_ratios`, if wanted."""
    for param_group in state.optimizer.param_groups:
        param_group["lr"] = lr * param_group.get("lr_factor", 1.0)
    # Copied here and not before the gradients, since the activations, which need more memory, are gone.
    before = trained_matrices(state.model) if with_ratios else None
    state.optimizer.step()
    state.optimizer.zero_grad(set_to_none=True)
    ratios = None if before is None else update_ratios(state.model, before)
    if state.ema is not None:
        state.ema.update(state.model, state.progress.step)
    return ratios


def optimizer_step(state: TrainState, context: RunContext, batches: Sequence[Batch], lr: float) -> tuple[float, float]:
    """Take one step on batches that are made, and return its loss and gradient norm; the progress stays."""
    (n_labels,) = context.group.all_reduce(sum(batch.n_labels for batch in batches))
    loss, norm = add_gradients(state, context, batches, n_labels)
    update_weights(state, lr)
    return loss, norm


def trained_matrices(model: nn.Module) -> Weights:
    """Return copies of the parameters with two dimensions or more that are trained, embeddings among them."""
    return {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad and p.dim() > 1}


@torch.no_grad()
def update_ratios(model: nn.Module, before: Weights) -> dict[str, float]:
    """Return ‖Δw‖ / ‖w‖ of each matrix in `before`, with Δw its change since and w what it is now.

    It is 0 for one that did not change, zeros included, and about 1 for one that was zero before. One that is not
    finite any more is left out.
    """
    if not before:
        return {}
    parameters = dict(model.named_parameters())
    now = [parameters[name].detach() for name in before]
    changes: Any = torch._foreach_norm(torch._foreach_sub(now, list(before.values())))  # pyright: ignore
    norms: Any = torch._foreach_norm(now)  # pyright: ignore
    ratios = (torch.stack(changes) / torch.stack(norms).clamp(min=1e-30)).tolist()
    return {name: float(f"{ratio:.4g}") for name, ratio in zip(before, ratios, strict=True) if math.isfinite(ratio)}


def budget_used(progress: Progress, config: TrainConfig, batches_per_epoch: int) -> float:
    """Return the share of the budget used, in [0, 1]: the larger of those of epochs and steps.

    It depends on the position of the run and not on the clock, so that a run can be repeated and resumed: minutes
    become steps before the first one (`budget.py`).
    """
    epochs = (progress.epoch + progress.position / batches_per_epoch) / (config.epochs or math.inf)
    return min(1.0, max(epochs, progress.step / (config.steps or math.inf)))


def word_dropout(batch: Batch, tokenizer: Tokenizer, mask_prob: float, unknown_prob: float) -> Batch:
    """Replace a share of the input tokens by [MASK] and another by [UNK] (word dropout; Iyyer et al. 2015).

    A masked token loses its n-gram features too; an unknown one keeps them, as words not seen in training do. Special
    tokens stay.
    """
    is_word = ~torch.isin(batch.ids, torch.tensor(sorted(tokenizer.special_ids), device=batch.ids.device))
    if unknown_prob > 0.0:
        chosen = is_word & (torch.rand(batch.ids.shape, device=batch.ids.device) < unknown_prob)
        batch = replace(batch, ids=batch.ids.masked_fill(chosen, tokenizer.unk_id))
    if mask_prob > 0.0:
        chosen = is_word & (torch.rand(batch.ids.shape, device=batch.ids.device) < mask_prob)
        batch = replace(batch, ids=batch.ids.masked_fill(chosen, tokenizer.mask_id))
        if batch.ngram_batch is not None:
            ngram_batch = replace(batch.ngram_batch, index=batch.ngram_batch.index.masked_fill(chosen, 0))
            batch = replace(batch, ngram_batch=ngram_batch)
    return batch


def divergence_error(
    state: TrainState, context: RunContext, loss: float, grad_norm: float, batches: Sequence[Batch]
) -> DivergedError:
    """Return the error that names the step and the first examples of all processes."""
    progress, group = state.progress, context.group
    local = [int(i) for batch in batches if batch.n_labels for i in batch.index[:5]]
    examples = ", ".join(str(i) for rows in group.all_gather_rows([local], group.world_size) for i in rows)
    return DivergedError(
        f"loss {loss} and gradient norm {grad_norm} at step {progress.step + 1} (epoch {progress.epoch}, batch "
        f"{progress.position}, examples {examples} …); no weight was changed",
        "the last checkpoint is sound: lower --lr, raise --warmup or set --max-grad-norm 1, and train again",
    )
