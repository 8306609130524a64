"""The plots of a run: curves of training, lengths of its texts, and pictures of its test scores.

Each function takes plain numbers and returns PNG bytes, or None where there is nothing to draw. How they look is
in `plot_style.py`; writing them to disk is `report.py`'s work.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from glassformer.evaluate.intervals import wilson_interval
from glassformer.evaluate.run_facts import Facts, RunFacts, headline
from glassformer.train import plot_style as ps
from glassformer.train.words import metric_words, number, percent

MAX_CLASSES_WITH_NUMBERS = 12
"""A confusion matrix of more classes shows colours only."""

MAX_CLASSES = 60
"""Beyond this a confusion matrix is no picture any more."""


def draw_all(facts: RunFacts) -> dict[str, bytes]:
    """Draw every plot a run has numbers for, by file name without suffix."""
    functions: dict[str, Callable[[RunFacts], bytes | None]] = {
        "loss": loss_curves,
        "metric": metric_curve,
        "learning_rate": learning_rate,
        "lengths": lengths,
        "confusion": confusion_matrix,
        "reliability": reliability,
        "bleu_by_length": bleu_by_length,
    }
    with ps.style():
        drawn = {name: draw(facts) for name, draw in functions.items()}
    return {name: image for name, image in drawn.items() if image is not None}


def loss_curves(facts: RunFacts) -> bytes | None:
    """Draw training loss, raw and smoothed, and validation loss, with the validation that was kept."""
    steps, losses = _series(facts.training, "loss")
    valid_steps, valid_losses = _series([{"step": r["step"], **r["valid"]} for r in facts.validations], "loss")
    if len(steps) < 2 and len(valid_steps) < 2:
        return None
    unit = {"classify": "nats an example", "translate": "nats a target token", "lm": "nats a token"}[facts.task]
    figure, (axes,) = ps.new_figure(3.7, "Loss", f"Cross-entropy, {unit}; lower is better")
    ps.room_for_labels(figure, 1.35)
    labels: list[tuple[float, float, str, str]] = []
    if len(steps) >= 2:
        smooth = _smoothed(losses)
        axes.plot(steps, losses, color=ps.SOFT, linewidth=0.7, alpha=0.7)
        axes.plot(steps, smooth, color=ps.INK, linewidth=1.3)
        labels.append((steps[-1], smooth[-1], f"training {number(smooth[-1])}", ps.INK))
    if len(valid_steps):
        axes.plot(valid_steps, valid_losses, color=ps.ACCENT, linewidth=1.6, marker="o", markersize=3.4)
        labels.append((valid_steps[-1], valid_losses[-1], f"validation {number(valid_losses[-1])}", ps.ACCENT))
    shown = np.concatenate([losses[len(losses) // 100 :], valid_losses])
    low, high = float(shown.min()), float(np.percentile(shown, 99.7))
    axes.set_ylim(low - 0.06 * (high - low), high + 0.08 * (high - low) + 1e-9)
    _x_of_updates(axes, max([*steps[-1:], *valid_steps[-1:]]))
    _mark_best(axes, facts)
    ps.end_labels(axes, labels)
    return ps.png(figure)


def metric_curve(facts: RunFacts) -> bytes | None:
    """Draw the validation metric over training; where the same was tested, the test score and its yardsticks."""
    rows = [{"step": row["step"], **row["valid"]} for row in facts.validations]
    steps, values = _series(rows, facts.metric)
    if not len(steps) or facts.metric == "loss":
        return None
    words, unit, show = metric_words(facts.metric)
    figure, (axes,) = ps.new_figure(3.7, words, f"{unit}, on the validation split" if unit else "On the validation split")
    ps.room_for_labels(figure, 1.35)
    axes.plot(steps, values, color=ps.ACCENT, linewidth=1.6, marker="o", markersize=3.4)
    labels = [(steps[-1], values[-1], f"validation {show(values[-1])}", ps.ACCENT)]
    name, test, interval = headline(facts.task, facts.evaluation or {})
    seen = list(values)
    last = max(float(steps[-1]), facts.training[-1]["step"] if facts.training else 0)
    if test is not None and name == facts.metric:
        at = last * 1.03
        if interval:
            axes.plot([at, at], interval, color=ps.INK, linewidth=1.2)
            seen += interval
        axes.plot([at], [test], color=ps.INK, marker="D", markersize=4.6)
        labels.append((at, test, f"test {show(test)}", ps.INK))
        seen.append(test)
    low, high = min(seen), max(seen)
    yardsticks = _yardsticks(facts, name) if name == facts.metric else []
    reach = max(high - low, 0.02 * abs(high), 1e-9)
    near = [(label, value) for label, value in yardsticks if low - reach < value < high + reach]
    low, high = min([low, *(v for _, v in near)]), max([high, *(v for _, v in near)])
    axes.set_ylim(low - 0.12 * (high - low) - 1e-9, high + 0.14 * (high - low) + 1e-9)
    _x_of_updates(axes, last)
    axes.yaxis.set_major_formatter(lambda value, _: show(value).removesuffix(".0%") + "%" * show(value).endswith(".0%"))
    for label, value in near:
        axes.axhline(value, color=ps.QUIET, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.annotate(f"{label} {show(value)}", (0, value), (2, 3), textcoords="offset points", color=ps.QUIET,
                      fontsize=10, parse_math=False)  # fmt: skip
    ps.end_labels(axes, labels)
    return ps.png(figure)


def learning_rate(facts: RunFacts) -> bytes | None:
    """Draw the learning rate, and the gradient norm beside the length it is clipped to."""
    steps, rates = _series(facts.training, "lr")
    if len(steps) < 2:
        return None
    norm_steps, norms = _series(facts.training, "grad_norm")
    with_norms = len(norm_steps) >= 2 and float(norms.max()) > 0
    rows = (1, 1) if with_norms else (1,)
    figure, panels = ps.new_figure(4.4 if with_norms else 3.0, "Learning rate and gradient", "Per update", rows=rows)
    ps.room_for_labels(figure, 1.35)
    figure.subplots_adjust(hspace=0.34)
    panels[0].plot(steps, rates, color=ps.ACCENT, linewidth=1.6)
    panels[0].set_ylim(0, float(rates.max()) * 1.12 + 1e-12)
    panels[0].ticklabel_format(axis="y", style="plain")
    panels[0].yaxis.set_major_formatter(lambda value, _: number(value))
    _x_of_updates(panels[-1], float(steps[-1]))
    peak = int(rates.argmax())
    ps.end_labels(panels[0], [(steps[-1], rates[-1], f"learning rate\npeak {number(rates[peak])}", ps.ACCENT)], gap=0.2)
    if with_norms:
        positive = np.maximum(norms, float(norms[norms > 0].min()))
        smooth = np.exp(_smoothed(np.log(positive)))
        panels[1].plot(norm_steps, positive, color=ps.SOFT, linewidth=0.7)
        panels[1].plot(norm_steps, smooth, color=ps.INK, linewidth=1.3)
        panels[1].set_yscale("log")
        panels[1].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panels[1].yaxis.set_minor_formatter(lambda *_: "")
        clip = facts.config.get("train", {}).get("clip", 0)
        if clip and positive.min() / 2 <= clip <= positive.max() * 2:
            panels[1].axhline(clip, color=ps.QUIET, linewidth=0.9, linestyle=(0, (4, 3)))
            panels[1].annotate(f"clipped above {clip:g}", (0, clip), (2, 3), textcoords="offset points",
                               color=ps.QUIET, fontsize=10)  # fmt: skip
        ps.end_labels(panels[1], [(norm_steps[-1], smooth[-1], "gradient norm", ps.INK)])
    return ps.png(figure)


def lengths(facts: RunFacts) -> bytes | None:
    """Draw how long the training texts are, and where they are cut."""
    train = facts.data.get("splits", {}).get("train", {})
    histogram = train.get("lengths") or {}
    edges, counts = np.asarray(histogram.get("edges", []), float), np.asarray(histogram.get("counts", []), float)
    if len(counts) < 2 or len(edges) != len(counts) + 1 or counts.sum() < 2 or not np.isfinite(edges).all():
        return None
    what = "source sentences" if facts.task == "translate" else "training texts"
    figure, (axes,) = ps.new_figure(3.3, "Length of texts", f"Share of {what} by tokens before cutting")
    axes.bar(edges[:-1], counts / counts.sum(), np.diff(edges), align="edge", color=ps.SOFT, edgecolor=ps.PAPER, linewidth=0.6)
    axes.set_xlim(max(0, edges[0]), edges[-1])
    axes.set_xlabel("tokens")
    ps.thousands(axes.xaxis)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    limit = facts.config.get("text", {}).get("max_len")
    if limit and edges[0] < limit <= edges[-1]:
        cut = train.get("n_truncated", 0) / max(train.get("n", 1), 1)
        axes.axvline(limit, color=ps.ACCENT, linewidth=1.3)
        left = limit > 0.7 * edges[-1]
        axes.annotate(f"limit {limit:,}: {percent(cut)} are longer", (limit, 0.94), (-6 if left else 6, 0),
                      xycoords=("data", "axes fraction"), textcoords="offset points", color=ps.ACCENT,
                      ha="right" if left else "left", va="center")  # fmt: skip
    return ps.png(figure)


def confusion_matrix(facts: RunFacts) -> bytes | None:
    """Draw what was taken for what, each row coloured by its own shares."""
    table = np.asarray((facts.evaluation or {}).get("confusion") or [], dtype=float)
    if table.ndim != 2 or not 2 <= len(table) <= MAX_CLASSES:
        return None
    names = [_short(str(name)) for name in (facts.evaluation or {}).get("label_names", range(len(table)))]
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    from matplotlib.colors import LinearSegmentedColormap

    side = 1.0 + min(0.95 * len(table) if len(table) <= 4 else 0.62 * len(table), 6.5)
    margin = 0.55 + 0.085 * max(map(len, names))
    figure, (axes,) = ps.new_figure(side + 1.25, "Confusion", "Rows: true class; columns: predicted", width=max(side + margin, 3.9))
    figure.subplots_adjust(left=margin / figure.get_figwidth(), bottom=0.75 / figure.get_figheight())
    colours = LinearSegmentedColormap.from_list("paper-accent", [ps.PAPER, "#e7b9a8", ps.ACCENT])
    axes.imshow(shares, cmap=colours, vmin=0, vmax=1, aspect="equal")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    ticks = np.arange(len(table))
    turned = 45 if max(map(len, names)) * len(names) > 40 else 0
    size = 10 if len(table) <= 20 else 6
    axes.set_xticks(ticks, names, rotation=turned, ha="right" if turned else "center", fontsize=size, parse_math=False, color=ps.INK)
    axes.set_yticks(ticks, names, fontsize=size, parse_math=False, color=ps.INK)
    axes.tick_params(length=0)
    if len(table) <= MAX_CLASSES_WITH_NUMBERS:
        for (row, column), share in np.ndenumerate(shares):
            text = f"{table[row, column]:,.0f}\n{100 * share:.1f}%" if len(table) <= 4 else f"{table[row, column]:,.0f}"
            axes.text(column, row, text, ha="center", va="center", linespacing=1.5,
                      color=ps.PAPER if share > 0.6 else ps.INK)  # fmt: skip
    return ps.png(figure)


def reliability(facts: RunFacts) -> bytes | None:
    """Draw accuracy against confidence, with Wilson intervals, over the shares of examples."""
    evaluation = facts.evaluation or {}
    bins = evaluation.get("calibration") or []
    if not bins:
        return None
    n_classes = len(evaluation.get("label_names") or [0, 0])
    title = f"Is its confidence earned?  ECE {percent(evaluation['ece'])}"
    figure, (axes, shares) = ps.new_figure(4.7, title, "Share right against confidence; below the line is overconfident", width=5.0, rows=(4, 1))
    figure.subplots_adjust(hspace=0.12)
    low = math.floor(10 / n_classes) / 10
    axes.plot([low, 1], [low, 1], color=ps.QUIET, linewidth=0.9, linestyle=(0, (4, 3)))
    confidence = np.array([b["confidence"] for b in bins])
    accuracy = np.array([b["accuracy"] for b in bins])
    for b in bins:
        axes.plot([b["confidence"]] * 2, wilson_interval(round(b["accuracy"] * b["n"]), b["n"]), color=ps.ACCENT, linewidth=1.0, alpha=0.55)
    axes.plot(confidence, accuracy, color=ps.ACCENT, linewidth=1.4, marker="o", markersize=4.2)
    axes.set_xlim(low, 1.02)
    axes.set_ylim(min(low, float(accuracy.min()) - 0.04), 1.03)
    total = sum(b["n"] for b in bins)
    for b in bins:
        shares.bar(b["low"], b["n"] / total, b["high"] - b["low"], align="edge", color=ps.SOFT, edgecolor=ps.PAPER)
    shares.set_xlabel("confidence in the predicted class")
    axes.set_ylabel("right")
    shares.set_ylabel("examples")
    for panel in (axes, shares):
        panel.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    shares.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    shares.locator_params(axis="y", nbins=2)
    return ps.png(figure)


def bleu_by_length(facts: RunFacts) -> bytes | None:
    """Draw BLEU by length of the reference."""
    rows = (facts.evaluation or {}).get("by_length") or []
    if facts.task != "translate" or len(rows) < 2:
        return None
    figure, (axes,) = ps.new_figure(3.3, "BLEU by length", "Test sentences by tokens of the reference; number of sentences below")
    x, bleu = np.arange(len(rows)), [row["bleu"] for row in rows]
    axes.bar(x, bleu, 0.62, color=ps.SOFT)
    for at, value in zip(x, bleu, strict=True):
        axes.annotate(f"{value:.1f}", (at, value), (0, 4), textcoords="offset points", ha="center", color=ps.ACCENT)
    axes.axhline((facts.evaluation or {})["bleu"], color=ps.ACCENT, linewidth=1.2)
    axes.set_xticks(x, [f"{row['min']}–{row['max']}\nn = {row['n']:,}" for row in rows])
    axes.tick_params(length=0)
    axes.set_ylim(0, max([*bleu, 1e-9]) * 1.15)
    return ps.png(figure)


def _series(rows: list[Facts], key: str) -> tuple[np.ndarray, np.ndarray]:
    """Return steps and finite values of one column."""
    pairs = [(row["step"], row[key]) for row in rows if isinstance(row.get(key), int | float) and math.isfinite(row[key])]
    table = np.asarray(pairs, dtype=float).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _smoothed(values: np.ndarray) -> np.ndarray:
    """Average each value with its neighbours, 1/25 of the run to either side, without running off the ends."""
    half = max(1, len(values) // 25)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    reach = np.minimum(half, np.minimum(index, len(values) - 1 - index))  # symmetric, so a slope stays in place
    return (sums[index + reach + 1] - sums[index - reach]) / (2 * reach + 1)


def _x_of_updates(axes: Any, last: float) -> None:
    axes.set_xlim(0, last * 1.001 + 1e-9)
    axes.set_xlabel("optimizer updates")
    ps.thousands(axes.xaxis)
    axes.margins(x=0)
    for line in axes.lines:
        line.set_clip_on(True)


def _mark_best(axes: Any, facts: RunFacts) -> None:
    """Drop a line from the validation whose weights were kept."""
    best = facts.best_validation()
    if best is None or len(facts.validations) < 2:
        return
    axes.axvline(best["step"], color=ps.ACCENT, linewidth=0.8, linestyle=(0, (1, 2.5)))
    axes.annotate("kept", (best["step"], 0.985), (-4, 0), xycoords=("data", "axes fraction"),
                  textcoords="offset points", ha="right", va="top", color=ps.ACCENT, fontsize=10)  # fmt: skip


def _yardsticks(facts: RunFacts, name: str) -> list[tuple[str, float]]:
    """Return the baselines that were scored on the same metric."""
    from glassformer.train.words import BASELINE_NAMES

    baselines = (facts.evaluation or {}).get("baselines") or {}
    return [(BASELINE_NAMES.get(key, key), row[name]) for key, row in baselines.items() if name in row]


def _short(name: str) -> str:
    return name if len(name) <= 18 else name[:17] + "…"
