"""The training loop: one optimizer step, and the steps of a run. Plain PyTorch, shared by all tasks.

It yields the `StepMetrics` of each step, which the lines of progress, the log and the tests read. It saves and prints
nothing: `trainer.py` does, between two steps.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from glassformer.config import TrainConfig
from glassformer.data.batches import Batch
from glassformer.distributed.process_group import ProcessGroup
from glassformer.errors import DivergedError
from glassformer.runs.model_folder import Weights
from glassformer.runs.records import StepMetrics, logs_updates
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.losses import adversarial_backward, backward
from glassformer.training.optimizer import lr_factor
from glassformer.training.pauses import Pauses, reduce_requests
from glassformer.training.signals import StopRequest
from glassformer.training.state import Progress, RunContext, TrainState
from glassformer.training.validation import Validator
from glassformer.utils.process_settings import turns


def train_steps(
    state: TrainState,
    context: RunContext,
    validator: Validator,
    request: StopRequest | None = None,
    pauses: Pauses | None = None,
) -> Iterator[StepMetrics]:
    """Train until the budget is used or patience is lost; yield the metrics of each step.

    A signal that reached any process by the end of a step is in the metrics of all, `StepMetrics.stop`; one that comes
    during validation is in those of the next step. The caller stops there, and likewise waits where `paused` is set.
    """
    progress, config, request = state.progress, context.config.train, request or StopRequest()
    pauses = pauses or Pauses(context.group, request, None)
    threads = context.threads
    while not progress.finished:
        batches = context.task.epoch_batches(context.train, progress.epoch)
        for start in range(progress.position, len(batches), config.accumulate):
            turns.give_way()  # to threads of this process that predict with other settings of torch
            began, n_threads = time.perf_counter(), threads.adjust() if threads else torch.get_num_threads()
            step_batches = batches[start : start + config.accumulate]
            context.group.seed_step(config.seed, progress.step)
            making, local = time.perf_counter(), local_batches(context, step_batches)
            batching, lr = time.perf_counter() - making, step_lr(progress, config, len(batches))
            ratios: dict[str, float] | None = {} if logs_updates(progress.step + 1) else None
            loss, grad_norm = optimizer_step(state, context, local, lr, ratios)

            seconds = time.perf_counter() - began
            progress.advance(len(step_batches), seconds, grad_norm > max_norm(config), batching)
            clipped, wait = progress.take_counts() if ratios is not None else (None, None)
            epoch, used = progress.epoch + progress.position / len(batches), budget_used(progress, config, len(batches))
            stats = reduce_step_stats(context.group, local, request, pauses.requested(progress.step))
            report = StepMetrics(
                step=progress.step,
                epoch=epoch,
                loss=loss,
                lr=lr,
                grad_norm=grad_norm,
                tokens_per_s=stats.n_tokens / seconds,
                padding=1 - stats.n_tokens / max(1, stats.n_slots),
                seconds=progress.seconds,
                progress=used,
                eta_seconds=progress.seconds * (1 - used) / used if used > 0 else None,
                threads=n_threads if context.device.type == "cpu" else None,
                update_ratios=ratios,
                clipped=clipped,
                wait=wait,
                paused=stats.pause,
                stop=stats.stop,
            )
            progress.end_step(used, len(batches))
            if validator.is_due(state, epoch):
                scores = validator(state, epoch)
                is_best = progress.best_step == progress.step
                report = replace(report, valid=scores, best=is_best, seconds=progress.seconds)
            yield replace(report, paused=False) if progress.finished else report
            if progress.finished:
                break
    if threads is not None:
        torch.set_num_threads(threads.most)


def local_batches(context: RunContext, batches: Sequence[np.ndarray]) -> list[Batch]:
    """Return this process's share of the batches of a step, on its device."""
    made = [
        (context.task.make_batch(context.train, rows), counts) for rows, counts in context.group.split_batches(batches)
    ]
    return [(batch if counts else batch.unscored()).to(context.device) for batch, counts in made]


@dataclass(frozen=True)
class StepStats:
    """Sums of a step over all processes: tokens, tokens with padding; whether to pause; the signal that reached any."""

    n_tokens: float
    n_slots: float
    pause: bool
    stop: signal.Signals | None


def reduce_step_stats(group: ProcessGroup, batches: list[Batch], request: StopRequest, pause: bool) -> StepStats:
    """Return the sums over all processes, in one message; `pause`: whether this one asks to pause."""
    local = [sum(batch.n_tokens for batch in batches), sum(batch.n_slots for batch in batches)]
    paused, stop, (n_tokens, n_slots) = reduce_requests(group, request, pause, *local)
    return StepStats(n_tokens, n_slots, paused, stop)


def requested_stop(group: ProcessGroup, request: StopRequest) -> signal.Signals | None:
    """Return the signal that reached any process, the same in all of them."""
    return reduce_requests(group, request, False)[1]


def max_norm(config: TrainConfig) -> float:
    """Return the largest norm that a gradient is left with."""
    return config.max_grad_norm if config.max_grad_norm > 0 else math.inf


def optimizer_step(
    state: TrainState, context: RunContext, batches: list[Batch], lr: float, ratios: dict[str, float] | None = None
) -> tuple[float, float]:
    """Take one optimizer step on one or more batches; return the loss in nats per label and the gradient norm.

    Losses are summed and divided once by the labels of all batches, so that accumulated small batches give the step of
    one large batch, whatever their lengths. DDP averages the gradients of the processes, so each divides by its share
    of all labels. A batch without labels runs with the others and adds zero.

    Where `ratios` is given, it is filled with the `update_ratios` of this step.

    Raises:
        DivergedError: loss or gradient is not finite; no weight was changed.
    """
    config, group = context.config.train, context.group
    state.model.train()
    (n_labels,) = group.all_reduce(sum(batch.n_labels for batch in batches))
    n_labels = max(1.0, n_labels)  # texts of special tokens alone have none
    total = torch.zeros((), device=context.device)
    add_gradient = adversarial_backward if config.adversarial else backward
    for i, batch in enumerate(batches):
        batch = word_dropout(batch, context.task.tokenizer, config.word_mask_prob, config.word_unknown_prob)
        is_last = i == len(batches) - 1
        total += add_gradient(state.train_module, context, batch, n_labels / group.world_size, is_last)
    norm = nn.utils.clip_grad_norm_(state.model.parameters(), max_norm(config))
    # The only place where the CPU waits for a GPU.
    local_loss, grad_norm = torch.stack([total, norm]).tolist()
    (loss_sum,) = group.all_reduce(local_loss)
    mean_loss = loss_sum / n_labels
    if not (math.isfinite(mean_loss) and math.isfinite(grad_norm)):
        raise divergence_error(state, context, mean_loss, grad_norm, batches)
    for param_group in state.optimizer.param_groups:
        param_group["lr"] = lr * param_group.get("lr_factor", 1.0)
    # Copied here and not before the step, since the activations, which need more memory, are gone.
    before = None if ratios is None else trained_matrices(state.model)
    state.optimizer.step()
    state.optimizer.zero_grad(set_to_none=True)
    if ratios is not None and before:
        ratios.update(update_ratios(state.model, before))
    if state.ema is not None:
        state.ema.update(state.model, state.progress.step)
    return mean_loss, grad_norm


def trained_matrices(model: nn.Module) -> Weights:
    """Return copies of the parameters with two dimensions or more that are trained, embeddings among them."""
    return {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad and p.dim() > 1}


@torch.no_grad()
def update_ratios(model: nn.Module, before: Weights) -> dict[str, float]:
    """Return ‖Δw‖ / ‖w‖ of each matrix in `before`, with Δw its change since and w what it is now.

    It is 0 for one that did not change, zeros included, and about 1 for one that was zero before. One that is not
    finite any more is left out.
    """
    parameters = dict(model.named_parameters())
    now = [parameters[name].detach() for name in before]
    changes: Any = torch._foreach_norm(torch._foreach_sub(now, list(before.values())))  # pyright: ignore
    norms: Any = torch._foreach_norm(now)  # pyright: ignore
    ratios = (torch.stack(changes) / torch.stack(norms).clamp(min=1e-30)).tolist()
    return {name: float(f"{ratio:.4g}") for name, ratio in zip(before, ratios, strict=True) if math.isfinite(ratio)}


def step_lr(progress: Progress, config: TrainConfig, batches_per_epoch: int) -> float:
    """Return the learning rate of the next step."""
    used = budget_used(progress, config, batches_per_epoch)
    return config.lr * lr_factor(config.schedule, config.warmup, progress.step + 1, used)


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
    state: TrainState, context: RunContext, loss: float, grad_norm: float, batches: list[Batch]
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
