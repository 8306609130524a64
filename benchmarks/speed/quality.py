"""Part i: seconds of training until a validation score is reached, ours and the others'.

Multi30k, English to German: BLEU 30 on the validation sentences, translated greedily. Tiny Shakespeare by characters:
1.60 nats per character of the validation text. Only steps are timed: neither reading, nor tokenizing, nor scoring.

Ours is the recipe as it is shipped with a shorter schedule (`glassformer train RECIPE --steps N`). Each of the others
has its own optimizer, schedule and averaging of nothing, and the fastest settings of the process: bf16 where the
processor multiplies it, a fused optimizer, batches sorted by length. It may take four times our seconds.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from benchmarks.speed.child import Child, ChildError
from benchmarks.speed.load import OtherLoad, wait_for_quiet
from benchmarks.speed.options import Options
from benchmarks.speed.registry import PEERS, ROOT, precisions
from benchmarks.speed.table import Section, busy, rounded
from benchmarks.speed.training import log
from benchmarks.speed.workloads import Workload

from glassformer.config.recipes import load_recipe
from glassformer.data.batches import overlapping_windows
from glassformer.evaluate.translation import score
from glassformer.training.loop import RunContext
from glassformer.training.preparation import prepare

MOST = 4.0
"""A peer is stopped after so many times our seconds."""
COLUMNS = ("to what", "implementation", "training seconds", "÷ ours", "steps", "score at the end", "remarks")
FIGURE = ROOT / "docs" / "images" / "time_to_quality.png"


@dataclass(frozen=True)
class Goal:
    """A recipe and the validation score to reach.

    Args:
        recipe, steps: our training.
        metric, score, higher_is_better: the score, as our validation names it.
        every: seconds of training between two scores.
        title: in the table; `axis` is the score's name and unit in the figure.
    """

    recipe: str
    steps: int
    metric: str
    score: float
    higher_is_better: bool
    every: float
    title: str
    axis: str

    def reached(self, value: float) -> bool:
        """Return whether a score is as good as the one to reach."""
        return value >= self.score if self.higher_is_better else value <= self.score


GOALS = (
    Goal("shakespeare", 250, "loss", 1.6, False, 5.0, "tiny Shakespeare: 1.60 nats", "nats per character, validation"),
    Goal("multi30k-en-de", 500, "bleu", 30.0, True, 20.0, "Multi30k en–de: BLEU 30", "BLEU, validation"),
)
ADAM = {"betas": (0.9, 0.98), "weight_decay": 0.0}
NANOGPT = {"lr": 1e-3, "betas": (0.9, 0.99), "weight_decay": 0.1, "label_smoothing": 0.0}


class Contender(NamedTuple):
    """An implementation at one goal: its name in the table, its peer, the request it gets."""

    name: str
    peer: str
    spec: dict[str, Any]


def run_quality(options: Options) -> Section:
    """Measure the table of part i: ours, then each peer for at most `MOST` times our seconds."""
    section = Section("(i) Seconds of training to a validation score", COLUMNS)
    for goal in GOALS:
        spec = {"recipe": goal.recipe, "steps": goal.steps, "seed": 1, "metric": goal.metric}
        ours = Contender("glassformer", "ours", spec)
        seconds = measure(goal, options, section, ours, math.inf, None)
        if seconds is None:
            continue
        context = prepare(load_recipe(goal.recipe))
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            for contender in contenders(goal, context, Path(folder), MOST * seconds):
                if contender.peer in options.peers:
                    measure(goal, options, section, contender, MOST * seconds, context, ours=seconds)
    steps = "` and `--steps ".join(str(goal.steps) for goal in GOALS)
    section.notes.append(
        f"Ours: the recipe as shipped with `--steps {steps}`. Others are stopped at {MOST:.0f} times our seconds. "
        "Only steps are timed."
    )
    draw_curves(section.facts, FIGURE)
    return section


def measure(
    goal: Goal,
    options: Options,
    section: Section,
    contender: Contender,
    limit: float,
    context: RunContext | None,
    ours: float | None = None,
) -> float | None:
    """Train one implementation until the goal, the limit or the end of its schedule; add its row.

    Returns:
        the seconds to the goal; None if it was not reached.
    """
    name, peer, spec = contender.name, PEERS[contender.peer], contender.spec
    if reason := peer.why_not():
        section.rows.append([goal.title, name, "–", "", "", "", f"not run: {reason}"])
        return None
    if not options.anyway:
        wait_for_quiet(options.wait)
    curve: list[dict[str, Any]] = []
    with OtherLoad() as load, Child(peer.python, peer.module, spec, options.variables) as child:
        try:
            child.answer()
            while not curve or not (
                goal.reached(curve[-1]["score"]) or curve[-1]["finished"] or curve[-1]["seconds"] >= limit
            ):
                point = child.request(seconds=goal.every)
                if translations := point.pop("translations", None):
                    assert context is not None
                    point["score"] = bleu(context, translations)
                curve.append(point)
                log(f"{goal.title}, {name}: {point['seconds']:.0f} s, {point['steps']} steps, {point['score']:.4g}")
        except ChildError as error:
            section.rows.append([goal.title, name, "–", "", "", "", f"not run: {error}"])
            return None
    shown, remark = busy([load.cores], options.anyway)
    last = curve[-1]
    reached = goal.reached(last["score"])
    row = [goal.title, name, "–", "", str(last["steps"]), f"{last['score']:.4g}", remark]
    if shown:
        row[2] = rounded(last["seconds"]) if reached else f"> {rounded(last['seconds'])}"
        ratio = last["seconds"] / (ours or last["seconds"])
        row[3] = f"{'' if reached else '> '}{ratio:.2f}"
        if ours is not None:
            section.summary.append((goal.title, f"{rounded(ours)} s", f"{name}: {row[2]} s", f"{row[3]} ×"))
    section.rows.append(row)
    section.facts.append({"goal": asdict(goal), "peer": name, "spec": spec, "curve": curve, "others": load.cores})
    return last["seconds"] if reached else None


def bleu(context: RunContext, translations: list[list[int]]) -> float:
    """Return the BLEU of ids, computed as our own validation computes it."""
    texts = [context.task.tokenizer.decode(ids) for ids in translations]
    answers = context.data.valid.answers[: len(texts)]
    return float(score(texts, answers, n_bootstrap=0, tokenize=context.config.decode.bleu_tokenize)["bleu"])


def contenders(goal: Goal, context: RunContext, folder: Path, horizon: float) -> list[Contender]:
    """Return the others of a goal; their data is written to `folder`."""
    if goal.recipe == "shakespeare":
        return [nanogpt(context, folder, horizon, published) for published in (True, False)]
    return [joeynmt(context, folder)]


def joeynmt(context: RunContext, folder: Path) -> Contender:
    """Return JoeyNMT at our sizes, on our tokens and batches.

    Rate and warm-up are the best of those tried on the validation split after 250 steps.
    """
    config, train, valid = context.config, context.train, context.valid
    assert train.target is not None
    plans = [list(context.task.epoch_batches(train, epoch)) for epoch in range(12)]
    plan = [np.asarray(rows) for epoch in plans for rows in epoch]
    arrays = {
        "ids": np.asarray(train.ids.flat).astype(np.int64),
        "offsets": train.ids.offsets,
        "target": np.asarray(train.target.flat).astype(np.int64),
        "target_offsets": train.target.offsets,
        "labels": np.zeros(0, np.int64),
        "plan": np.concatenate(plan),
        "plan_sizes": np.array([len(rows) for rows in plan]),
        "valid": np.asarray(valid.ids.flat).astype(np.int64),
        "valid_offsets": valid.ids.offsets,
    }
    np.savez(folder / "pairs.npz", **arrays)
    workload = workload_of(context, "translate", config.text.max_len + 2, config.train.max_tokens)
    spec = {"layer_norm": "pre", "lr": 2e-3, "warmup": 200, "label_smoothing": 0.1}
    spec |= {"precision": precisions()[-1], "seed": 1}
    data = {"workload": asdict(workload), "data": str(folder / "pairs.npz")}
    return Contender("JoeyNMT, our sizes, Adam", "joeynmt", spec | ADAM | data)


def nanogpt(context: RunContext, folder: Path, horizon: float, published: bool) -> Contender:
    """Return nanoGPT in its README's configuration for a CPU, or at our sizes; its cosine ends at our limit."""
    config = context.config
    length = 64 if published else config.text.max_len
    train, valid = (np.asarray(corpus.ids.flat).astype(np.int64) for corpus in (context.train, context.valid))
    windows = np.concatenate(list(overlapping_windows(len(valid), length, 4096)))
    path = folder / f"characters-{length}.npz"
    np.savez(path, train=train, valid=valid, windows=windows)
    rows = 12 if published else config.train.max_tokens // length
    workload = workload_of(context, "lm", length, rows * length)
    if published:
        workload = replace(workload, d_model=128, n_layers=4, n_heads=4, dropout=0.0)
    spec = {"workload": asdict(workload), "data": str(path), "rows": rows, "horizon": horizon, "seed": 1}
    if published:
        spec |= {"threads": 1}  # its products are so small that two threads on two cores take longer than one
    name = "nanoGPT, its CPU configuration" if published else "nanoGPT, our sizes"
    return Contender(name, "nanogpt", spec | NANOGPT | {"precision": precisions()[-1]})


def workload_of(context: RunContext, kind: Literal["translate", "lm"], max_len: int, max_tokens: int) -> Workload:
    """Return the sizes of our recipe for a peer."""
    m, n_tokens = context.config.model, context.task.tokenizer.vocab_size
    sizes = (m.d_model, m.n_layers, m.n_heads, n_tokens, max_len, max_tokens)
    return Workload("i", "", kind, *sizes, 0, dropout=m.dropout, hidden=m.d_ff)


def draw_curves(facts: list[dict[str, Any]], path: Path) -> None:
    """Draw score against seconds of training, one panel per goal."""
    from matplotlib.figure import Figure

    goals = list({fact["goal"]["title"]: fact["goal"] for fact in facts}.values())
    if not goals:
        return
    figure = Figure(figsize=(5 * len(goals), 3.6), layout="constrained")
    axes = figure.subplots(1, len(goals), squeeze=False)[0]
    for axis, goal in zip(axes, goals, strict=True):
        for fact in facts:
            if fact["goal"]["title"] == goal["title"]:
                seconds, scores = ([point[name] for point in fact["curve"]] for name in ("seconds", "score"))
                axis.plot(seconds, scores, marker=".", label=fact["peer"])
        axis.axhline(goal["score"], color="0.5", linestyle=":", linewidth=1)
        if not goal["higher_is_better"]:
            axis.set_ylim(top=2.6)
        axis.set(title=goal["title"], xlabel="seconds of training", ylabel=goal["axis"])
        axis.legend(frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
