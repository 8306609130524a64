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
    if bool(log_probs.isnan().any()):
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
    device, special, prefixes = decoder.device, {bos, eos, pad}, prefixes or [[]] * len(limits)
    for number, prefix in enumerate(prefixes):
        if special.intersection(prefix):
            hint = "a prefix is ordinary tokens: the search itself begins and ends every hypothesis"
            raise UsageError(f"prefix {number} holds a BOS, EOS or padding id", hint)
    longest = max(map(len, prefixes))
    padded = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes]
    forced = torch.tensor(padded, dtype=torch.long, device=device).view(len(padded), longest)
    beam = _Beam(config, torch.tensor(limits, device=device), forced, eos, sorted(special - {eos}), log)
    results: list[list[Hypothesis]] = [[] for _ in limits]
    newest = torch.full((len(limits), 1), bos, device=device)
    while True:
        # The decoder's row that each hypothesis extends, (B, beam).
        rows = beam.extend(decoder.step(newest))
        for i in beam.newly_done():
            results[int(beam.sentence[i])] = beam.hypotheses(i)
        active = active_rows(beam.done)
        if active is not None:
            if not len(active):
                return results
            rows = rows[active]
            beam.select(active)
        rows = rows.flatten()
        if active is not None or not torch.equal(rows, torch.arange(len(newest), device=rows.device)):
            # Otherwise every row extends itself, and nothing has to be copied.
            decoder.reorder(rows, active)
        newest = beam.tokens[:, :, -1].reshape(-1, 1)


class _Beam:
    """The hypotheses of B sentences after t steps: the live ones, and the n best finished ones.

    `forced` holds the forced prefixes, with -1 where the token is free; the other arguments are those of `beam_search`.
    """

    def __init__(
        self,
        config: DecodeConfig,
        limit: Int[Tensor, " B"],
        forced: Int[Tensor, "B P"],
        eos: int,
        suppress_tokens: list[int],
        log: SearchLog | None,
    ) -> None:
        n, device, longest = len(limit), limit.device, int(limit.max())
        self.width, self.n_best, self.limit, self.forced = config.beam_size, config.n_best, limit, forced
        self.eos, self.suppress_tokens, self.log = eos, suppress_tokens, log
        self.penalties = torch.tensor(length_penalties(longest, config.length_penalty), device=device)
        # Index of each sentence in the caller's list.
        self.sentence = torch.arange(n, device=device)
        self.done = torch.zeros(n, dtype=torch.bool, device=device)
        self.n_finished = torch.zeros(n, dtype=torch.long, device=device)
        # Live hypotheses, sorted by log-probability; the beam starts with a width of one.
        self.log_probs = torch.zeros(n, 1, device=device)
        self.tokens = torch.zeros(n, 1, 0, dtype=torch.long, device=device)
        self.token_log_probs = torch.zeros(n, 1, 0, device=device)
        # Finished hypotheses by the sentence's index, sorted by score; the score of the n-th best.
        self.finished: list[list[Hypothesis]] = [[] for _ in range(n)]
        self.worst_kept = torch.full((n,), NEG_INF, device=device)

    def extend(self, logits: Float[Tensor, "R V"]) -> Int[Tensor, "B beam"]:
        """Take one step and return the row of `logits` that each live hypothesis extends."""
        # w live hypotheses a sentence: 1 in the first step, where all would be the same, and the beam afterwards.
        n, w = self.log_probs.shape
        vocab_size = logits.shape[1]
        token_log_probs = self._token_log_probs(logits.view(n, w, vocab_size))  # (B, w, V)
        # The k best of a sentence's w · V extensions. At most one extension of each hypothesis ends it, so that of
        # 2 · beam candidates at least beam live on. Greedy search is over when its only hypothesis ends: one will do.
        k = 1 if self.width == 1 else min(2 * self.width, w * vocab_size)
        if k == 1:  # the first of equals, which topk does not promise
            flat_index = token_log_probs[:, 0].argmax(dim=1, keepdim=True)
            log_probs = token_log_probs[:, 0].gather(1, flat_index) + self.log_probs
        else:
            totals = (token_log_probs + self.log_probs[:, :, None]).view(n, -1)
            log_probs, flat_index = totals.topk(k, dim=1)  # (B, k), best first
        parent, token = flat_index // vocab_size, flat_index % vocab_size  # hypothesis 0 … w - 1, and what extends it
        ends = token == self.eos
        if self.log is not None:
            self.log(self._step(log_probs, parent, token))
        # A hypothesis is finished only where its end is among the best `beam`, as if it still competed with the others.
        own = token_log_probs.reshape(n, -1).gather(1, flat_index)
        self._collect(*(x[:, : self.width] for x in (log_probs, parent, ends, own)))
        # The best `beam` that do not end: the stable sort puts those first, in their order. Where fewer are left (a
        # vocabulary smaller than k, a forced prefix), the rest are rows without a hypothesis, of log-probability -inf.
        live = ends.to(torch.uint8).argsort(dim=1, stable=True)[:, : self.width]  # (B, beam)
        parent, token = parent.gather(1, live), token.gather(1, live)
        self.log_probs = log_probs.masked_fill(ends, NEG_INF).gather(1, live)
        self.tokens = torch.cat([_of_parents(self.tokens, parent), token[:, :, None]], dim=2)  # (B, beam, t + 1)
        own = own.gather(1, live)[:, :, None]
        self.token_log_probs = torch.cat([_of_parents(self.token_log_probs, parent), own], dim=2)
        # Hypothesis p of sentence b is row b · w + p of what the decoder has just computed.
        return torch.arange(n, device=parent.device)[:, None] * w + parent

    def _step(self, total: Float[Tensor, "B k"], parent: Int[Tensor, "B k"], token: Int[Tensor, "B k"]) -> SearchStep:
        """Return the candidates of this step for the log; must be called before the step is taken."""
        ends, t = token == self.eos, self.tokens.shape[2]
        rank = torch.arange(token.shape[1], device=token.device)
        live_rank = (~ends).cumsum(dim=1) - 1
        row = live_rank.masked_fill(ends | (live_rank >= self.width) | (total == NEG_INF), -1)
        finished = ends & (rank < self.width) & (total > NEG_INF)
        log_prob = total - self.log_probs.gather(1, parent)
        tensors = (parent, token, log_prob, total, total / self.penalties[t + 1], row, finished)
        return SearchStep(self.sentence[~self.done], *(x[~self.done] for x in tensors))

    def newly_done(self) -> list[int]:
        """Return the indices of sentences that this step completed.

        A sentence also ends early when no live hypothesis can enter the n best any more: log-probabilities only fall,
        so no continuation can score above the present log-probability divided by the largest reachable penalty.
        """
        t = self.tokens.shape[2]
        worst_kept, live = self.worst_kept, self.log_probs[:, 0]  # -inf where fewer than n_best have finished
        beam_finished = (self.n_finished >= self.width) & (worst_kept >= live / self.penalties[t])
        largest_penalty = torch.maximum(self.penalties[min(t + 1, len(self.penalties) - 1)], self.penalties[self.limit])
        done = (self.limit <= t) | beam_finished | (worst_kept >= live / largest_penalty)
        new = done & ~self.done
        self.done |= done
        return new.nonzero()[:, 0].tolist()

    def hypotheses(self, i: int) -> list[Hypothesis]:
        """Return the n best of sentence i: finished ones first, then live ones."""
        penalty = float(self.penalties[self.tokens.shape[2]])
        live = zip(*(x[i].tolist() for x in (self.tokens, self.log_probs, self.token_log_probs)), strict=True)
        found = [Hypothesis(ids, log_prob / penalty, log_prob, False, own) for ids, log_prob, own in live]
        living = [hypothesis for hypothesis in found if hypothesis.log_prob > NEG_INF]
        return [*self.finished[int(self.sentence[i])], *living][: self.n_best]

    def select(self, active: Int[Tensor, " B2"]) -> None:
        """Keep only the active sentences."""
        names = ("limit", "forced", "sentence", "done", "n_finished", "worst_kept", "log_probs", "tokens")
        for name in (*names, "token_log_probs"):
            setattr(self, name, getattr(self, name)[active])

    def _token_log_probs(self, logits: Float[Tensor, "B w V"]) -> Float[Tensor, "B w V"]:
        """Return the log-probability of every token after every live hypothesis, -inf where it is not allowed."""
        t = self.tokens.shape[2]
        log_probs = logits.log_softmax(dim=-1)
        if t == 0:
            refuse_nan(log_probs[:, :, self.eos])
        log_probs[:, :, self.suppress_tokens] = NEG_INF
        if t < self.forced.shape[1]:
            # Under a forced token only the first hypothesis of the beam stays.
            token = self.forced[:, t]
            is_forced = token >= 0
            forced_log_probs = log_probs[:, 0].gather(1, token.clamp(min=0)[:, None])
            log_probs[is_forced] = NEG_INF
            log_probs[is_forced, 0, token[is_forced]] = forced_log_probs[is_forced, 0]
        return log_probs

    def _collect(
        self,
        log_probs: Float[Tensor, "B k"],
        parent: Int[Tensor, "B k"],
        ends: Bool[Tensor, "B k"],
        own: Float[Tensor, "B k"],
    ) -> None:
        """Add the candidates that end to the finished hypotheses, the n best first (older ones on ties).

        `own` are the log-probabilities of the tokens that the candidates add.
        """
        ends = ends & (log_probs > NEG_INF)
        if not bool(ends.any()):
            return
        self.n_finished += ends.sum(dim=1)
        scores = log_probs / self.penalties[self.tokens.shape[2] + 1]  # the end counts as a token of the length
        each = torch.cat([_of_parents(self.token_log_probs, parent), own[:, :, None]], dim=2)
        found = (_of_parents(self.tokens, parent), scores, log_probs, each)
        rows = ends.nonzero()[:, 0].tolist()
        for row, ids, score, log_prob, of_ids in zip(rows, *(x[ends].tolist() for x in found), strict=True):
            kept = self.finished[int(self.sentence[row])]
            kept.append(Hypothesis(ids, score, log_prob, True, of_ids))
            kept.sort(key=lambda hypothesis: -hypothesis.score)
            if len(kept) >= self.n_best:
                self.worst_kept[row] = kept[self.n_best - 1].score


def _of_parents(tokens: Shaped[Tensor, "B w t"], parent: Int[Tensor, "B k"]) -> Shaped[Tensor, "B k t"]:
    return tokens.gather(1, parent[:, :, None].expand(-1, -1, tokens.shape[2]))
