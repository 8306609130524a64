"""What the doctor sees inside a run: attention scores, heads, dead units, its first loss and what its batches show.

Everything here loads weights or data; what the log alone shows is in `report/findings.py`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.data.batches import Batch
from glassformer.data.corpus import EncodedCorpus
from glassformer.data.diagnostics import Finding, NotMade
from glassformer.errors import GlassformerError
from glassformer.models.ensemble import members_of
from glassformer.nn.steps import Input, id_of_path, report_to
from glassformer.report.findings import EXAMINED, Checkup, first_loss_and_chance, needs, run_checks
from glassformer.report.run_record import RunRecord
from glassformer.runs.folder import RunFolder
from glassformer.runs.model_folder import Weights, latest_checkpoint, load_checkpoint, load_weights
from glassformer.tasks import Task
from glassformer.tasks.restoring import load_model_folder
from glassformer.training.finetune import freeze
from glassformer.training.loop import RunContext, TrainState, local_batches, optimizer_step
from glassformer.training.preparation import prepare
from glassformer.utils.device import tuned

N_TEXTS = 128
"""Validation texts that are looked at."""
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
    """What the layers did on some texts, by id as in `explain`.

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


def activity_of(model: nn.Module, task: Task, corpus: EncodedCorpus) -> Activity:
    """Return the activity of a task's model on some texts of a corpus, of all lengths, one at a time."""
    device, activity, alive = next(model.parameters()).device, Activity(), dict[str, Tensor]()
    sums: dict[str, tuple[Tensor, int]] = {}
    model.eval()
    rows = [row[None] for rows in task.eval_batches(corpus, 1) for row in rows]
    for row in rows[:: max(1, len(rows) // N_TEXTS)][:N_TEXTS]:
        batch = task.make_batch(corpus, row).to(device)
        activity.n_tokens += batch.n_tokens
        members = members_of(model)
        for number, member in enumerate(members):
            prefix = f"members.{number}." if len(members) > 1 else ""
            for block, steps in _steps(member, task, batch).items():
                name = prefix + block
                if "hidden" in steps:
                    fires = (steps["hidden"] > 0).any(dim=0)
                    alive[name] = fires | alive[name] if name in alive else fires
                elif "scores" in steps:
                    allowed = torch.ones_like(steps["scores"], dtype=torch.bool)
                    if "mask" in steps:
                        allowed &= steps["mask"].bool()
                    largest = steps["scores"].abs().masked_fill(~allowed, 0.0).amax(dim=(-2, -1)).cpu()
                    activity.scores[name] = torch.maximum(activity.scores.get(name, largest), largest)
                    n_keys = allowed.sum(dim=-1)
                    shares = torch.special.entr(steps["weights"]).sum(dim=-1) / n_keys.clamp(min=2).log()
                    total, n = sums.get(name, (0.0, 0))
                    counted = n_keys >= FEWEST_KEYS
                    total = total + shares.masked_fill(~counted, 0.0).sum(dim=-1).double().cpu()
                    sums[name] = total, n + int(counted[0].sum())
    activity.entropy = {name: total / n for name, (total, n) in sums.items() if n}
    activity.dead = {name: 1 - fires.float().mean().item() for name, fires in alive.items()}
    return activity


def _steps(model: nn.Module, task: Task, batch: Batch) -> dict[str, dict[str, Tensor]]:
    """Return the steps of attention, and the units with ReLU, of a text: by the id of the block, then by name."""
    paths = {module: path for path, module in model.named_modules()}
    found = dict[str, dict[str, Tensor]]()

    def note(module: nn.Module, name: str, value: Tensor, _: tuple[Input, ...], constants: dict[str, Any]) -> Tensor:
        if name in ("scores", "mask", "weights") or (name == "hidden" and constants.get("op") == "relu"):
            found.setdefault(id_of_path(paths[module]), {})[name] = value[0]
        return value

    with torch.no_grad(), torch.autocast(batch.ids.device.type, enabled=False), report_to(note):
        task.logits(model, batch)
    return found


def scores(activity: Activity) -> Iterator[Finding]:
    """Yield a finding if attention scores are so large that the softmax is one-hot (arXiv:2309.14322)."""
    needs(activity.scores, "the model has no attention of glassformer.nn")
    largest, name = max((each.max().item(), name) for name, each in activity.scores.items())
    head, grade = int(activity.scores[name].argmax()), "look" if largest <= HUGE_SCORE else "stop"
    if not largest <= LARGE_SCORE:
        place = f"{name}.head{head}"
        matter = f"attention scores reach {largest:,.0f} ({place}); in sound runs they stay below {LARGE_SCORE:g}"
        remedy = "this usually means that the learning rate was too large: a third of --lr, or more --warmup"
        numbers = {"largest": largest, "limit": LARGE_SCORE, "head": head}
        yield Finding(matter, remedy, "scores", numbers, grade, name)


def heads(activity: Activity) -> Iterator[Finding]:
    """Yield a finding if many heads look at one token alone, or at all alike (arXiv:2303.06296).

    A sharp head can be right, so it counts only where scores are large too; a uniform one where all scores are small.
    """
    needs(activity.entropy, f"no query sees {FEWEST_KEYS} keys")
    shares = torch.cat(list(activity.entropy.values()))
    largest = torch.cat([activity.scores[name] for name in activity.entropy])
    sharp = (shares < SHARP).double().mean().item()
    uniform = (shares > UNIFORM).double().mean().item()
    numbers = {"sharp": sharp, "uniform": uniform, "heads": float(len(shares))}
    if sharp > MOST_SHARP and largest.max().item() > LARGE_SCORE:
        matter = f"{sharp:.0%} of the {len(shares)} heads look at one token only"
        remedy = "this usually follows a learning rate that was too large: a third of --lr"
        yield Finding(matter, remedy, "heads", numbers)
    elif uniform > MOST_UNIFORM:
        matter = f"{uniform:.0%} of the {len(shares)} heads look at all tokens alike"
        remedy = "they have learned nothing yet, or no longer do: check --lr"
        yield Finding(matter, remedy, "heads", numbers)


def dead_units(activity: Activity) -> Iterator[Finding]:
    """Yield a finding if many ReLU units of a block were silent on all tokens."""
    needs(activity.dead, "there is no feed-forward block with ReLU")
    share, name = max((share, name) for name, share in activity.dead.items())
    if share > DEAD:
        matter = f"{share:.0%} of the units of {name} are silent on all {activity.n_tokens:,} tokens looked at"
        remedy = "a dead ReLU unit no longer learns: lower --lr, raise --warmup, or take --model.activation gelu"
        numbers = {"share": share, "limit": DEAD, "tokens": activity.n_tokens}
        yield Finding(matter, remedy, "dead-units", numbers, "look" if share <= MOST_DEAD else "stop", name)


def fresh_losses(context: RunContext) -> list[float]:
    """Return the losses of untrained models of other seeds in the first step."""
    plan = context.task.epoch_batches(context.train, 0)
    found, batches = list[float](), local_batches(context, plan[: context.config.train.accumulate])
    for seed in range(FRESH_SEEDS):
        torch.manual_seed(context.config.train.seed + 1_000 + seed)
        state = TrainState(context.task.build_model().to(context.device), context.task)
        found.append(optimizer_step(state, context, batches, 0.0).loss)
    return found


def fresh_loss(record: RunRecord, context: RunContext) -> Iterator[Finding]:
    """Yield a finding if the first loss is not that of an untrained model on the same batch.

    An untrained one is near ln V, but a tied output starts higher: fresh models are the measure.
    """
    loss, _ = first_loss_and_chance(record)
    fresh = fresh_losses(context)
    mean, limit = statistics.mean(fresh), max(FIRST_LOSS, DEVIATIONS * statistics.stdev(fresh))
    if not abs(loss - mean) <= limit:
        usual = f"{FRESH_SEEDS} untrained models have {mean:.3g} ± {limit:.2g} on its batch"
        remedy = "look at how the weights are drawn, and at what the batch holds: glassformer data show RECIPE"
        numbers = {"loss": loss, "fresh": mean, "limit": limit}
        yield Finding(f"the first loss is {loss:.3g}; {usual}", remedy, "first-loss", numbers, "stop")


def answer_visible(model: nn.Module, context: RunContext) -> Iterator[Finding]:
    """Yield a finding if a label is the token of its own position, or if a decoder's outputs depend on later tokens."""
    rows = context.task.epoch_batches(context.train, 0)[0][:FEW_ROWS]
    batch = context.task.make_batch(context.train, rows).to(context.device)
    given = batch.ids if batch.tgt_in is None else batch.tgt_in
    needs(batch.labels.shape == given.shape, f"the task {context.task.name} has one answer a text")
    scored = batch.labels >= 0
    shown = (batch.labels == given)[scored].double().mean().item()
    repeated = (given[:, 1:] == given[:, :-1])[scored[:, 1:]].double().mean().item()
    remedy = "shift the labels by one in make_batch, and keep the causal mask: see the chapter on masks"
    if shown > SHOWN and not repeated > REPEATED:
        matter = f"{shown:.0%} of the labels are the token that is read at their own position"
        yield Finding(matter, remedy, "answer-visible", {"shown": shown, "limit": SHOWN}, "stop")
        return
    is_causal = context.task.explain_as in ("language_model", "translator")
    if is_causal and (moved := _moved_by_later(model, context, batch)):
        matter = f"what is predicted changes by up to {moved:.2g} logits with tokens that come later"
        yield Finding(matter, remedy, "answer-visible", {"moved": moved, "limit": ROUNDING}, "stop")


def _moved_by_later(model: nn.Module, context: RunContext, batch: Batch) -> float:
    """Return by how much logits move when the tokens of the second half change; 0 if by rounding at most."""
    name = "ids" if batch.tgt_in is None else "tgt_in"
    given: Tensor = getattr(batch, name)
    if (half := given.shape[1] // 2) == 0:
        return 0.0
    later = given.clone()
    model.eval()
    later[:, half:] = given[:, half:].flip(1).roll(1, 0)
    with torch.no_grad(), torch.autocast(given.device.type, enabled=False):
        both = (context.task.logits(model, replace(batch, **{name: ids})) for ids in (given, later))
        before, after = (logits[:, :half].float() for logits in both)
    moved = (before - after).abs().max().item()
    return moved if moved > ROUNDING * max(1.0, before.abs().max().item()) else 0.0


def frozen(record: RunRecord, model: nn.Module) -> Iterator[Finding]:
    """Yield a finding if the log has no updates of a matrix that the settings do not freeze."""
    logged = {name for row in record.training for name in row.update_ratios or ()}
    needs(logged, "the log has no update ratios")
    model.requires_grad_(True)
    freeze(model, record.config.train.frozen_layers)
    missing = [name for name, p in model.named_parameters() if p.requires_grad and p.dim() > 1 and name not in logged]
    if missing:
        matter = f"{len(missing)} of {len(missing) + len(logged)} matrices were not trained, such as {missing[0]}"
        remedy = "look for requires_grad_(False); --frozen-layers freezes on purpose"
        yield Finding(matter, remedy, "frozen", {"n": len(missing)}, "stop", missing[0])


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
        context = prepare(record.config, folder)
        with tuned(context.device, deterministic=record.config.train.deterministic):
            model = context.task.build_model().to(context.device)
            load_weights(model, trained_weights(folder))
            return examine_model(record, context, model)
    except (GlassformerError, NotMade) as error:
        return Checkup(not_made=dict.fromkeys(EXAMINED, str(error)))


def examine_model(record: RunRecord, context: RunContext, model: nn.Module) -> Checkup:
    """Make the checks of `EXAMINED`; the model is in evaluation mode afterwards, and trains what is not frozen."""
    activity = activity_of(model, context.task, context.valid)
    made = fresh_loss(record, context), answer_visible(model, context), frozen(record, model)
    made += scores(activity), heads(activity), dead_units(activity)
    return run_checks({name: found.__iter__ for name, found in zip(EXAMINED, made, strict=True)})
