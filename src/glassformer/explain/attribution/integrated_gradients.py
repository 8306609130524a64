"""Integrated gradients (Sundararajan et al. 2017) on token embeddings, with an error that is always told.

The path runs straight from the text with every word erased to the text as it is; special tokens stay as they are all
along. With its row a word gets the vector of its n-grams, if the model has them. What is integrated, and what an
erased word is, is the question's affair (`value_function.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.explain.attribution.value_function import ValueFunction
from glassformer.explain.capture.exactly import exactly

PANEL = 8
"""Points of a panel: a part of the path that is integrated, and checked, by itself."""
FIRST_STEPS, MOST_STEPS = 16, 1024
TOLERANCE = 0.02
"""Largest error, relative to |f(x) − f(x')|, that passes."""
SMALLEST_RANGE = 1e-6
"""What a range of nothing is taken for, where a relative error is needed."""
GRADIENT_TOKENS = 4096
"""Most tokens in a batch of path points."""


@dataclass(frozen=True)
class Completeness:
    """How far the scores miss their sum, which must be f(x) − f(x') (completeness, section 3 of the paper)."""

    error: float
    """|sum of scores − (f(x) − f(x'))|, in the units of the question."""
    relative: float
    """That, over |f(x) − f(x')|."""
    n_steps: int
    """Points of the path at which a gradient was taken."""
    ok: bool
    """The relative error is at most 2%."""
    token_error: float
    """Largest error of a single token's score, which the sum cannot see where errors cancel: how far it is from what a
    second rule gives, with points of its own and one more in each panel."""


@dataclass(frozen=True, eq=False)
class _Panel:
    """The part [start, end] of the path: f at its ends, and what it adds to the score of each token."""

    start: float
    end: float
    f_start: float
    f_end: float
    scores: Float[np.ndarray, " L"]

    @property
    def error(self) -> float:
        """Scores must add up on every part of the path, as they must on the whole."""
        return abs(float(self.scores.sum()) - (self.f_end - self.f_start))


def integrated_gradients(
    question: ValueFunction,
    first_steps: int = FIRST_STEPS,
    most_steps: int = MOST_STEPS,
    tolerance: float = TOLERANCE,
) -> tuple[dict[str, list[float]], Completeness]:
    """One score a token of each stream, and how nearly they add up.

    Gauss–Legendre, in panels of 8 points. No fixed number of steps is enough for every text, for gradients
    can change abruptly anywhere on the path. Where a panel's scores miss the change of f between its ends,
    it is cut in two: that doubles the steps there, and only there.

    Args:
        question: f.
        first_steps: points to begin with.
        most_steps: points after which an error that is still too large is accepted, and told.
        tolerance: largest sum of the panels' errors, relative to |f(x) − f(x')|. It bounds the error of the
            whole, and is stricter: errors of opposite sign do not cancel in it.
    """
    path = _Path(question)
    n_panels = max(1, first_steps // PANEL)
    panels = path.panels([(i / n_panels, (i + 1) / n_panels) for i in range(n_panels)])
    f_range = panels[-1].f_end - panels[0].f_start
    allowed = tolerance * max(abs(f_range), SMALLEST_RANGE)
    n_steps = PANEL * n_panels
    while sum(p.error for p in panels) > allowed:
        bad = [p for p in panels if p.error > allowed * (p.end - p.start)]
        bad = sorted(bad, key=lambda p: -p.error)[: (most_steps - n_steps) // (2 * PANEL)]
        if not bad:
            break
        halves = [
            half for p in bad for half in ((p.start, (p.start + p.end) / 2), ((p.start + p.end) / 2, p.end))
        ]
        cut = {p.start for p in bad}
        panels = [p for p in panels if p.start not in cut] + path.panels(halves)
        n_steps += PANEL * len(halves)
    total = np.sum([p.scores for p in panels], axis=0)
    error = abs(float(total.sum()) - f_range)
    lengths = np.cumsum([len(w.word_of) for w in question.words])
    scores = {w.name: s.tolist() for w, s in zip(question.words, np.split(total, lengths[:-1]), strict=True)}
    relative = error / max(abs(f_range), SMALLEST_RANGE)
    again = np.sum([p.scores for p in path.panels([(p.start, p.end) for p in panels], PANEL + 1)], axis=0)
    token_error = float(np.abs(again - total).max(initial=0.0))
    complete = relative <= tolerance or question.n_words == 0
    return scores, Completeness(error, relative, n_steps, complete, token_error)


class _Path:
    """The straight line from the erased text (0) to the text (1), and the gradient of f along it."""

    def __init__(self, question: ValueFunction) -> None:
        self.question = question
        everything, nothing = (np.full((1, question.n_words), erased) for erased in (True, False))
        self.starts = question.vectors(question.tokens_of(everything))
        ends = question.vectors(question.tokens_of(nothing))
        self.moves = [end - start for end, start in zip(ends, self.starts, strict=True)]  # (1, L, D) each

    def panels(self, parts: list[tuple[float, float]], n_points: int = PANEL) -> list[_Panel]:
        """These parts of the path, integrated."""
        x, w = np.polynomial.legendre.leggauss(n_points)
        within = np.array([0.0, *(x + 1) / 2, 1.0])  # both ends take part for the value of f there
        start, end = np.array(parts).T[:, :, None]
        values, slopes = self._along((start + (end - start) * within).ravel())
        values = values.reshape(len(parts), n_points + 2)
        slopes = slopes.reshape(len(parts), n_points + 2, -1)[:, 1:-1]
        scores = (slopes * (w / 2)[:, None]).sum(axis=1) * (end - start)
        return [
            _Panel(a, b, float(f[0]), float(f[-1]), s)
            for (a, b), f, s in zip(parts, values, scores, strict=True)
        ]

    def _along(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """f at N points of the path (N,), and for each token how fast it changes f there, (N, L)."""
        q, size = self.question, max(1, GRADIENT_TOKENS // max(1, self.question.n_tokens))
        values, slopes = [], []
        with exactly(q.model), torch.inference_mode(False), torch.enable_grad():
            for alpha in torch.from_numpy(at).to(self.moves[0]).split(size):
                vectors = [
                    (s + alpha[:, None, None] * m).requires_grad_()
                    for s, m in zip(self.starts, self.moves, strict=True)
                ]
                f = q.quantity(q.logits([ids.expand(len(alpha), -1) for ids in q.ids], vectors))
                gradients = torch.autograd.grad(f.sum(), vectors)
                each = [(g * m).sum(dim=-1) for g, m in zip(gradients, self.moves, strict=True)]
                values.append(_float64(f))
                slopes.append(_float64(torch.cat(each, dim=1)))
        return np.concatenate(values), np.concatenate(slopes)


def _float64(x: Tensor) -> np.ndarray:
    return x.detach().cpu().double().numpy()
