"""Measure the faithfulness of both attribution methods, compared with random rankings of the same words.

    python benchmarks/attribution.py RUN [--n 100] [--n-random 100] [--split valid]

For a random sample of reviews (fixed seed), print the mean comprehensiveness (larger is better) and sufficiency
(smaller is better) of leave-one-out and of integrated gradients, in logits, with the 95% band of the means of random
rankings, and the completeness error of integrated gradients.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

import glassformer
from glassformer.data.datasets.local_files import load_text_data
from glassformer.explain.attribution.methods import (
    Completeness,
    integrated_gradients,
    leave_one_out,
    mean_drops,
    random_mean_drops,
)
from glassformer.explain.attribution.value_function import AttributeRequest, ValueFunction, make_value_function
from glassformer.explain.explanation import explain

METHODS = ("leave-one-out", "integrated gradients")


@dataclass
class Measured:
    """Measurements of each text: comprehensiveness and sufficiency by method and of random rankings, seconds."""

    n_tokens: list[int] = field(default_factory=list)
    mean_drops: dict[str, list[np.ndarray]] = field(default_factory=lambda: {name: [] for name in METHODS})
    random: list[np.ndarray] = field(default_factory=list)
    completeness: list[Completeness] = field(default_factory=list)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Faithfulness of attributions on a dataset's texts.")
    parser.add_argument("run", help="folder of a classifier's run")
    parser.add_argument("--n", type=int, default=100, help="texts")
    parser.add_argument("--n-random", type=int, default=100, help="random rankings of each text")
    parser.add_argument("--split", choices=("valid", "test"), default="valid")
    options = parser.parse_args()
    run = glassformer.load(options.run)
    texts = getattr(load_text_data(run.task.schema, run.config.data), options.split).text
    measured = Measured()
    for i in np.random.default_rng(0).permutation(len(texts))[: options.n]:
        measure(measured, make_value_function(explain(run, texts[i]), AttributeRequest()), options.n_random)
    print(f"{len(measured.random)} texts of the {options.split} split, predicted class compared with the other")
    print_table(measured)


def measure(measured: Measured, value_fn: ValueFunction, n_random: int) -> None:
    """Add one text."""
    start = time.perf_counter()
    left_out = value_fn.sum_over_words(leave_one_out(value_fn))
    after_leave_one_out = time.perf_counter()
    scores, completeness = integrated_gradients(value_fn)
    after_gradients = time.perf_counter()
    rankings = np.argsort([-left_out, -value_fn.sum_over_words(scores)], axis=1, kind="stable")
    for name, drops in zip(METHODS, mean_drops(value_fn, rankings), strict=True):
        measured.mean_drops[name].append(drops)
    before_random = time.perf_counter()
    measured.random.append(random_mean_drops(value_fn, n_random))
    measured.seconds["random"] += time.perf_counter() - before_random
    measured.seconds[METHODS[0]] += after_leave_one_out - start
    measured.seconds[METHODS[1]] += after_gradients - after_leave_one_out
    measured.completeness.append(completeness)
    measured.n_tokens.append(value_fn.n_tokens)


def print_table(measured: Measured) -> None:
    """Print the means over the texts.

    "beats": share of texts where the method lies beyond 95% of the random rankings.
    """
    n = len(measured.random)
    print(f"{'method':22}{'comprehensiveness':>19}{'beats':>7}{'sufficiency':>21}{'beats':>7}{'s per text':>12}")
    random = np.array(measured.random)  # (texts, rankings, 2)
    low, high = np.percentile(random, [2.5, 97.5], axis=1)
    for name in METHODS:
        values = np.array(measured.mean_drops[name])
        first, second = values.mean(axis=0)
        beats = (values[:, 0] > high[:, 0]).mean(), (values[:, 1] < low[:, 1]).mean()
        seconds = measured.seconds[name] / n
        print(f"{name:22}{first:19.2f}{beats[0]:7.0%}{second:21.2f}{beats[1]:7.0%}{seconds:12.2f}")
    means = random.mean(axis=0)  # of the r-th ranking of every text, (rankings, 2)
    band = np.percentile(means, [2.5, 97.5], axis=0)
    cells = [f"{means[:, k].mean():.2f} [{band[0, k]:.2f}, {band[1, k]:.2f}]" for k in range(2)]
    seconds = measured.seconds["random"] / n
    print(f"{'random':22}{cells[0]:>19}{'':7}{cells[1]:>21}{'':7}{seconds:12.2f}")
    ok = np.mean([c.ok for c in measured.completeness])
    errors, steps = zip(*((c.relative, c.n_steps) for c in measured.completeness), strict=True)
    print(
        f"tokens per text: {np.mean(measured.n_tokens):.0f}; completeness within 2% in {ok:.0%} of texts "
        f"(error: median {np.median(errors):.2%}, largest {max(errors):.2%}; "
        f"steps: median {np.median(steps):.0f}, maximum {max(steps)})"
    )


if __name__ == "__main__":
    main()
