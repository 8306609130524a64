"""Attribute by leave-one-out or integrated gradients (Sundararajan et al. 2017); measure how faithful a ranking is.

The path is the straight line from the text with every word erased to the text itself; special tokens do not change.
The embedding of a word includes its n-grams, if the model has them. `value_function.py` defines the integrated quantity
and what replaces an erased word.

Comprehensiveness and sufficiency (DeYoung et al. 2020, "ERASER", section 4.2) compared with those of random rankings.
They are in the units of the value function, not in probabilities as in the paper, since those saturate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.explain.attribution.value_function import ValueFunction
from glassformer.explain.capture.exact_inference import exact_inference
from glassformer.explain.edits.measure import repeated


def leave_one_out(value_fn: ValueFunction) -> Float[np.ndarray, " T"]:
    """Return the score of each token: its share of the drop when its word is erased.

    All tokens of a word are erased together and share the drop equally, so the scores of a word's tokens sum to it.
    Scores of different words need not sum to anything: of two words with one meaning, erasing either changes little.
    """
    n, word_of = value_fn.n_words, value_fn.word_of
    values = value_fn.values(np.concatenate([np.zeros((1, n), dtype=bool), np.eye(n, dtype=bool)]))
    shares = (values[0] - values[1:]) / np.maximum(value_fn.sum_over_words(np.ones(len(word_of))), 1)
    return np.append(shares, 0.0)[word_of]  # a last 0, for the tokens of word -1


PANEL = 8
"""Points of a panel, a part of the path that is integrated and checked by itself."""
MIN_STEPS, MAX_STEPS = 16, 1024
TOLERANCE = 0.02
"""Maximum error, relative to |f(x) − f(x')|."""
MIN_RANGE = 1e-6
"""Minimum |f(x) − f(x')| to divide an error by."""
GRADIENT_TOKENS = 4096
"""Maximum tokens in a batch of path points."""


@dataclass(frozen=True)
class Completeness:
    """The difference of the sum of the scores from f(x) − f(x'), to which it must be equal (section 3 of the paper)."""

    error: float
    """|sum of scores − (f(x) − f(x'))|, in the units of the quantity."""
    relative: float
    """The error divided by |f(x) − f(x')|."""
    n_steps: int
    """Number of points of the path at which a gradient was computed."""
    ok: bool
    """The relative error is at most 2%."""
    token_error: float
    """Estimate of the largest error of a token's score, as errors can cancel in the sum: the difference from a second
    quadrature rule with one more point in each panel."""


def integrated_gradients(
    value_fn: ValueFunction, min_steps: int = MIN_STEPS, max_steps: int = MAX_STEPS, tolerance: float = TOLERANCE
) -> tuple[Float[np.ndarray, " T"], Completeness]:
    """Return the score of each token, and the error of their sum.

    It uses Gauss–Legendre quadrature in panels of 8 points. No fixed number of steps suffices for every text, as
    gradients can change abruptly anywhere on the path; so a panel whose scores do not sum to the change of f between
    its ends is halved, which doubles the steps there only.

    Args:
        value_fn: f.
        min_steps: the number of points to start with.
        max_steps: the number of points after which an error above the tolerance is accepted and reported.
        tolerance: the maximum sum of the panels' errors, relative to |f(x) − f(x')|. It bounds the error of the
            sum and is stricter, since errors of opposite sign do not cancel in it.
    """
    along, n_panels = path(value_fn), max(1, min_steps // PANEL)
    edges = np.arange(n_panels + 1) / n_panels
    parts = np.stack([edges[:-1], edges[1:]], axis=1)
    change, scores = _integrals(along, parts)
    f_range = float(change.sum())
    allowed = tolerance * max(abs(f_range), MIN_RANGE)
    n_steps = PANEL * n_panels
    while (errors := np.abs(scores.sum(axis=1) - change)).sum() > allowed:
        bad = np.flatnonzero(errors > allowed * (parts[:, 1] - parts[:, 0]))
        bad = bad[np.argsort(-errors[bad], kind="stable")][: (max_steps - n_steps) // (2 * PANEL)]
        if not len(bad):
            break
        (start, end), middle = parts[bad].T, parts[bad].mean(axis=1)
        halves = np.concatenate([np.stack([start, middle], axis=1), np.stack([middle, end], axis=1)])
        old, new = (parts, change, scores), (halves, *_integrals(along, halves))
        parts, change, scores = (np.concatenate([np.delete(a, bad, axis=0), b]) for a, b in zip(old, new, strict=True))
        n_steps += PANEL * len(halves)
    total = scores.sum(axis=0)
    error = abs(float(total.sum()) - f_range)
    relative = error / max(abs(f_range), MIN_RANGE)
    second = _integrals(along, parts, PANEL + 1)[1].sum(axis=0)
    token_error = float(np.abs(second - total).max(initial=0.0))
    complete = relative <= tolerance or value_fn.n_words == 0
    return total, Completeness(error, relative, n_steps, complete, token_error)


Along = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""A function that returns f at N points of the path (N,), and its derivative along the path by token, (N, T)."""


def _integrals(along: Along, parts: Float[np.ndarray, "P 2"], n_points: int = PANEL) -> tuple[np.ndarray, np.ndarray]:
    """Return the change of f over parts of the path (P,), and what each token contributes to it, (P, T)."""
    x, w = np.polynomial.legendre.leggauss(n_points)
    within = np.array([0.0, *(x + 1) / 2, 1.0])  # with both ends, for the values of f there
    start, end = parts.T[:, :, None]
    values, slopes = along((start + (end - start) * within).ravel())
    values = values.reshape(len(parts), n_points + 2)
    slopes = slopes.reshape(len(parts), n_points + 2, -1)[:, 1:-1]
    return values[:, -1] - values[:, 0], (slopes * (w / 2)[:, None]).sum(axis=1) * (end - start)


def path(value_fn: ValueFunction) -> Along:
    """Return f along the straight line from the erased text (0) to the text (1)."""
    starts, ends = (
        value_fn.embedded(value_fn.tokens_of(np.full((1, value_fn.n_words), erased))) for erased in (True, False)
    )
    differences = [end - start for end, start in zip(ends, starts, strict=True)]  # (1, L, D) each
    size = max(1, GRADIENT_TOKENS // len(value_fn.word_of))

    def along(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, slopes = [], []
        with exact_inference(value_fn.model), torch.inference_mode(False), torch.enable_grad():
            for alpha in torch.from_numpy(points).to(differences[0]).split(size):
                vectors = [
                    (s + alpha[:, None, None] * d).requires_grad_() for s, d in zip(starts, differences, strict=True)
                ]
                inputs = {name: repeated(value, len(alpha)) for name, value in value_fn.inputs.items()}
                value = value_fn.quantity(value_fn.logits(inputs, vectors))
                gradients = torch.autograd.grad(value.sum(), vectors)
                each = [(g * d).sum(dim=-1) for g, d in zip(gradients, differences, strict=True)]
                values.append(_float64(value))
                slopes.append(_float64(torch.cat(each, dim=1)))
        return np.concatenate(values), np.concatenate(slopes)

    return along


def _float64(x: Tensor) -> np.ndarray:
    return x.detach().cpu().double().numpy()


SHARES = (0.1, 0.2, 0.5)
"""Shares of the words that are erased or kept; the drops are averaged."""
MAX_RANDOM, MIN_RANDOM = 200, 100
RANDOM_TOKENS = 160_000
"""Maximum tokens evaluated for random rankings: texts of more than 130 tokens get fewer, but at least 100."""
SEED = 0


@dataclass(frozen=True)
class Faithfulness:
    """A mean drop, compared with that of random rankings."""

    value: float
    random_mean: float
    random_low: float
    """2.5th percentile of random rankings."""
    random_high: float
    """97.5th percentile of random rankings."""
    beats_random: bool
    """The value is better than that interval."""


def mean_drops(value_fn: ValueFunction, rankings: Int[np.ndarray, "R W"]) -> Float[np.ndarray, "R 2"]:
    """Return comprehensiveness and sufficiency of each ranking (word numbers, best first).

    Comprehensiveness is the mean drop when the top 10%, 20% and 50% of the words are erased (a good ranking: large);
    sufficiency is the mean drop when only they are kept (a good ranking: small). At least one word is erased or kept.
    """
    n_rankings, n = rankings.shape
    if n == 0:
        return np.zeros((n_rankings, 2))
    # (R, W): the rank of each word.
    rank = np.argsort(rankings, axis=1)
    top = [rank < n_top for n_top in _share_sizes(n)]
    erased = np.concatenate([np.zeros((1, n), dtype=bool), *top, *(~t for t in top)])
    values = value_fn.values(erased)
    return (values[0] - values[1:].reshape(2, len(SHARES), n_rankings)).mean(axis=1).T


def _share_sizes(n_words: int) -> list[int]:
    """Return the number of words of each share, at least one."""
    # Less 1e-9, as 10% of 30 is 3.0000000000000004.
    return [max(1, math.ceil(share * n_words - 1e-9)) for share in SHARES]


def n_single_word_shares(n_words: int) -> int:
    """Return the number of shares of one word, for which comprehensiveness repeats leave-one-out."""
    return _share_sizes(n_words).count(1) if n_words else 0


def random_mean_drops(value_fn: ValueFunction, n_rankings: int | None = None) -> Float[np.ndarray, "R 2"]:
    """Return `mean_drops` of random rankings from a fixed seed, by default 200, or down to 100 for a long text."""
    if n_rankings is None:
        affordable = RANDOM_TOKENS // (2 * len(SHARES) * len(value_fn.word_of))
        n_rankings = min(MAX_RANDOM, max(MIN_RANDOM, affordable))
    rng = np.random.default_rng(SEED)
    rankings = [rng.permutation(value_fn.n_words) for _ in range(n_rankings)]
    return mean_drops(value_fn, np.array(rankings, dtype=np.int64).reshape(n_rankings, value_fn.n_words))


def faithfulness(
    value_fn: ValueFunction, scores: Float[np.ndarray, " W"], random: Float[np.ndarray, "R 2"]
) -> tuple[Faithfulness, Faithfulness]:
    """Return comprehensiveness and sufficiency of the ranking by these scores, largest first."""
    ranking = np.argsort(-scores, kind="stable")
    value = mean_drops(value_fn, ranking[None])[0]
    low, high = np.percentile(random, [2.5, 97.5], axis=0)
    beats = (value[0] > high[0], value[1] < low[1])
    mean = random.mean(axis=0)
    first, second = (
        Faithfulness(float(value[i]), float(mean[i]), float(low[i]), float(high[i]), bool(beats[i])) for i in range(2)
    )
    return first, second
