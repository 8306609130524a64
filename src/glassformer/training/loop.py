"""The training loop: one update, and the run of them. Plain torch, shared by all tasks.

It yields a `StepReport` an update; the progress bar, the log and the tests read those. It saves
nothing and prints nothing: `training/trainer.py` does, between two reports.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from glassformer.config import TrainConfig
from glassformer.data.batching import Batch
from glassformer.errors import DivergedError
from glassformer.runs.records import StepReport
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.context import RunContext
from glassformer.training.losses import objective_of
from glassformer.training.schedule import lr_factor
from glassformer.training.signals import StopRequest
from glassformer.training.state import TrainState
from glassformer.training.validation import Validator
from glassformer.utils.cpu_threads import make_room
from glassformer.utils.device import autocast


def train_steps(
    state: TrainState, run: RunContext, validator: Validator, request: StopRequest | None = None
) -> Iterator[StepReport]:
    """Update `state` until its budget is spent or patience is lost, one report an update.

    A `request` to stop that reached one process by the end of an update is in the reports of all, `StepReport.stop`;
    one that comes later, during validation, is in those of the next update. Who reads the reports stops there.
    """
    at, c, request = state.progress, run.config.train, request or StopRequest()
    while not at.finished:
        plan = run.task.epoch_batches(run.train, at.epoch)
        while at.position < len(plan) and not at.finished:
            began, n_threads = time.perf_counter(), make_room()
            chosen = plan[at.position : at.position + c.accumulate]
            run.ranks.reseed(c.seed, at.step)
            batches = own_batches(run, chosen)
            lr = c.lr * lr_factor(c.schedule, c.warmup, at.step + 1, spent(state, c, len(plan)))
            loss, grad_norm = update(state, run, batches, lr)

            at.step += 1
            at.position += len(chosen)
            elapsed = time.perf_counter() - began
            at.seconds += elapsed
            epoch = at.epoch + at.position / len(plan)
            share = spent(state, c, len(plan))
            if share >= 1.0:
                at.finished = "budget"
            n_tokens, n_slots, stop = agree(run, batches, request)
            report = StepReport(
                at.step,
                epoch,
                loss,
                lr,
                grad_norm,
                tokens_per_s=n_tokens / elapsed,
                padding=1 - n_tokens / max(1, n_slots),
                seconds=at.seconds,
                progress=share,
                eta_seconds=at.seconds * (1 - share) / share if share > 0 else None,
                threads=n_threads if run.device.type == "cpu" else None,
                stop=stop,
            )
            if at.position >= len(plan):
                at.epoch, at.position = at.epoch + 1, 0
            if validator.is_due(state, epoch):
                scores = validator(state)
                report = replace(report, valid=scores, best=at.best_step == at.step, seconds=at.seconds)
            yield report
            if at.position == 0:
                break


def own_batches(run: RunContext, entries: Sequence[np.ndarray]) -> list[Batch]:
    """This process's share of the entries of an update, where the model is."""
    made = [(run.task.make_batch(run.train, rows), counts) for rows, counts in run.ranks.pieces(entries)]
    return [(batch if counts else batch.unscored()).to(run.device) for batch, counts in made]


def agree(run: RunContext, batches: list[Batch], request: StopRequest) -> tuple[float, float, signal.Signals | None]:
    """Return tokens and slots of an update over all processes, and the signal that has reached any of them."""
    own = [sum(b.n_tokens for b in batches), sum(b.n_slots for b in batches)]
    stops = signal.SIGINT, signal.SIGTERM
    tokens, slots, *reached = run.ranks.sum(*own, *(request.signal == number for number in stops))
    return tokens, slots, next((number for number, n in zip(stops, reached, strict=True) if n), None)


def update(state: TrainState, run: RunContext, batches: list[Batch], lr: float) -> tuple[float, float]:
    """One optimizer update over one or more batches; returns (nats per label, gradient norm).

    Losses are summed and divided once by the labels of all batches, so that accumulating small
    batches is the same as one large batch, whatever their lengths. Of several processes each has its own batches;
    their gradients are averaged, so each divides by its share of the labels of all, and the average is the gradient
    of one process. A batch without labels is computed with the others and counts nothing.

    Raises:
        DivergedError: loss or gradient is not finite; nothing was updated.
    """
    c = run.config.train
    objective = objective_of(c)
    state.model.train()
    (n_labels,) = run.ranks.sum(sum(batch.n_labels for batch in batches))
    total = torch.zeros((), device=run.device)
    for i, batch in enumerate(batches):
        with run.ranks.sync(state.parallel, last=i == len(batches) - 1):
            with autocast(run.device, run.precision):
                hidden = hide_words(batch, run.task.tokenizer, c.word_mask_prob, c.word_unknown_prob)
                minimised, loss = state.parallel(objective, run.task, hidden)
            if not batch.n_labels:
                minimised, loss = minimised * 0.0, loss * 0.0
            (minimised / (n_labels / run.ranks.size)).backward()
        total += loss.detach()
    max_norm = c.clip if c.clip > 0 else math.inf
    norm = nn.utils.clip_grad_norm_(state.model.parameters(), max_norm)
    own_nats, grad_norm = torch.stack([total, norm]).tolist()  # the one place where a GPU is waited for
    (nats,) = run.ranks.sum(own_nats)
    mean_loss = nats / n_labels
    if not (math.isfinite(mean_loss) and math.isfinite(grad_norm)):
        raise diverged(state, run, mean_loss, grad_norm, batches)
    for group in state.optimizer.param_groups:
        group["lr"] = lr * group.get("lr_factor", 1.0)
    state.optimizer.step()
    state.optimizer.zero_grad(set_to_none=True)
    if state.ema is not None:
        state.ema.update(state.model, state.progress.step)
    return mean_loss, grad_norm


def spent(state: TrainState, c: TrainConfig, n_batches: int) -> float:
    """The share of the budget used, in [0, 1]: the larger of epochs and updates.

    A function of where the run is and not of the clock, so that a run can be repeated and resumed: minutes
    become updates before the first one (`budget.py`).
    """
    at = state.progress
    epochs = (at.epoch + at.position / n_batches) / (c.epochs or math.inf)
    return min(1.0, max(epochs, at.step / (c.steps or math.inf)))


def hide_words(batch: Batch, tokenizer: Tokenizer, mask_prob: float, unknown_prob: float) -> Batch:
    """Word dropout (Iyyer et al. 2015): a share of the input tokens becomes [MASK], another [UNK].

    A masked token loses its spelling, too; an unknown one keeps it, as words that training never saw do.
    Special tokens, which come first, stay.
    """
    word = batch.ids > tokenizer.mask_id
    if unknown_prob > 0.0:
        chosen = word & (torch.rand(batch.ids.shape, device=batch.ids.device) < unknown_prob)
        batch = replace(batch, ids=batch.ids.masked_fill(chosen, tokenizer.unk_id))
    if mask_prob > 0.0:
        chosen = word & (torch.rand(batch.ids.shape, device=batch.ids.device) < mask_prob)
        batch = replace(batch, ids=batch.ids.masked_fill(chosen, tokenizer.mask_id))
        if batch.spelling is not None:
            spelling = replace(batch.spelling, which=batch.spelling.which.masked_fill(chosen, 0))
            batch = replace(batch, spelling=spelling)
    return batch


def diverged(state: TrainState, run: RunContext, loss: float, grad_norm: float, batches: list[Batch]) -> DivergedError:
    """The error that names the update and its examples, those of all processes."""
    at = state.progress
    own = [int(i) for batch in batches if batch.n_labels for i in batch.index[:5]]
    examples = ", ".join(str(i) for rows in run.ranks.gathered([own], run.ranks.size) for i in rows)
    return DivergedError(
        f"loss {loss} and gradient norm {grad_norm} at update {at.step + 1} (epoch {at.epoch}, batch "
        f"{at.position}, examples {examples} …); nothing was updated",
        "the last checkpoint is sound: lower --lr, raise --warmup or set --clip 1, and train again",
    )
