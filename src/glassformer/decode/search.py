"""Search for the most probable sequences of many sentences at once by beam search; a beam of one is greedy decoding.

At each step the `beam_size` best unfinished hypotheses of a sentence are extended by every token, and the extensions
are ranked by log-probability. An extension by EOS among the best `beam_size` is a finished hypothesis; the best others
stay live. A sentence is done at its length limit, or when `beam_size` hypotheses have finished and no live one, at its
present length, scores above the n best of them. `jobs.py` forms the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from glassformer.config import DecodeConfig
from glassformer.decode.incremental import ModelDecoder
from glassformer.errors import DivergedError, UsageError


@dataclass(frozen=True)
class SearchStep:
    """The k candidates of one step, best first, for each of the B unfinished sentences.

    Attributes:
        sentence: index of the sentence in the caller's list.
        parent: row, among the live hypotheses of the step before, of the extended hypothesis.
        token: the token it is extended by.
        log_prob: log-probability of that token.
        total: log-probability of the whole hypothesis; -inf where there are fewer than k candidates.
        score: total / length ** length_penalty.
        row: row among the live hypotheses after this step, -1 if it is not one of them.
        finished: whether it ended with EOS. A candidate that neither is finished nor has a row is pruned.
    """

    sentence: Int[Tensor, " B"]
    parent: Int[Tensor, "B k"]
    token: Int[Tensor, "B k"]
    log_prob: Float[Tensor, "B k"]
    total: Float[Tensor, "B k"]
    score: Float[Tensor, "B k"]
    row: Int[Tensor, "B k"]
    finished: Bool[Tensor, "B k"]


SearchLog: TypeAlias = Callable[[SearchStep], None]


COMPACT_SHARE = 8
"""Finished rows are removed from the batch when they are at least 1/8 of it, since removal copies the caches."""


@dataclass(frozen=True)
class Hypothesis:
    """A generated sequence.

    Attributes:
        ids: its tokens without BOS and EOS, with a forced prefix, without a language model's prompt.
        score: log_prob / length ** length_penalty, where length counts the EOS; n-best lists are sorted by it.
        log_prob: natural logarithm of its probability under the model, EOS included.
        finished: True if it ended with EOS, False if the length limit truncated it.
        token_log_probs: the summands of log_prob, one for each of its tokens and one for the EOS if it ended.
    """

    ids: list[int]
    score: float
    log_prob: float
    finished: bool
    token_log_probs: list[float] = field(default_factory=list, compare=False)


def length_penalties(longest: int, penalty: float) -> list[float]:
    """Return length ** penalty for the lengths 0 … longest, the divisors of log-probabilities.

    A penalty of 0 compares plain log-probabilities, which favours short sequences; 1 compares their means per token.
    (Wu et al. 2016, section 7, divide by ((5 + length) / 6) ** penalty instead.)
    """
    return [1.0] + [float(length) ** penalty for length in range(1, longest + 1)]


def active_rows(done: Bool[Tensor, " R"]) -> Int[Tensor, " R2"] | None:
    """Return the indices of unfinished rows, or None while fewer than 1/8 are finished."""
    n_done = int(done.sum())
    return None if n_done * COMPACT_SHARE < len(done) or not n_done else (~done).nonzero()[:, 0]


def refuse_nan(log_probs: Tensor) -> None:
    """Raise a DivergedError if a log-probability is NaN."""
    if log_probs.isnan().any():
        hint = "the model diverged in training: train again with a lower --lr"
        raise DivergedError("the model's logits are NaN, so it cannot generate", hint)


NEG_INF = float("-inf")
"""Log-probability of suppressed tokens and of rows of the beam without a hypothesis."""


def beam_search(
    decoder: ModelDecoder,
    limits: Sequence[int],
    config: DecodeConfig,
    *,
    bos: int,
    eos: int,
    pad: int,
    prefixes: Sequence[Sequence[int]] | None = None,
    log: SearchLog | None = None,
) -> list[list[Hypothesis]]:
    """Return the `n_best` best hypotheses of each sentence, best first.

    Hypotheses that ended with EOS come before truncated ones whatever their scores, because a loop of likely words
    scores well forever. Truncated ones only fill the remaining places.

    Args:
        decoder: holds one row per sentence and no tokens yet.
        limits: maximum tokens of each sentence, a forced prefix and the EOS included.
        config: `beam_size`, `length_penalty` and `n_best` are used.
        bos: first token of every row, never generated.
        eos: token that ends a hypothesis.
        pad: never generated.
        prefixes: tokens each hypothesis must begin with, one list per sentence (it may be empty).
        log: called with every step.

    Raises:
        UsageError: a prefix holds a special token.
        DivergedError: the model's logits are NaN.
    """
    if not limits:
        return []
    n, device, special, prefixes = len(limits), decoder.device, {bos, eos, pad}, prefixes or [[]] * len(limits)
    for number, prefix in enumerate(prefixes):
        if special.intersection(prefix):
            hint = "a prefix is ordinary tokens: the search itself begins and ends every hypothesis"
            raise UsageError(f"prefix {number} holds a BOS, EOS or padding id", hint)
    width, n_best, suppressed = config.beam_size, config.n_best, sorted(special - {eos})
    penalties = torch.tensor(length_penalties(max(limits), config.length_penalty), device=device)
    longest = max(map(len, prefixes))
    padded = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes]  # -1 where the token is free
    # Of the B unfinished sentences: their index in the caller's list, the longest they may be, what they begin with.
    sentence, limit = torch.arange(n, device=device), torch.tensor(limits, device=device)
    forced = torch.tensor(padded, dtype=torch.long, device=device).view(n, longest)
    # Their live hypotheses after t steps, by log-probability: one at first, `beam_size` after a step.
    totals, tokens = torch.zeros(n, 1, device=device), torch.zeros(n, 1, 0, dtype=torch.long, device=device)
    token_log_probs, newest = torch.zeros(n, 1, 0, device=device), torch.full((n, 1), bos, device=device)
    # The finished ones by the index of the sentence, by score; the score of the n-th best.
    finished, results = ([list[Hypothesis]() for _ in limits] for _ in range(2))
    n_finished, worst_kept = torch.zeros(n, dtype=torch.long, device=device), torch.full((n,), NEG_INF, device=device)
    done = torch.zeros(n, dtype=torch.bool, device=device)
    while True:
        logits, (n, w), t = decoder.step(newest), totals.shape, tokens.shape[2]
        vocab_size, log_probs = logits.shape[1], logits.view(n, w, -1).log_softmax(dim=-1)
        if t == 0:
            refuse_nan(log_probs[:, :, eos])
        log_probs[:, :, suppressed] = NEG_INF
        if t < longest:  # under a forced token only the first hypothesis of the beam stays
            is_forced = forced[:, t] >= 0
            first = log_probs[:, 0].gather(1, forced[:, t].clamp(min=0)[:, None])
            log_probs[is_forced] = NEG_INF
            log_probs[is_forced, 0, forced[is_forced, t]] = first[is_forced, 0]
        # The k best of a sentence's w · V extensions. At most one extension of each hypothesis ends it, so that of
        # 2 · beam candidates at least beam live on. Greedy search is over when its only hypothesis ends: one will do.
        k = 1 if width == 1 else min(2 * width, w * vocab_size)
        if k == 1:  # the first of equals, which topk does not promise
            flat_index = log_probs[:, 0].argmax(dim=1, keepdim=True)
            total = log_probs[:, 0].gather(1, flat_index) + totals
        else:
            total, flat_index = (log_probs + totals[:, :, None]).view(n, -1).topk(k, dim=1)  # (B, k), best first
        parent, token = flat_index // vocab_size, flat_index % vocab_size  # hypothesis 0 … w - 1, and what extends it
        own, score = log_probs.reshape(n, -1).gather(1, flat_index)[:, :, None], total / penalties[t + 1]
        # A hypothesis is finished only where its end is among the best `beam`, as if it still competed with the others.
        ends, rank = token == eos, torch.arange(k, device=device)
        is_end = ends & (rank < width) & (total > NEG_INF)
        if log:
            live_rank = (~ends).cumsum(dim=1) - 1
            row = live_rank.masked_fill(ends | (live_rank >= width) | (total == NEG_INF), -1)
            found = (parent, token, total - totals.gather(1, parent), total, score, row, is_end)
            log(SearchStep(sentence[~done], *(x[~done] for x in found)))
        if is_end.any():
            n_finished += is_end.sum(dim=1)
            each = torch.cat([_of_parents(token_log_probs, parent), own], dim=2)
            found = (x[is_end].tolist() for x in (_of_parents(tokens, parent), score, total, each))
            for i, ids, of_score, of_total, of_ids in zip(is_end.nonzero()[:, 0].tolist(), *found, strict=True):
                kept = finished[int(sentence[i])]
                kept.append(Hypothesis(ids, of_score, of_total, True, of_ids))
                kept.sort(key=lambda hypothesis: -hypothesis.score)  # older ones first on ties
                if len(kept) >= n_best:
                    worst_kept[i] = kept[n_best - 1].score
        # The best `beam` that do not end: the stable sort puts those first, in their order. Where fewer are left (a
        # vocabulary smaller than k, a forced prefix), the rest are rows without a hypothesis, of log-probability -inf.
        live = ends.to(torch.uint8).argsort(dim=1, stable=True)[:, :width]  # (B, beam)
        parent, totals = parent.gather(1, live), total.masked_fill(ends, NEG_INF).gather(1, live)
        tokens = torch.cat([_of_parents(tokens, parent), token.gather(1, live)[:, :, None]], dim=2)  # (B, beam, t + 1)
        token_log_probs = torch.cat([_of_parents(token_log_probs, parent), own.gather(1, live[:, :, None])], dim=2)
        # Hypothesis p of sentence b is row b · w + p of what the decoder has just computed.
        rows = torch.arange(n, device=device)[:, None] * w + parent
        # A sentence also ends early when no live hypothesis can enter the n best any more: log-probabilities only fall,
        # so no continuation can score above the present log-probability divided by the largest reachable penalty.
        best, penalty = totals[:, 0], penalties[t + 1]
        largest = torch.maximum(penalties[min(t + 2, len(penalties) - 1)], penalties[limit])
        beam_finished = (n_finished >= width) & (worst_kept >= best / penalty)
        new = ~done & ((limit <= t + 1) | beam_finished | (worst_kept >= best / largest))
        done |= new
        for i in new.nonzero()[:, 0].tolist():
            living = zip(*(x[i].tolist() for x in (tokens, totals, token_log_probs)), strict=True)
            cut = [Hypothesis(ids, x / float(penalty), x, False, own) for ids, x, own in living if x > NEG_INF]
            results[int(sentence[i])] = [*finished[int(sentence[i])], *cut][:n_best]
        if (active := active_rows(done)) is not None:
            if not len(active):
                return results
            unfinished = (x[active] for x in (rows, sentence, limit, forced, totals, tokens, token_log_probs))
            rows, sentence, limit, forced, totals, tokens, token_log_probs = unfinished
            n_finished, worst_kept, done = (x[active] for x in (n_finished, worst_kept, done))
        rows = rows.flatten()
        if active is not None or not torch.equal(rows, torch.arange(len(newest), device=device)):
            decoder.reorder(rows, active)  # otherwise every row extends itself, and nothing has to be copied
        newest = tokens[:, :, -1].reshape(-1, 1)


def _of_parents(tokens: Shaped[Tensor, "B w t"], parent: Int[Tensor, "B k"]) -> Shaped[Tensor, "B k t"]:
    return tokens.gather(1, parent[:, :, None].expand(-1, -1, tokens.shape[2]))
