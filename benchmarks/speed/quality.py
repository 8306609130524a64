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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.speed.child import Child, ChildError
from benchmarks.speed.load import OtherLoad
from benchmarks.speed.options import Options
from benchmarks.speed.registry import PEERS, ROOT, precisions
from benchmarks.speed.table import Section, busy, rounded
from benchmarks.speed.training import log, wait_for_quiet
from benchmarks.speed.workloads import Workload

from glassformer.config.recipes import load_recipe
from glassformer.data.batches import overlapping_windows
from glassformer.evaluate.translation import score
from glassformer.training.preparation import prepare
from glassformer.training.state import RunContext

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


def run_quality(options: Options) -> Section:
    """Measure the table of part i."""
    section = Section("(i) Seconds of training to a validation score", COLUMNS)
    for goal in GOALS:
        measure_goal(goal, options, section)
        if section.interrupted:
            break
    section.notes.append(
        "Ours: the recipe as shipped with `--steps "
        + "` and `--steps ".join(str(goal.steps) for goal in GOALS)
        + f"`. Others are stopped at {MOST:.0f} times our seconds. Only steps are timed."
    )
    draw_curves(section.facts, FIGURE)
    return section


def measure_goal(goal: Goal, options: Options, section: Section) -> None:
    """Measure ours, then each peer for at most `MOST` times our seconds."""
    ours = {"recipe": goal.recipe, "steps": goal.steps, "seed": 1, "metric": goal.metric}
    seconds = measure(goal, options, section, "glassformer", "ours", "ours_curve", ours, math.inf, None)
    if seconds is None:
        return
    context = prepare(load_recipe(goal.recipe))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for name, peer, module, spec in peers_of(goal, context, Path(folder), MOST * seconds):
            if peer not in options.peers:
                continue
            if reason := PEERS[peer].why_not():
                section.rows.append([goal.title, name, "–", "", "", "", f"not run: {reason}"])
                continue
            measure(goal, options, section, name, peer, module, spec, MOST * seconds, context, ours=seconds)
            if section.interrupted:
                return


def measure(
    goal: Goal,
    options: Options,
    section: Section,
    name: str,
    peer: str,
    module: str,
    spec: dict[str, Any],
    limit: float,
    context: RunContext | None,
    ours: float | None = None,
) -> float | None:
    """Train one implementation until the goal, the limit or the end of its schedule; add its row.

    Returns:
        the seconds to the goal; None if it was not reached.
    """
    if not options.anyway:
        wait_for_quiet(options.wait)
    curve: list[dict[str, Any]] = []
    with (
        OtherLoad() as load,
        Child(PEERS[peer].python, f"benchmarks.speed.peers.{module}", spec, options.variables) as child,
    ):
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
        except KeyboardInterrupt:  # what is measured is a lower bound of the seconds it needs
            section.interrupted = True
            if not curve:
                return None
    shown, remark = busy([load.cores], options.anyway)
    if section.interrupted:
        remark = remark or "interrupted"
    last = curve[-1]
    reached = goal.reached(last["score"])
    seconds = last["seconds"] if reached else None
    row = [goal.title, name, "–", "", str(last["steps"]), f"{last['score']:.4g}", remark]
    if shown:
        row[2] = rounded(last["seconds"]) if reached else f"> {rounded(last['seconds'])}"
        ratio = last["seconds"] / (ours or last["seconds"])
        row[3] = f"{'' if reached else '> '}{ratio:.2f}"
        if ours is not None:
            section.summary.append((goal.title, f"{rounded(ours)} s", f"{name}: {row[2]} s", f"{row[3]} ×"))
    section.rows.append(row)
    section.facts.append({"goal": asdict(goal), "peer": name, "spec": spec, "curve": curve, "others": load.cores})
    return seconds


def bleu(context: RunContext, translations: list[list[int]]) -> float:
    """Return the BLEU of ids, computed as our own validation computes it."""
    texts = [context.task.tokenizer.decode(ids) for ids in translations]
    answers = context.data.valid.answers[: len(texts)]
    return float(score(texts, answers, n_bootstrap=0, tokenize=context.config.decode.bleu_tokenize)["bleu"])


def peers_of(
    goal: Goal, context: RunContext, folder: Path, horizon: float
) -> list[tuple[str, str, str, dict[str, Any]]]:
    """Return name, peer, module and spec of each peer of a goal; their data is written to `folder`."""
    if goal.recipe == "shakespeare":
        return [nanogpt(context, folder, horizon, published=True), nanogpt(context, folder, horizon, published=False)]
    return [joeynmt(context, folder)]


def joeynmt(context: RunContext, folder: Path) -> tuple[str, str, str, dict[str, Any]]:
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
    model = config.model
    workload = Workload(
        "i",
        "",
        "translate",
        model.d_model,
        model.n_layers,
        model.n_heads,
        context.task.tokenizer.vocab_size,
        config.text.max_len + 2,
        config.train.max_tokens,
        0,
        dropout=model.dropout,
        hidden=model.d_ff,
    )
    spec = {
        "layer_norm": "pre",
        "lr": 2e-3,
        "warmup": 200,
        "label_smoothing": 0.1,
        "precision": precisions()[-1],
        "seed": 1,
    }
    data = {"workload": asdict(workload), "data": str(folder / "pairs.npz")}
    return "JoeyNMT, our sizes, Adam", "joeynmt", "joeynmt_curve", spec | ADAM | data


def nanogpt(context: RunContext, folder: Path, horizon: float, published: bool) -> tuple[str, str, str, dict[str, Any]]:
    """Return nanoGPT in its README's configuration for a CPU, or at our sizes; its cosine ends at our limit."""
    config = context.config
    length = 64 if published else config.text.max_len
    train, valid = (np.asarray(corpus.ids.flat).astype(np.int64) for corpus in (context.train, context.valid))
    windows = np.concatenate(list(overlapping_windows(len(valid), length, 4096)))
    path = folder / f"characters-{length}.npz"
    np.savez(path, train=train, valid=valid, windows=windows)
    d_model, n_layers, n_heads, dropout = (
        (128, 4, 4, 0.0)
        if published
        else (config.model.d_model, config.model.n_layers, config.model.n_heads, config.model.dropout)
    )
    rows = 12 if published else config.train.max_tokens // length
    workload = Workload(
        "i",
        "",
        "lm",
        d_model,
        n_layers,
        n_heads,
        context.task.tokenizer.vocab_size,
        length,
        rows * length,
        0,
        dropout=dropout,
    )
    spec = {"workload": asdict(workload), "data": str(path), "rows": rows, "horizon": horizon, "seed": 1}
    if published:
        spec |= {"threads": 1}  # its products are so small that two threads on two cores take longer than one
    name = "nanoGPT, its CPU configuration" if published else "nanoGPT, our sizes"
    return name, "nanogpt", "nanogpt_curve", spec | NANOGPT | {"precision": precisions()[-1]}


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
