"""Integrated gradients (Sundararajan et al. 2017) on token embeddings, with an error that is always told.

The path runs straight from the text with every word erased to the text as it is; special tokens stay as they
are all along. What is integrated, and what an erased word is, is the question's affair (`question.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.explain.question import Question

FIRST_STEPS, MOST_STEPS = 16, 1024
TOLERANCE = 0.02
"""Largest error of completeness, relative to |f(x) − f(x')|, that passes."""
SMALLEST_RANGE = 1e-6
"""What a range of nothing is taken for, where a relative error is needed."""
GRADIENT_TOKENS = 4096
"""Most tokens in a batch of path points."""


@dataclass(frozen=True)
class Completeness:
    """How far the scores miss their sum, which must be f(x) − f(x') (completeness, section 3 of the paper).

    Attributes:
        error: |sum of scores − (f(x) − f(x'))|, in the units of the question.
        relative: that, over |f(x) − f(x')|.
        n_steps: points of the path at which a gradient was taken.
        ok: the relative error is at most 2%.
    """

    error: float
    relative: float
    n_steps: int
    ok: bool


def integrated_gradients(
    question: Question, first_steps: int = FIRST_STEPS, most_steps: int = MOST_STEPS
) -> tuple[dict[str, list[float]], Completeness]:
    """One score a token of each stream, and how nearly they add up.

    The steps are doubled until the error of completeness passes, or `most_steps` is reached: no fixed
    number is enough for every text, for gradients can change abruptly near the erased end of the path.
    """
    erased, intact = question.ends()
    n_steps = first_steps
    while True:
        scores = _integrate(question, n_steps)
        error = abs(sum(float(s.sum()) for s in scores) - (intact - erased))
        relative = error / max(abs(intact - erased), SMALLEST_RANGE)
        ok = relative <= TOLERANCE or question.n_words == 0
        if ok or 2 * n_steps > most_steps:
            named = {w.name: s.tolist() for w, s in zip(question.words, scores, strict=True)}
            return named, Completeness(error, relative, n_steps, ok)
        n_steps *= 2


def _integrate(question: Question, n_steps: int) -> list[Tensor]:
    """Scores (L,) a stream: the mean gradient along the path, times how far each embedding moves on it."""
    everything = question.tokens_of(np.ones((1, question.n_words), dtype=bool))
    tables = [embedding.weight.detach() for embedding in question.embeddings]
    starts = [F.embedding(i, t) for i, t in zip(question.variants(everything), tables, strict=True)]
    moves = [F.embedding(i, t) - s for i, t, s in zip(question.ids, tables, starts, strict=True)]  # (1, L, D)
    gradients = [torch.zeros_like(m, dtype=torch.float64) for m in moves]
    points, weights = (torch.from_numpy(x).to(moves[0]) for x in _nodes(n_steps))
    size = max(1, GRADIENT_TOKENS // max(1, question.n_tokens))
    was_training = question.model.training
    question.model.eval()
    try:
        with torch.inference_mode(False), torch.enable_grad():
            for alpha, weight in zip(points.split(size), weights.split(size), strict=True):
                at = alpha[:, None, None]
                rows = [(s + at * m).requires_grad_() for s, m in zip(starts, moves, strict=True)]
                ids = [i.expand(len(alpha), -1) for i in question.ids]
                value = (question.quantity(question.logits(ids, rows)) * weight).sum()
                for total, gradient in zip(gradients, torch.autograd.grad(value, rows), strict=True):
                    total += gradient.sum(dim=0, keepdim=True)
    finally:
        question.model.train(was_training)
    return [(g * m).sum(dim=-1)[0].cpu() for g, m in zip(gradients, moves, strict=True)]


@cache
def _nodes(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss–Legendre nodes and weights on [0, 1]: exact for polynomials of degree 2n − 1."""
    x, w = np.polynomial.legendre.leggauss(n)
    return (x + 1) / 2, w / 2
