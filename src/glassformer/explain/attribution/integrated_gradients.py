"""Attribute by integrated gradients (Sundararajan et al. 2017) on token embeddings, with an estimate of the error.

The path is the straight line from the text with every word erased to the text itself; special tokens do not change.
The embedding of a word includes its n-grams, if the model has them. `value_function.py` defines the integrated quantity
and what replaces an erased word.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.explain.attribution.value_function import ValueFunction
from glassformer.explain.capture.exact_inference import exact_inference

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


@dataclass(frozen=True, eq=False)
class _Panel:
    """The part [start, end] of the path: f at its ends, and its contribution to the score of each token."""

    start: float
    end: float
    f_start: float
    f_end: float
    scores: Float[np.ndarray, " L"]

    @property
    def error(self) -> float:
        """Return the difference of the scores' sum from the change of f, to which it must be equal on every part."""
        return abs(float(self.scores.sum()) - (self.f_end - self.f_start))


def integrated_gradients(
    value_fn: ValueFunction, min_steps: int = MIN_STEPS, max_steps: int = MAX_STEPS, tolerance: float = TOLERANCE
) -> tuple[dict[str, list[float]], Completeness]:
    """Return the score of each token by stream, and the error of their sum.

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
    path = _Path(value_fn)
    n_panels = max(1, min_steps // PANEL)
    panels = path.panels([(i / n_panels, (i + 1) / n_panels) for i in range(n_panels)])
    f_range = panels[-1].f_end - panels[0].f_start
    allowed = tolerance * max(abs(f_range), MIN_RANGE)
    n_steps = PANEL * n_panels
    while sum(p.error for p in panels) > allowed:
        bad = [p for p in panels if p.error > allowed * (p.end - p.start)]
        bad = sorted(bad, key=lambda p: -p.error)[: (max_steps - n_steps) // (2 * PANEL)]
        if not bad:
            break
        halves = [half for p in bad for half in ((p.start, (p.start + p.end) / 2), ((p.start + p.end) / 2, p.end))]
        halved = {p.start for p in bad}
        panels = [p for p in panels if p.start not in halved] + path.panels(halves)
        n_steps += PANEL * len(halves)
    total = np.sum([p.scores for p in panels], axis=0)
    error = abs(float(total.sum()) - f_range)
    lengths = np.cumsum([len(w.word_of) for w in value_fn.words])
    scores = {w.name: s.tolist() for w, s in zip(value_fn.words, np.split(total, lengths[:-1]), strict=True)}
    relative = error / max(abs(f_range), MIN_RANGE)
    second = np.sum([p.scores for p in path.panels([(p.start, p.end) for p in panels], PANEL + 1)], axis=0)
    token_error = float(np.abs(second - total).max(initial=0.0))
    complete = relative <= tolerance or value_fn.n_words == 0
    return scores, Completeness(error, relative, n_steps, complete, token_error)


class _Path:
    """The straight line from the erased text (0) to the text (1), and the gradient of f along it."""

    def __init__(self, value_fn: ValueFunction) -> None:
        self.value_fn = value_fn
        self.starts, ends = (
            value_fn.erased_embeddings(value_fn.token_masks(np.full((1, value_fn.n_words), erased)))
            for erased in (True, False)
        )
        # (1, L, D) each.
        self.differences = [end - start for end, start in zip(ends, self.starts, strict=True)]

    def panels(self, parts: list[tuple[float, float]], n_points: int = PANEL) -> list[_Panel]:
        """Integrate over parts of the path."""
        x, w = np.polynomial.legendre.leggauss(n_points)
        # With both ends, for the values of f there.
        within = np.array([0.0, *(x + 1) / 2, 1.0])
        start, end = np.array(parts).T[:, :, None]
        values, slopes = self._along((start + (end - start) * within).ravel())
        values = values.reshape(len(parts), n_points + 2)
        slopes = slopes.reshape(len(parts), n_points + 2, -1)[:, 1:-1]
        scores = (slopes * (w / 2)[:, None]).sum(axis=1) * (end - start)
        return [_Panel(a, b, float(f[0]), float(f[-1]), s) for (a, b), f, s in zip(parts, values, scores, strict=True)]

    def _along(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return f at N points of the path (N,), and its derivative along the path by token, (N, L)."""
        f, size = self.value_fn, max(1, GRADIENT_TOKENS // max(1, self.value_fn.n_tokens))
        values, slopes = [], []
        with exact_inference(f.model), torch.inference_mode(False), torch.enable_grad():
            for alpha in torch.from_numpy(points).to(self.differences[0]).split(size):
                vectors = [
                    (s + alpha[:, None, None] * d).requires_grad_()
                    for s, d in zip(self.starts, self.differences, strict=True)
                ]
                value = f.quantity(f.logits([ids.expand(len(alpha), -1) for ids in f.ids], vectors))
                gradients = torch.autograd.grad(value.sum(), vectors)
                each = [(g * d).sum(dim=-1) for g, d in zip(gradients, self.differences, strict=True)]
                values.append(_float64(value))
                slopes.append(_float64(torch.cat(each, dim=1)))
        return np.concatenate(values), np.concatenate(slopes)


def _float64(x: Tensor) -> np.ndarray:
    return x.detach().cpu().double().numpy()
