"""The training loop: what a run needs, what changes while it trains, what a step does, and validation.

Plain PyTorch, shared by all tasks. The state is saved as named tensors and a JSON object (`runs/model_folder.py`), from
which a run resumes exactly. Losses are sums over the labels of a batch in nats, and are divided once. Reported is the
plain cross-entropy also with adversarial training, so that the curves of runs with and without it can be compared.
"""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor, nn

from glassformer.config import Config, TrainConfig
from glassformer.data.batches import Batch
from glassformer.data.corpus import EncodedCorpus
from glassformer.data.splits import Split, TextData
from glassformer.distributed import SINGLE_PROCESS, ProcessGroup
from glassformer.errors import DivergedError
from glassformer.models.ensemble import members_of
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.nn.layers import Stack
from glassformer.runs.model_folder import Weights, load_weights
from glassformer.runs.records import StepMetrics, logs_updates
from glassformer.tasks import Task
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.finetune import PretrainedModel
from glassformer.training.optimizer import load_optimizer_tensors, lr_factor, make_optimizer, optimizer_tensors
from glassformer.utils.cpu_threads import Threads
from glassformer.utils.device import Precision, autocast
from glassformer.utils.formatting import counted
from glassformer.utils.process_settings import turns

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunContext:
    """Data, task, device and processes of a run; nothing here changes while it trains."""

    data: TextData
    task: Task
    train: EncodedCorpus
    valid: EncodedCorpus
    device: torch.device
    pretrained: PretrainedModel | None = None
    """The run whose weights a new run starts from (`init_from`)."""
    group: ProcessGroup = SINGLE_PROCESS
    """The processes that train together."""
    threads: Threads | None = None
    """What adapts the number of threads to the load of the machine; None where that number is fixed."""
    choice: str = ""
    """What was chosen to compute with by a trial on this machine, and why, in words (`computing.py`)."""

    @property
    def config(self) -> Config:
        return self.task.config

    @property
    def precision(self) -> Precision:
        return "bf16" if self.config.train.precision == "bf16" else "fp32"

    def with_config(self, config: Config) -> RunContext:
        """Return the same context with another configuration, of settings that do not affect data and tokenizer."""
        return replace(self, task=self.task.with_config(config))


class LossModule(nn.Module):
    """A model with its task's loss as one module, so that DistributedDataParallel sees one forward pass per batch.

    Args:
        model: the only child with parameters.
        task: computes the loss of a batch from the model.
    """

    def __init__(self, model: nn.Module, task: Task) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: Batch) -> Float[Tensor, ""]:
        """Return the cross-entropy with label smoothing; the members of an ensemble learn each by itself."""
        smoothing = self.task.config.train.label_smoothing
        sums = [self.task.loss_sum(member, batch, smoothing) for member in members_of(self.model)]
        return torch.stack(sums).mean()


Number = Annotated[int, Meta(ge=0, le=2**53)]
Amount = Annotated[float, Meta(ge=0, le=2**53)]


@dataclass
class Progress:
    """The position of a run, written as JSON; steps and epochs are those of the run, over all resumes.

    Attributes:
        position: batches of this epoch already used, so that no batch is repeated after a resume.
        seconds: wall-clock time of training and validation, over all resumes.
        next_validation: the epochs after which the next one is due.
        finished: why the run ended, "budget", "patience" or, by `--finish` or the page, "stopped"; empty before.
        steps_counted, steps_clipped: steps since the last that logged its updates, and those whose gradient was
            clipped.
    """

    step: Number = 0
    epoch: Number = 0
    position: Number = 0
    seconds: Amount = 0.0
    next_validation: Amount = 0.0
    validated_step: Number = 0
    best_metric: float | None = None
    best_loss: float | None = None
    best_step: Number = 0
    validations_since_best: Number = 0
    finished: Literal["", "budget", "patience", "stopped"] = ""
    steps_counted: Number = 0
    steps_clipped: Number = 0


class TrainState:
    """Everything that changes while a run trains.

    Args:
        model: the task's model, on its device; its layers may be compiled.
        task: names the training settings and computes the loss.
        group: the processes that train together.
        initial: metric and loss of the weights before the first step, where these count as validated (with a probe), so
            that steps that make them worse are not kept.

    Attributes:
        train_module: the model with its loss (`LossModule`), in DDP where there are several processes.
        eval_model: a copy for validation and for the end of a run, which load the weights to use into it.
        ema: moving average of the weights, if any.
        best: the weights that validated best so far.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        group: ProcessGroup = SINGLE_PROCESS,
        initial: tuple[float, float] | None = None,
    ) -> None:
        config, self.model, self.initial = task.config.train, model, initial
        self.eval_model = copy.deepcopy(model)  # whose layers are not compiled
        if config.compile:
            for stack in (module for module in model.modules() if isinstance(module, Stack)):
                for layer in stack.layers:
                    layer.compile()
        self.train_module = group.wrap_ddp(LossModule(model, task))
        self.restart(config)

    def restart(self, config: TrainConfig) -> None:
        """Begin with the weights that the model has: a new optimizer and moving average, and no step taken."""
        self.optimizer = make_optimizer(self.model, config)
        self.best: Weights | None = None
        self.ema = copy_weights(dict(self.model.named_parameters())) if config.ema_decay > 0 else None
        metric, loss = self.initial or (None, None)
        self.progress = Progress(next_validation=config.validate_every, best_metric=metric, best_loss=loss)
        if self.initial is not None:
            self.best = copy_weights(self.weights())

    @contextmanager
    def trial(self, config: TrainConfig) -> Iterator[None]:
        """Restore weights and random generators after the block, whose steps count for nothing."""
        weights = copy_weights(dict(self.model.named_parameters()))
        states = [(generator, generator.get_rng_state()) for generator in _generators().values()]
        yield
        load_weights(self.model, weights)
        self.restart(config)
        for generator, state in states:
            generator.set_rng_state(state)

    def weights(self) -> Weights:
        """Return the weights to validate and keep: the moving average where there is one."""
        return self.ema or {name: p.detach() for name, p in self.model.named_parameters()}

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors of the state under one flat set of names."""
        groups: dict[str, Weights] = {
            "model": {name: p.detach() for name, p in self.model.named_parameters()},
            "optimizer": optimizer_tensors(self.model, self.optimizer),
            "ema": self.ema or {},
            "best": self.best or {},
            "rng": {name: generator.get_rng_state() for name, generator in _generators().items()},
        }
        return {f"{group}:{name}": t for group, named in groups.items() for name, t in named.items()}

    def load(self, tensors: dict[str, Tensor], progress: Progress) -> None:
        """Restore a saved state.

        Raises:
            CheckpointError: names or shapes are not those of this model and its optimizer.
        """
        self.progress = progress
        groups: dict[str, Weights] = {group: {} for group in ("model", "optimizer", "ema", "best", "rng")}
        for full_name, tensor in tensors.items():
            group, _, name = full_name.partition(":")
            groups[group][name] = tensor
        # Each group passes through the model, which checks it and has it on its device.
        if self.ema is not None:
            load_weights(self.model, groups["ema"])
            self.ema = copy_weights(dict(self.model.named_parameters()))
        if progress.best_metric is not None:
            load_weights(self.model, groups["best"])
            self.best = copy_weights(dict(self.model.named_parameters()))
        load_weights(self.model, groups["model"])
        load_optimizer_tensors(self.model, self.optimizer, groups["optimizer"])
        for name, generator in _generators().items():  # those that this machine lacks, or had not, are left alone
            if name in groups["rng"]:
                generator.set_rng_state(groups["rng"][name].cpu())


def copy_weights(weights: Weights) -> Weights:
    """Return a copy that later steps do not change."""
    return {name: t.detach().clone() for name, t in weights.items()}


def _generators() -> dict[str, Any]:
    """Return the modules with a random number generator, by device."""
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    return {"cpu": torch} | ({"cuda": torch.cuda} if cuda else {}) | ({"mps": torch.mps} if mps else {})


Callback = Callable[[StepMetrics], None]
"""What follows a step: gets its metrics, and may set more of them. None draws a random number."""


def train_steps(state: TrainState, context: RunContext, callbacks: Sequence[Callback]) -> None:
    """Train from where the run is until a callback says why it is finished, in `state.progress`."""
    progress, n = state.progress, context.config.train.accumulate
    while not progress.finished:
        plan = context.task.epoch_batches(context.train, progress.epoch)
        for start in range(progress.position, len(plan), n):
            metrics = train_step(state, context, plan[start : start + n], len(plan))
            for act in callbacks:
                act(metrics)
            if progress.finished:
                break


def train_step(state: TrainState, context: RunContext, plan: Sequence[np.ndarray], n_in_epoch: int) -> StepMetrics:
    """Take one step on entries of the plan of an epoch, and return its metrics; the last one ends the budget."""
    progress, config = state.progress, context.config.train
    turns.give_way()  # to threads of this process that predict with other settings of torch
    n_threads = context.threads.adjust() if context.threads else torch.get_num_threads()
    began, is_logged = time.perf_counter(), logs_updates(progress.step + 1)
    if context.group.world_size > 1:  # dropout differs between ranks, and a resumed run repeats it
        seed = np.random.SeedSequence([config.seed, progress.step, context.group.rank]).generate_state(1)
        torch.manual_seed(int(seed[0]))
    used = budget_used(progress, config, n_in_epoch)
    lr = config.lr * lr_factor(config.schedule, config.warmup, progress.step + 1, used)
    batches = local_batches(context, plan)
    made = time.perf_counter()
    taken = optimizer_step(state, context, batches, lr, is_logged)
    seconds = time.perf_counter() - began
    progress.step += 1
    progress.position += len(plan)
    if progress.position >= n_in_epoch:
        progress.epoch, progress.position = progress.epoch + 1, 0
    progress.seconds += seconds
    progress.steps_counted += 1
    progress.steps_clipped += taken.grad_norm > (config.max_grad_norm or math.inf)
    clipped = None
    if is_logged:
        clipped = progress.steps_clipped / progress.steps_counted
        progress.steps_counted = progress.steps_clipped = 0
    used = budget_used(progress, config, n_in_epoch)
    if used >= 1.0:
        progress.finished = "budget"
    return StepMetrics(
        step=progress.step,
        epoch=progress.epoch + progress.position / n_in_epoch,
        loss=taken.loss,
        lr=lr,
        grad_norm=taken.grad_norm,
        tokens_per_s=taken.n_tokens / seconds,
        padding=1 - taken.n_tokens / max(1, taken.n_slots),
        seconds=progress.seconds,
        progress=used,
        eta_seconds=progress.seconds * (1 - used) / used if used > 0 else None,
        threads=n_threads if context.device.type == "cpu" else None,
        update_ratios=taken.update_ratios,
        clipped=clipped,
        wait=(made - began) / seconds if is_logged else None,
    )


def local_batches(context: RunContext, plan: Sequence[np.ndarray]) -> list[Batch]:
    """Return this process's share of the batches of a step, on its device."""
    shares = context.group.split_batches(plan)
    made = ((context.task.make_batch(context.train, rows).to(context.device), counts) for rows, counts in shares)
    return [batch if counts else replace(batch, n_tokens=0, n_labels=0) for batch, counts in made]


class Taken(NamedTuple):
    """A step: the loss in nats per label, the norm before clipping, and the real tokens and places of all processes."""

    loss: float
    grad_norm: float
    n_tokens: float
    n_slots: float
    update_ratios: dict[str, float] | None


def optimizer_step(
    state: TrainState, context: RunContext, batches: Sequence[Batch], lr: float, with_ratios: bool = False
) -> Taken:
    """Take one step on one or more batches of this process; the progress stays.

    Losses are summed and divided once by the labels of all batches and processes, so that accumulated small batches
    give the step of one large batch, whatever their lengths. DDP averages the gradients of the processes, so each
    divides by its share of all labels. A batch without labels runs with the others and adds zero.

    Raises:
        DivergedError: loss or gradient is not finite; no weight was changed.
    """
    config, group, progress = context.config.train, context.group, state.progress
    counts = zip(*((batch.n_labels, batch.n_tokens, batch.n_slots) for batch in batches), strict=True)
    n_labels, n_tokens, n_slots = group.all_reduce(*map(sum, counts))
    n_labels, total = max(1.0, n_labels), torch.zeros((), device=context.device)  # special tokens alone have no label
    state.model.train()
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
        local = [int(i) for batch in batches if batch.n_labels for i in batch.index[:5]]
        examples = ", ".join(str(i) for rows in group.all_gather_rows([local], group.world_size) for i in rows)
        raise DivergedError(
            f"loss {loss} and gradient norm {norm} at step {progress.step + 1} (epoch {progress.epoch}, batch "
            f"{progress.position}, examples {examples} …); no weight was changed",
            "the last checkpoint is sound: lower --lr, raise --warmup or set --max-grad-norm 1, and train again",
        )
    for param_group in state.optimizer.param_groups:
        param_group["lr"] = lr * param_group.get("lr_factor", 1.0)
    before: Weights = {}
    if with_ratios:  # copied after the backward pass, when the activations, which need more memory, are gone
        before = copy_weights({n: p for n, p in state.model.named_parameters() if p.requires_grad and p.dim() > 1})
    state.optimizer.step()
    state.optimizer.zero_grad()
    ratios = update_ratios(state.model, before) if with_ratios else None
    if state.ema is not None:
        # As in TensorFlow: a smaller decay at first, so that the random start does not dominate a short run.
        decay = min(config.ema_decay, (1 + progress.step) / (10 + progress.step))
        with torch.no_grad():
            torch._foreach_lerp_([*state.ema.values()], [*state.model.parameters()], 1 - decay)  # pyright: ignore
    return Taken(loss, norm, n_tokens, n_slots, ratios)


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
    become steps before the first one (`in_updates`).
    """
    epochs = (progress.epoch + progress.position / batches_per_epoch) / (config.epochs or math.inf)
    return min(1.0, max(epochs, progress.step / (config.steps or math.inf)))


def word_dropout(batch: Batch, tokenizer: Tokenizer, mask_prob: float, unknown_prob: float) -> Batch:
    """Replace a share of the input tokens by [MASK] and another by [UNK] (word dropout; Iyyer et al. 2015).

    A masked token loses its n-gram features too; an unknown one keeps them, as words not seen in training do. Special
    tokens stay.
    """
    is_word = ~torch.isin(batch.ids, torch.tensor(sorted(tokenizer.special_ids), device=batch.ids.device))
    for share, id in ((unknown_prob, tokenizer.unk_id), (mask_prob, tokenizer.mask_id)):
        if share > 0.0:
            chosen = is_word & (torch.rand(batch.ids.shape, device=batch.ids.device) < share)
            batch = replace(batch, ids=batch.ids.masked_fill(chosen, id))
            if id == tokenizer.mask_id and batch.ngram_batch is not None:
                index = batch.ngram_batch.index.masked_fill(chosen, 0)
                batch = replace(batch, ngram_batch=replace(batch.ngram_batch, index=index))
    return batch


def backward(
    module: nn.Module,
    context: RunContext,
    batch: Batch,
    divisor: float,
    is_last: bool,
    change: Callable[[nn.Module, Any, Tensor], Tensor] | None = None,
) -> Tensor:
    """Add the gradient of loss / divisor to the weights' gradients, and return the loss.

    Args:
        module: a `LossModule`, in DDP where there are several processes.
        context: precision and processes.
        batch: one without labels runs with those of other processes, and adds zero.
        divisor: labels of the step.
        is_last: whether no other pass of this step follows, so that processes average their gradients now.
        change: a hook that the outputs of the token embeddings pass through.
    """
    handles: list[Any] = []
    if change is not None:
        embeddings = (each for each in module.modules() if isinstance(each, TokenEmbedding))
        handles = [each.register_forward_hook(change) for each in embeddings]
    try:
        with context.group.sync_gradients(module, is_last):
            with autocast(context.device, context.precision):
                loss = module(batch)
            if not batch.n_labels:
                loss = loss * 0.0
            (loss / divisor).backward()
    finally:
        for handle in handles:
            handle.remove()
    return loss.detach()


def adversarial_backward(module: nn.Module, context: RunContext, batch: Batch, divisor: float, is_last: bool) -> Tensor:
    """Do what `backward` does for the mean of the losses at embeddings x and at x + r (FGM; Miyato et al. 2017, 3).

    r, the perturbation of an example's token embeddings, points to where its loss rises fastest, and its norm is
    `adversarial` times theirs. Departure: the paper's norm is absolute and its embeddings are normalised, so that a
    model cannot outgrow it. Dropout differs between the two passes.
    """
    # (B, L, D) each: one of a classifier, source and target of a translator, and so for each member, in the order in
    # which both passes call the embeddings.
    xs: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: Any, x: Tensor) -> Tensor:
        x = x if x.requires_grad else x.requires_grad_()  # of frozen embeddings
        x.retain_grad()
        xs.append(x)
        return x

    loss = backward(module, context, batch, 2 * divisor, False, keep)
    # x.grad is that of loss / (2 · divisor): r depends on its direction alone.
    epsilon = context.config.train.adversarial
    rs = iter([perturbation(x.detach(), cast(Tensor, x.grad), epsilon) for x in xs])
    backward(module, context, batch, 2 * divisor, is_last, lambda _module, _inputs, x: x + next(rs))
    return loss


def perturbation(x: Float[Tensor, "B L D"], gradient: Float[Tensor, "B L D"], epsilon: float) -> Float[Tensor, "B L D"]:
    """Return each example's gradient scaled to `epsilon` times the norm of its x; zero where the gradient is zero.

    Rows of x without a gradient, those of padding, do not count towards its norm.
    """
    used = (gradient != 0).any(dim=-1, keepdim=True)
    norm = (x * used).flatten(1).norm(dim=1)
    scale = epsilon * norm / gradient.flatten(1).norm(dim=1).clamp(min=torch.finfo(gradient.dtype).tiny)
    return gradient * scale[:, None, None]


@dataclass
class Validation:
    """A callback that validates every `validate_every` epochs, `validate_min_steps` apart, and at the end.

    It keeps the weights that are the best so far, and ends a run that has lost patience.
    """

    state: TrainState
    context: RunContext

    def __call__(self, metrics: StepMetrics) -> None:
        progress, config = self.state.progress, self.context.config.train
        too_soon = progress.step - progress.validated_step < config.validate_min_steps
        if not progress.finished and (metrics.epoch + 1e-9 < progress.next_validation or too_soon):
            return
        began, data = time.perf_counter(), self.context.data
        if not progress.finished:
            every = config.validate_every
            progress.next_validation = every * (math.floor((metrics.epoch + 1e-9) / every) + 1)
        progress.validated_step = progress.step
        scores = validation_scores(self.context, self.state, self.context.valid, data.valid)
        if config.score_train:
            of_train = validation_scores(self.context, self.state, self.whole_train, data.train)
            scores |= {f"train_{name}": value for name, value in of_train.items()}
        task = self.context.task
        metric, loss, sign = scores[task.metric], scores["loss"], 1 if task.higher_is_better else -1
        is_better = not math.isnan(metric)
        if progress.best_metric is not None and progress.best_loss is not None:
            # A lower loss decides where the metric is equal, as it often is early, at 0.
            is_better = (sign * metric, -loss) > (sign * progress.best_metric, -progress.best_loss)
        if is_better:
            progress.best_metric, progress.best_loss = metric, loss
            progress.best_step, progress.validations_since_best = progress.step, 0
            self.state.best = copy_weights(self.state.weights())
        else:
            progress.validations_since_best += 1
        if config.patience is not None and progress.validations_since_best >= config.patience and not progress.finished:
            progress.finished = "patience"
            if self.context.group.is_main:
                without = counted(config.patience, "validations")
                logger.info(f"ends at step {progress.step:,}: {without} without a better one")
        progress.seconds += time.perf_counter() - began
        metrics.valid, metrics.best, metrics.seconds = scores, is_better, progress.seconds

    @cached_property
    def whole_train(self) -> EncodedCorpus:
        """Return the training split with one example per text: encoding for training may skip some."""
        context, split = self.context, self.context.data.train
        if context.task.schema.columns is None or len(context.train) == len(split):
            return context.train
        return context.task.encode(split, training=False)


def validation_scores(context: RunContext, state: TrainState, corpus: EncodedCorpus, split: Split) -> dict[str, float]:
    """Return the task's scores of the weights to validate, those of the main process."""
    load_weights(state.eval_model, state.weights())
    with autocast(context.device, context.precision):
        scores = context.task.validate(state.eval_model, corpus, split, context.group)
    return dict(zip(scores, context.group.broadcast(*scores.values()), strict=True))
