"""How faithful are the two attributions to a trained classifier, beside random rankings of the same words?

    python benchmarks/attribution.py RUN [--n 100] [--n-random 100] [--split valid]

For reviews drawn with a fixed seed, prints the mean comprehensiveness (larger is better) and sufficiency
(smaller is better) of erasing words and of integrated gradients, in logits, with the 95% band of the means of
random rankings, and how integrated gradients kept to completeness. Nothing is stored.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

import glassformer
from glassformer.data.datasets.loading import load_text_data
from glassformer.explain.attribution.faithfulness import mean_drops, random_mean_drops
from glassformer.explain.attribution.integrated_gradients import Completeness, integrated_gradients
from glassformer.explain.attribution.leave_one_out import leave_one_out
from glassformer.explain.attribution.requests import AttributeRequest, make_value_function
from glassformer.explain.attribution.value_function import ValueFunction
from glassformer.explain.explanation import explain

METHODS = ("erase", "integrated gradients")


@dataclass
class Measured:
    """Of each text: comprehensiveness and sufficiency by method, those of random rankings, seconds."""

    n_tokens: list[int] = field(default_factory=list)
    mean_drops: dict[str, list[np.ndarray]] = field(default_factory=lambda: {name: [] for name in METHODS})
    random: list[np.ndarray] = field(default_factory=list)
    completeness: list[Completeness] = field(default_factory=list)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Faithfulness of attributions on a data set's texts.")
    parser.add_argument("run", help="folder of a classifier's run")
    parser.add_argument("--n", type=int, default=100, help="texts")
    parser.add_argument("--n-random", type=int, default=100, help="random rankings of each text")
    parser.add_argument("--split", choices=("valid", "test"), default="valid")
    options = parser.parse_args()
    run = glassformer.load(options.run)
    texts = getattr(load_text_data("classify", run.config.data), options.split).text
    measured = Measured()
    for i in np.random.default_rng(0).permutation(len(texts))[: options.n]:
        measure(measured, make_value_function(explain(run, texts[i]), AttributeRequest()), options.n_random)
    print(f"{len(measured.random)} texts of the {options.split} split, predicted class against the other")
    print_table(measured)


def measure(measured: Measured, value_fn: ValueFunction, n_random: int) -> None:
    """Add one text."""
    began = time.perf_counter()
    erased = value_fn.sum_over_words(leave_one_out(value_fn))
    after_erasing = time.perf_counter()
    scores, completeness = integrated_gradients(value_fn)
    after_gradients = time.perf_counter()
    rankings = np.argsort([-erased, -value_fn.sum_over_words(scores)], axis=1, kind="stable")
    for name, of_text in zip(METHODS, mean_drops(value_fn, rankings), strict=True):
        measured.mean_drops[name].append(of_text)
    before_random = time.perf_counter()
    measured.random.append(random_mean_drops(value_fn, n_random))
    measured.seconds["random"] += time.perf_counter() - before_random
    measured.seconds[METHODS[0]] += after_erasing - began
    measured.seconds[METHODS[1]] += after_gradients - after_erasing
    measured.completeness.append(completeness)
    measured.n_tokens.append(value_fn.n_tokens)


def print_table(measured: Measured) -> None:
    """Print the means over the texts.

    "beats": share of texts where the method lies beyond 95% of the random rankings.
    """
    n = len(measured.random)
    print(f"{'method':22}{'comprehensiveness':>19}{'beats':>7}{'sufficiency':>21}{'beats':>7}{'s a text':>10}")
    random = np.array(measured.random)  # (texts, rankings, 2)
    low, high = np.percentile(random, [2.5, 97.5], axis=1)
    for name in METHODS:
        values = np.array(measured.mean_drops[name])
        first, second = values.mean(axis=0)
        beats = (values[:, 0] > high[:, 0]).mean(), (values[:, 1] < low[:, 1]).mean()
        seconds = measured.seconds[name] / n
        print(f"{name:22}{first:19.2f}{beats[0]:7.0%}{second:21.2f}{beats[1]:7.0%}{seconds:10.2f}")
    means = random.mean(axis=0)  # of the r-th ranking of every text, (rankings, 2)
    band = np.percentile(means, [2.5, 97.5], axis=0)
    shown = [f"{means[:, k].mean():.2f} [{band[0, k]:.2f}, {band[1, k]:.2f}]" for k in range(2)]
    seconds = measured.seconds["random"] / n
    print(f"{'random':22}{shown[0]:>19}{'':7}{shown[1]:>21}{'':7}{seconds:10.2f}")
    ok = np.mean([c.ok for c in measured.completeness])
    errors, steps = zip(*((c.relative, c.n_steps) for c in measured.completeness), strict=True)
    print(
        f"tokens a text: {np.mean(measured.n_tokens):.0f}; completeness within 2% in {ok:.0%} of texts "
        f"(error: median {np.median(errors):.2%}, largest {max(errors):.2%}; "
        f"steps: median {np.median(steps):.0f}, most {max(steps)})"
    )


if __name__ == "__main__":
    main()
