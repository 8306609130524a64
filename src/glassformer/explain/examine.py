"""What the doctor sees inside a run: attention scores, heads, dead units, its first loss and what its batches show.

Everything here loads weights or data; what the log alone shows is in `report/findings.py`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from glassformer.data.batches import Batch
from glassformer.data.corpus import EncodedCorpus
from glassformer.data.diagnostics import Diagnostics, read_lines
from glassformer.data.splits import Split
from glassformer.errors import GlassformerError
from glassformer.explain.capture.attach import id_of_path
from glassformer.explain.capture.exact_inference import exact_no_grad
from glassformer.explain.capture.hooks import Arguments, ModuleHooks
from glassformer.explain.capture.tape import Tape
from glassformer.models.ensemble import members_of
from glassformer.nn.attention import Mask, MultiHeadAttention, Tap
from glassformer.nn.layers import FeedForward
from glassformer.report.findings import (
    EXAMINED,
    OF_ACTIVITY,
    Checkup,
    Finding,
    NotMade,
    first_loss_and_chance,
    run_checks,
)
from glassformer.report.run_record import RunRecord
from glassformer.runs.checkpoints import latest_checkpoint, load_checkpoint
from glassformer.runs.folder import RunFolder
from glassformer.runs.model_folder import Weights, load_weights
from glassformer.tasks import Task
from glassformer.tasks.restoring import load_model_folder
from glassformer.training.finetune import freeze
from glassformer.training.loop import local_batches, optimizer_step
from glassformer.training.preparation import prepare
from glassformer.training.state import RunContext, TrainState
from glassformer.utils.device import choose_device, tuned

MOST_TOKENS, BATCH_TOKENS = 16_000, 2048
"""Validation tokens that are looked at, and in one batch, whose scores are all in memory at once."""
FEWEST_KEYS = 8
"""Keys that a query must see for its entropy to count: over a few keys every head looks sharp."""
LARGE_SCORE, HUGE_SCORE = 200.0, 1000.0
"""Sound small models reach 10 to 20 in 150 steps, and 114 in a whole training of the recipe dates (99.9% right);
with ten times their rate 240 and more in 150 steps (`benchmarks/doctor.json`)."""
SHARP, MOST_SHARP = 0.05, 0.15
"""Entropy, as a share of that of looking at all keys alike, under which a head looks at one, and the share of such."""
UNIFORM, MOST_UNIFORM = 0.999, 0.4
"""The same for heads that look at all tokens alike; those of the last layer of a sound classifier reach 0.997."""
DEAD, MOST_DEAD = 0.2, 0.8
"""Share of the units of a block that are silent on all tokens, for `look` and for `stop`."""
FRESH_SEEDS = 3
FIRST_LOSS, DEVIATIONS = 1.0, 4.0
"""Nats, and standard deviations of fresh models, by which a first loss may differ from theirs."""
FEW_ROWS = 4
"""Examples that tell whether answers are visible; their logits over the vocabulary are in memory."""
ROUNDING = 1e-3
"""Change of logits, as a share of the largest, that is rounding."""
SHOWN, REPEATED = 0.9, 0.5
"""Share of labels that equal their own input, and of inputs that equal the one before, from which repetition would
explain it."""


@dataclass
class Activity:
    """What the layers did on some tokens, by id as in `explain`.

    Attributes:
        scores: largest |score| before the softmax, over allowed keys, of each head.
        entropy: entropy of the weights / ln(keys that the query sees), mean over queries with `FEWEST_KEYS` or more, of
            each head; absent without such queries.
        dead: share of the units of a ReLU block that were 0 on all tokens.
        n_tokens: tokens that were looked at.
    """

    scores: dict[str, Tensor] = field(default_factory=dict)
    entropy: dict[str, Tensor] = field(default_factory=dict)
    dead: dict[str, float] = field(default_factory=dict)
    n_tokens: int = 0


class _AttentionSums:
    """Sums over the calls of one attention, kept by the taps that it is given."""

    def __init__(self, n_heads: int) -> None:
        self.largest, self.entropy, self.n_queries = torch.zeros(n_heads), torch.zeros(n_heads).double(), 0

    def tap_of(self, args: Arguments) -> Tap:
        """Return the tap of a call, which reads scores and weights."""
        given: Mask | None = args.get("mask")
        is_self = args.get("memory") is None

        def tap(step: str, value: Tensor) -> Tensor:
            if step in ("scores", "weights"):
                allowed = torch.ones_like(value, dtype=torch.bool) if given is None else given.allowed.expand_as(value)
                if is_self and value.shape[-2] == value.shape[-1]:  # a padding token does not see itself
                    allowed = allowed & allowed.diagonal(dim1=-2, dim2=-1)[..., None]
                self._add(step, value.float(), allowed)
            return value

        return tap

    def _add(self, step: str, value: Float[Tensor, "B H Q K"], allowed: Bool[Tensor, "B H Q K"]) -> None:
        if step == "scores":
            largest = value.abs().masked_fill(~allowed, 0.0).amax(dim=(0, 2, 3)).cpu()
            self.largest = torch.maximum(self.largest, largest)
            return
        n_keys = allowed.sum(dim=-1)
        counted = n_keys >= FEWEST_KEYS
        shares = torch.special.entr(value).sum(dim=-1) / n_keys.clamp(min=2).log()
        self.entropy += shares.masked_fill(~counted, 0.0).sum(dim=(0, 2)).double().cpu()
        self.n_queries += int(counted[:, 0].sum())


def observe(model: nn.Module, batches: Iterable[Batch], forward: Callable[[Batch], object]) -> Activity:
    """Return what the layers of a model do on batches, up to `MOST_TOKENS` tokens.

    Args:
        model: any that is built from `glassformer.nn`, imported ones included.
        batches: on the model's device.
        forward: runs the model on a batch.
    """
    hooks, activity = ModuleHooks(Tape([("", model)], ())), Activity()
    attentions: dict[str, _AttentionSums] = {}
    alive: dict[str, Tensor] = {}

    def note(name: str, x: Tensor) -> None:
        fires = (x > 0).flatten(0, -2).any(dim=0)
        alive[name] = fires | alive[name] if name in alive else fires

    for path, module in model.named_modules():
        name = id_of_path(path)
        if isinstance(module, MultiHeadAttention):
            attentions[name] = _AttentionSums(module.n_heads)
            hooks.set_tap(module, attentions[name].tap_of)
        elif isinstance(module, FeedForward) and module.activation == "relu":
            hooks.on_input(module.down_proj, lambda x, name=name: note(name, x))
    try:
        with exact_no_grad(model):
            for batch in batches:
                forward(batch)
                activity.n_tokens += batch.n_tokens
                if activity.n_tokens >= MOST_TOKENS:
                    break
    finally:
        hooks.remove()
    activity.scores = {name: sums.largest for name, sums in attentions.items()}
    seen = {name: sums for name, sums in attentions.items() if sums.n_queries}
    activity.entropy = {name: sums.entropy / sums.n_queries for name, sums in seen.items()}
    activity.dead = {name: 1 - fires.float().mean().item() for name, fires in alive.items()}
    return activity


def activity_of(model: nn.Module, task: Task, corpus: EncodedCorpus) -> Activity:
    """Return the activity of a task's model on a corpus; texts of all lengths are among those looked at."""
    plan, device = task.eval_batches(corpus, BATCH_TOKENS), next(model.parameters()).device
    stride = max(1, len(plan) * BATCH_TOKENS // (2 * MOST_TOKENS))  # the plan is sorted by length
    batches = (task.make_batch(corpus, index).to(device) for index in plan[::stride])
    return observe(model, batches, lambda batch: [task.logits(member, batch) for member in members_of(model)])


def scores(activity: Activity) -> Iterator[Finding]:
    """Yield a finding if attention scores are so large that the softmax is one-hot (arXiv:2309.14322)."""
    if not activity.scores:
        raise NotMade("the model has no attention of glassformer.nn")
    largest, name = max((each.max().item(), name) for name, each in activity.scores.items())
    head = int(activity.scores[name].argmax())
    if not largest <= LARGE_SCORE:
        yield Finding(
            f"attention scores reach {largest:,.0f} ({name}.head{head}); in sound runs they stay below {LARGE_SCORE:g}",
            "this usually means that the learning rate was too large: a third of --lr, or more --warmup",
            "scores",
            {"largest": largest, "limit": LARGE_SCORE, "head": head},
            grade="look" if largest <= HUGE_SCORE else "stop",
            at=name,
        )


def heads(activity: Activity) -> Iterator[Finding]:
    """Yield a finding if many heads look at one token alone, or at all alike (arXiv:2303.06296).

    A sharp head can be right, so it counts only where scores are large too; a uniform one where all scores are small.
    """
    if not activity.entropy:
        raise NotMade(f"no query sees {FEWEST_KEYS} keys")
    shares = torch.cat(list(activity.entropy.values()))
    largest = torch.cat([activity.scores[name] for name in activity.entropy])
    sharp = (shares < SHARP).double().mean().item()
    uniform = (shares > UNIFORM).double().mean().item()
    numbers = {"sharp": sharp, "uniform": uniform, "heads": float(len(shares))}
    if sharp > MOST_SHARP and largest.max().item() > LARGE_SCORE:
        matter = f"{sharp:.0%} of the {len(shares)} heads look at one token only"
        yield Finding(
            matter, "this usually follows a learning rate that was too large: a third of --lr", "heads", numbers
        )
    elif uniform > MOST_UNIFORM:
        matter = f"{uniform:.0%} of the {len(shares)} heads look at all tokens alike"
        remedy = "they have learned nothing yet, or no longer do: check --lr"
        yield Finding(matter, remedy, "heads", numbers)


def dead_units(activity: Activity) -> Iterator[Finding]:
    """Yield a finding if many ReLU units of a block were silent on all tokens."""
    if not activity.dead:
        raise NotMade("there is no feed-forward block with ReLU")
    share, name = max((share, name) for name, share in activity.dead.items())
    if share > DEAD:
        yield Finding(
            f"{share:.0%} of the units of {name} are silent on all {activity.n_tokens:,} tokens looked at",
            "a dead ReLU unit no longer learns: lower --lr, raise --warmup, or take --model.activation gelu",
            "dead-units",
            {"share": share, "limit": DEAD, "tokens": activity.n_tokens},
            grade="look" if share <= MOST_DEAD else "stop",
            at=name,
        )


def fresh_losses(context: RunContext) -> list[float]:
    """Return the losses of untrained models of other seeds in the first step."""
    plan = context.task.epoch_batches(context.train, 0)
    found, batches = list[float](), local_batches(context, plan[: context.config.train.accumulate])
    for seed in range(FRESH_SEEDS):
        torch.manual_seed(context.config.train.seed + 1_000 + seed)
        state = TrainState.start(context.task.build_model().to(context.device), context.task)
        found.append(optimizer_step(state, context, batches, 0.0)[0])
    return found


def fresh_loss(record: RunRecord, context: RunContext) -> Iterator[Finding]:
    """Yield a finding if the first loss is not that of an untrained model on the same batch.

    An untrained one is near ln V, but a tied output starts higher: fresh models are the measure.
    """
    loss, _ = first_loss_and_chance(record)
    fresh = fresh_losses(context)
    mean, limit = statistics.mean(fresh), max(FIRST_LOSS, DEVIATIONS * statistics.stdev(fresh))
    if not abs(loss - mean) <= limit:
        yield Finding(
            f"the first loss is {loss:.3g}; {FRESH_SEEDS} untrained models have {mean:.3g} ± {limit:.2g} on its batch",
            "look at how the weights are drawn, and at what the batch holds: glassformer data show",
            "first-loss",
            {"loss": loss, "fresh": mean, "limit": limit},
            grade="stop",
        )


def answer_visible(model: nn.Module, context: RunContext) -> Iterator[Finding]:
    """Yield a finding if a label is the token of its own position, or if a decoder's outputs depend on later tokens."""
    rows = context.task.epoch_batches(context.train, 0)[0][:FEW_ROWS]
    batch = context.task.make_batch(context.train, rows).to(context.device)
    given = batch.ids if batch.tgt_in is None else batch.tgt_in
    if batch.labels.shape != given.shape:
        raise NotMade(f"the task {context.task.name} has one answer a text")
    scored = batch.labels >= 0
    shown = (batch.labels == given)[scored].double().mean().item()
    repeated = (given[:, 1:] == given[:, :-1])[scored[:, 1:]].double().mean().item()
    remedy = "shift the labels by one in make_batch, and keep the causal mask: see the chapter on masks"
    if shown > SHOWN and not repeated > REPEATED:
        matter = f"{shown:.0%} of the labels are the token that is read at their own position"
        yield Finding(matter, remedy, "answer-visible", {"shown": shown, "limit": SHOWN}, grade="stop")
        return
    is_causal = context.task.explain_as in ("language_model", "translator")
    if is_causal and (moved := _moved_by_later(model, context, batch)):
        matter = f"what is predicted changes by up to {moved:.2g} logits with tokens that come later"
        yield Finding(matter, remedy, "answer-visible", {"moved": moved, "limit": ROUNDING}, grade="stop")


def _moved_by_later(model: nn.Module, context: RunContext, batch: Batch) -> float:
    """Return by how much logits move when the tokens of the second half change; 0 if by rounding at most."""
    name = "ids" if batch.tgt_in is None else "tgt_in"
    given: Tensor = getattr(batch, name)
    if (half := given.shape[1] // 2) == 0:
        return 0.0
    later = given.clone()
    later[:, half:] = given[:, half:].flip(1).roll(1, 0)
    with exact_no_grad(model):
        before, after = (
            context.task.logits(model, replace(batch, **{name: ids}))[:, :half].float() for ids in (given, later)
        )
    moved = (before - after).abs().max().item()
    return moved if moved > ROUNDING * max(1.0, before.abs().max().item()) else 0.0


def frozen(record: RunRecord, model: nn.Module) -> Iterator[Finding]:
    """Yield a finding if the log has no updates of a matrix that the settings do not freeze."""
    logged = {name for row in record.training for name in row.update_ratios or ()}
    if not logged:
        raise NotMade("the log has no update ratios")
    model.requires_grad_(True)
    freeze(model, record.config.train.frozen_layers)
    missing = [name for name, p in model.named_parameters() if p.requires_grad and p.dim() > 1 and name not in logged]
    if missing:
        matter = f"{len(missing)} of {len(missing) + len(logged)} matrices were not trained, such as {missing[0]}"
        remedy = "look for requires_grad_(False); --frozen-layers freezes on purpose"
        yield Finding(matter, remedy, "frozen", {"n": len(missing)}, grade="stop", at=missing[0])


def trained_weights(folder: RunFolder) -> Weights:
    """Return the weights of a run's model; of one that was not finished those of its newest checkpoint."""
    if folder.model_folder is not None:
        return load_model_folder(folder)[1]
    checkpoint, _ = latest_checkpoint(folder.checkpoints)
    if checkpoint is None:
        raise NotMade("the run has saved no weights")
    tensors, _ = load_checkpoint(checkpoint)
    groups = [name.partition(":")[0] for name in tensors]
    group = next(name for name in ("best", "ema", "model") if name in groups)
    return {name.partition(":")[2]: t for name, t in tensors.items() if name.startswith(f"{group}:")}


def examine(record: RunRecord) -> Checkup:
    """Load a run's data and weights, and make the checks of `EXAMINED`; on the device of its settings."""
    folder = RunFolder(record.path)
    try:
        context = prepare(record.config, folder.read_tokenizer(), record.path)
        with tuned(context.device, deterministic=record.config.train.deterministic):
            model = context.task.build_model().to(context.device)
            load_weights(model, trained_weights(folder))
            return examine_model(record, context, model)
    except (GlassformerError, NotMade) as error:
        return Checkup(not_made=dict.fromkeys(EXAMINED, str(error)))


def examine_texts(path: Path, texts: Path) -> Checkup:
    """Load a model, imported ones included, and make the checks of `OF_ACTIVITY` on the lines of a file.

    Raises:
        DataError: the file cannot be read.
    """
    task, weights = load_model_folder(RunFolder(path))
    diagnostics = Diagnostics()
    lines = [line for line in read_lines(texts, diagnostics) if line.strip()]
    diagnostics.raise_if_any()
    if task.explain_as == "translator":
        return Checkup(not_made=dict.fromkeys(OF_ACTIVITY, "a translator needs pairs, and texts are given"))
    device, model = choose_device("auto"), task.build_model()
    load_weights(model, weights)
    split = Split(["\n".join(lines)] if task.running_text else lines, None, str(texts))
    with tuned(device):
        activity = activity_of(model.to(device), task, task.encode(split, training=False))
    return run_checks(_checks_of(activity))


def examine_model(record: RunRecord, context: RunContext, model: nn.Module) -> Checkup:
    """Make the checks of `EXAMINED`; of the model only which parameters are trained is changed."""
    first = {
        "first-loss": lambda: fresh_loss(record, context),
        "answer-visible": lambda: answer_visible(model, context),
        "frozen": lambda: frozen(record, model),
    }
    return run_checks(first | _checks_of(activity_of(model, context.task, context.valid)))


def _checks_of(activity: Activity) -> dict[str, Callable[[], Iterable[Finding]]]:
    return {
        "scores": lambda: scores(activity),
        "heads": lambda: heads(activity),
        "dead-units": lambda: dead_units(activity),
    }
