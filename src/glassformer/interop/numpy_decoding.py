"""Beam search and sampling in numpy, as in `decode/` and with the same results, for models that are a function of ids.

What is computed is described there. These are shorter: there are no forced prefixes and no log, and a sentence that is
done leaves the batch at once, since the caches are copied at every step as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from glassformer.config import DecodeConfig
from glassformer.errors import DivergedError
from glassformer.interop.choose import Hypotheses

Step = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Function of the newest tokens (R,), of the row of the last call that each row continues (R,), and of the sentence of
each row (R,); returns logits (R, V)."""


def beam_search(
    step: Step, n: int, limit: int, decode: DecodeConfig, n_best: int, bos: int, eos: int, suppress: Sequence[int]
) -> list[Hypotheses]:
    """Return the n_best hypotheses of n sentences, best first, those that ended before truncated ones.

    Args:
        step: the model; its first call begins every sentence.
        n: number of sentences.
        limit: maximum tokens of a hypothesis, the end token included.
        decode: `beam_size` and `length_penalty` are used.
        n_best: number of hypotheses of each.
        bos: first token.
        eos: token that ends a hypothesis, and is kept.
        suppress: tokens that are never generated.
    """
    width, penalties = max(1, decode.beam_size), [1.0] + [t**decode.length_penalty for t in range(1, limit + 1)]
    finished: list[Hypotheses] = [[] for _ in range(n)]
    n_finished, results = [0] * n, list[Hypotheses]([[] for _ in range(n)])
    active, live = list(range(n)), [[(0.0, list[int]())] for _ in range(n)]  # log-probability and tokens
    newest, rows, sentences = np.full(n, bos), np.arange(n), np.arange(n)
    for t in range(1, limit + 1):
        scores = log_softmax(step(newest, rows, sentences))
        scores[:, list(suppress)] = -np.inf
        first_row, new_live, new_rows = 0, list[list[tuple[float, list[int]]]](), list[list[int]]()
        for i, hypotheses in zip(active, live, strict=True):
            own = scores[first_row : first_row + len(hypotheses)] + np.array([[lp] for lp, _ in hypotheses])
            n_candidates = min(own.size, 1 if width == 1 else 2 * width)
            kept, parents = list[tuple[float, list[int]]](), list[int]()
            for rank, index in enumerate(_largest(own.ravel(), n_candidates)):
                (parent, token), total = divmod(int(index), own.shape[1]), float(own.ravel()[index])
                tokens = [*hypotheses[parent][1], token]
                if total == -np.inf:
                    break
                if token != eos and len(kept) < width:
                    kept.append((total, tokens))
                    parents.append(first_row + parent)
                elif token == eos and rank < width:
                    n_finished[i] += 1
                    finished[i] = sorted([*finished[i], (tokens, total / penalties[t])], key=lambda h: -h[1])[:n_best]
            first_row += len(hypotheses)
            worst = finished[i][-1][1] if len(finished[i]) == n_best else -np.inf
            best_live = kept[0][0] if kept else -np.inf
            enough = n_finished[i] >= width and worst >= best_live / penalties[t]
            if t == limit or enough or worst >= best_live / max(penalties[min(t + 1, limit)], penalties[limit]):
                cut = [(tokens, total / penalties[t]) for total, tokens in kept]
                results[i] = [*finished[i], *cut][:n_best]
            else:
                new_live.append(kept)
                new_rows.append(parents)
        active = [i for i in active if not results[i]]
        if not active:
            break
        live = new_live
        newest = np.array([tokens[-1] for kept in live for _, tokens in kept])
        rows = np.array([row for parents in new_rows for row in parents])
        sentences = np.array([i for i, kept in zip(active, live, strict=True) for _ in kept])
    return results


def sample(
    step: Step,
    first: np.ndarray,
    decode: DecodeConfig,
    n_new: int,
    places: Sequence[tuple[int, int]],
    eos: int,
    suppress: Sequence[int],
) -> list[list[int]]:
    """Return at most n_new sampled tokens of each row; an end token is one of them.

    Args:
        step: the model after the prompts.
        first: logits (R, V) after the prompts.
        decode: `temperature` (0 is greedy), `top_k`, `top_p`, `min_p` and `decode_seed` are used.
        n_new: maximum number of tokens.
        places: row number and number of earlier tokens of each row, of which the random numbers are made.
        eos: token that ends a row.
        suppress: tokens that are never sampled.
    """
    written: list[list[int]] = [[] for _ in places]
    active, logits = np.arange(len(places)), first
    # As in `decode.sampling`, a number for each position of a row's text, of which these are the next.
    u = np.stack([np.random.default_rng([decode.decode_seed, row]).random(n + n_new)[n:] for row, n in places])
    for t in range(n_new):
        logits = logits.astype(np.float64)
        logits[:, list(suppress)] = -np.inf
        if decode.temperature == 0:
            tokens = logits.argmax(axis=1)
        else:
            tokens = _sampled(np.exp(log_softmax(logits / decode.temperature)), decode, u[active, t])
        for i, token in zip(active, tokens.tolist(), strict=True):
            written[i].append(token)
        unfinished = np.flatnonzero(tokens != eos)
        if not len(unfinished) or t == n_new - 1:
            break
        active = active[unfinished]
        logits = step(tokens[unfinished], unfinished, active)
    return written


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Return the log-probabilities of logits (R, V).

    Raises:
        DivergedError: they are NaN.
    """
    if np.isnan(logits).any():
        raise DivergedError("the model's logits are NaN, so it cannot generate", "export an earlier checkpoint")
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _sampled(p: np.ndarray, decode: DecodeConfig, u: np.ndarray) -> np.ndarray:
    """Return a token for each row of probabilities (R, V), from those that pass every filter."""
    passes = p > 0
    if decode.min_p > 0:
        passes &= p >= decode.min_p * p.max(axis=1, keepdims=True)
    if 0 < decode.top_k < p.shape[1] or decode.top_p < 1:
        order = (-p).argsort(axis=1, kind="stable")
        ordered = np.take_along_axis(p, order, axis=1)
        good = np.ones_like(passes)
        if decode.top_k > 0:
            good[:, decode.top_k :] = False
        if decode.top_p < 1:
            good &= ordered.cumsum(axis=1) - ordered < decode.top_p
            good[:, 0] = True
        listed = np.zeros_like(passes)
        np.put_along_axis(listed, order, good, axis=1)
        passes &= listed
    cumulative = np.where(passes, p, 0.0).cumsum(axis=1)
    wanted = u * cumulative[:, -1]
    return np.array([np.searchsorted(row, x, side="right") for row, x in zip(cumulative, wanted, strict=True)])


def _largest(values: np.ndarray, k: int) -> np.ndarray:
    """Return the indices of the k largest values, largest first; of equal ones the first."""
    if k == 1:
        return np.array([values.argmax()])
    found = np.sort(np.argpartition(-values, k - 1)[:k])
    return found[(-values[found]).argsort(kind="stable")]
