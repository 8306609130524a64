"""How faithful are the two attributions to a trained classifier, beside random rankings of the same words?

    python benchmarks/attribution.py RUN [--n 100] [--n-random 100] [--split valid]

For reviews drawn with a fixed seed, prints the mean comprehensiveness (larger is better) and sufficiency
(smaller is better) of erasing words and of integrated gradients, in logits, with the 95% band of the means of
random rankings, and how integrated gradients kept to completeness. Nothing is stored.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import glassformer
from glassformer.data.datasets import load_text_data
from glassformer.explain.asking import AttributeRequest, ask
from glassformer.explain.erasing import erase_one
from glassformer.explain.explanation import explain
from glassformer.explain.faithfulness import falls, random_falls
from glassformer.explain.integrated_gradients import integrated_gradients


def main() -> None:
    parser = argparse.ArgumentParser(description="Faithfulness of attributions on a data set's texts.")
    parser.add_argument("run", help="folder of a classifier's run")
    parser.add_argument("--n", type=int, default=100, help="texts")
    parser.add_argument("--n-random", type=int, default=100, help="random rankings of each text")
    parser.add_argument("--split", choices=("valid", "test"), default="valid")
    options = parser.parse_args()

    run = glassformer.load(options.run)
    texts = getattr(load_text_data("classify", run.config.data), options.split).text
    chosen = np.random.default_rng(0).permutation(len(texts))[: options.n]
    measured: dict[str, list[np.ndarray]] = {"erase": [], "integrated gradients": [], "random": []}
    seconds = dict.fromkeys(measured, 0.0)
    completeness, n_tokens = [], []
    for i in chosen:
        question = ask(explain(run, texts[i]), AttributeRequest())
        n_tokens.append(question.n_tokens)
        began = time.perf_counter()
        erased = question.per_word(erase_one(question))
        seconds["erase"] += time.perf_counter() - began
        began = time.perf_counter()
        scores, how_complete = integrated_gradients(question)
        seconds["integrated gradients"] += time.perf_counter() - began
        completeness.append(how_complete)
        rankings = np.argsort([-erased, -question.per_word(scores)], axis=1, kind="stable")
        by_erasing, by_gradients = falls(question, rankings)
        measured["erase"].append(by_erasing)
        measured["integrated gradients"].append(by_gradients)
        began = time.perf_counter()
        measured["random"].append(random_falls(question, options.n_random))
        seconds["random"] += time.perf_counter() - began

    print(f"{len(chosen)} texts of the {options.split} split, {np.mean(n_tokens):.0f} tokens on average")
    print(
        f"{'method':22}{'comprehensiveness':>19}{'beats':>7}{'sufficiency':>15}{'beats':>7}{'s a text':>10}"
    )
    random = np.array(measured["random"])  # (texts, rankings, 2)
    low, high = np.percentile(random, [2.5, 97.5], axis=1)
    for name in ("erase", "integrated gradients"):
        values = np.array(measured[name])
        first, second = values.mean(axis=0)
        better = (values[:, 0] > high[:, 0]).mean(), (values[:, 1] < low[:, 1]).mean()
        print(
            f"{name:22}{first:19.2f}{better[0]:7.0%}{second:15.2f}{better[1]:7.0%}"
            f"{seconds[name] / len(chosen):10.2f}"
        )
    means = random.mean(axis=0)  # of each ranking's number over all texts
    band = np.percentile(means, [2.5, 97.5], axis=0)
    shown = [f"{means[:, k].mean():.2f} [{band[0, k]:.2f}, {band[1, k]:.2f}]" for k in range(2)]
    print(f"{'random':22}{shown[0]:>19}{'':7}{shown[1]:>15}{'':7}{seconds['random'] / len(chosen):10.2f}")
    errors, steps = [c.relative for c in completeness], [c.n_steps for c in completeness]
    print(
        f"integrated gradients: error of completeness at most 2% in {np.mean([c.ok for c in completeness]):.0%} "
        f"of texts, median {np.median(errors):.2%}, largest {max(errors):.2%}; "
        f"steps: median {np.median(steps):.0f}, most {max(steps)}"
    )


if __name__ == "__main__":
    main()
