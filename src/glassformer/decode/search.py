"""Beam search over a decoder, for many sentences at once; with a beam of one it is greedy decoding.

What is searched, precisely: at each step the `beam_size` best unfinished hypotheses of a sentence are
extended by every token, and those extensions are ranked by log-probability. An extension by EOS among the
best `beam_size` is a finished hypothesis; the best others live on. A sentence is done at its length limit,
or when `beam_size` hypotheses have finished and no live one, as it stands, scores above the n best of them.
Batching by length is in `translate.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from glassformer.config import DecodeConfig
from glassformer.decode.hypothesis import Hypothesis, active_rows, length_penalties, refuse_nan
from glassformer.decode.incremental import IncrementalDecoder
from glassformer.decode.search_log import SearchLog, SearchStep
from glassformer.errors import UsageError

NEG_INF = float("-inf")
"""Score of a place in the beam that no hypothesis fills."""
BLOCK = 32
"""Tokens of which only the best is looked at first: a maximum of neighbours costs a tenth of sorting them."""


def beam_search(
    decoder: IncrementalDecoder,
    limits: Sequence[int],
    config: DecodeConfig,
    *,
    bos: int,
    eos: int,
    pad: int,
    prefixes: Sequence[Sequence[int]] | None = None,
    log: SearchLog | None = None,
) -> list[list[Hypothesis]]:
    """The `n_best` best hypotheses of each sentence, best first.

    Hypotheses that ended with EOS come before those that the limit cut, whatever their scores: a loop
    of likely words scores well for ever. Cut ones only fill the places that finished ones leave.

    Args:
        decoder: holds one row a sentence and nothing of the past.
        limits: most tokens of each sentence, a forced prefix and the EOS included.
        config: `beam_size`, `length_penalty` and `n_best` are used.
        bos: what every row begins with. eos: what ends a hypothesis. pad: never written, nor is bos.
        prefixes: tokens each hypothesis must begin with, one list a sentence (it may be empty).
        log: told of every step.

    Raises:
        UsageError: a setting that cannot be searched with.
        DivergedError: the model's logits are not numbers.
    """
    _check(config, limits, decoder.max_len)
    if not limits:
        return []
    forced = _forced_tokens(prefixes, len(limits), {bos, eos, pad}, decoder.device)
    beam = _Beam(config, torch.tensor(limits, device=decoder.device), forced, eos, sorted({bos, pad}), log)
    results: list[list[Hypothesis]] = [[] for _ in limits]
    newest = torch.full((len(limits), 1), bos, device=decoder.device)
    while True:
        # Where in the decoder each hypothesis came from, (B, beam).
        rows = beam.extend(decoder.step(newest))
        for i in beam.newly_done():
            results[int(beam.sentence[i])] = beam.hypotheses(i)
        staying = active_rows(beam.done)
        if staying is not None:
            if not len(staying):
                return results
            rows = rows[staying]
            beam.keep(staying)
        rows = rows.flatten()
        if staying is not None or not torch.equal(rows, torch.arange(len(newest), device=rows.device)):
            decoder.reorder(rows, staying)  # else every row extends itself, and nothing has to be copied
        newest = beam.tokens[:, :, -1].reshape(-1, 1)


class _Beam:
    """The hypotheses of B sentences after t steps: the live ones, and the n best finished ones.

    In `forced`, the forced prefixes, -1 is where the choice is free; the rest is as `beam_search` has it.
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
        self.norms = torch.tensor(length_penalties(longest, config.length_penalty), device=device)
        self.sentence = torch.arange(n, device=device)  # number of each sentence in the caller's list
        self.done = torch.zeros(n, dtype=torch.bool, device=device)
        self.n_finished = torch.zeros(n, dtype=torch.long, device=device)
        # Live, sorted by log-probability: all that differs from a full beam at the start is its width.
        self.log_probs = torch.zeros(n, 1, device=device)
        self.tokens = torch.zeros(n, 1, 0, dtype=torch.long, device=device)
        # Finished, sorted by score.
        self.best_scores = torch.full((n, self.n_best), NEG_INF, device=device)
        self.best_log_probs = self.best_scores.clone()
        self.best_tokens = torch.full((n, self.n_best, longest), eos, device=device)

    def extend(self, logits: Float[Tensor, "R V"]) -> Int[Tensor, "B beam"]:
        """Take one step; the row of `logits` that each live hypothesis extends."""
        n, old_width = self.log_probs.shape
        vocab_size = logits.shape[1]
        said = self._log_probs_of_tokens(logits.view(n, old_width, vocab_size))
        # At most one extension of each hypothesis ends it, so 2·beam candidates leave beam to live on.
        # The greedy search is over when its only hypothesis ends, so it needs only the best.
        wanted = 1 if self.width == 1 else 2 * self.width
        log_probs, place = _best(said, self.log_probs, wanted)  # (B, wanted), sorted
        parent, token = place // vocab_size, place % vocab_size
        ends = token == self.eos
        if self.log is not None:
            self.log(self._step(log_probs, parent, token))
        self._collect(log_probs[:, : self.width], parent[:, : self.width], ends[:, : self.width])
        # Those that do not end, in rank.
        alive = ends.to(torch.uint8).argsort(dim=1, stable=True)[:, : self.width]
        parent, token = parent.gather(1, alive), token.gather(1, alive)
        self.log_probs = log_probs.masked_fill(ends, NEG_INF).gather(1, alive)
        self.tokens = torch.cat([_of_parents(self.tokens, parent), token[:, :, None]], dim=2)
        return torch.arange(n, device=parent.device)[:, None] * old_width + parent

    def _step(self, total: Float[Tensor, "B k"], parent: Int[Tensor, "B k"], token: Int[Tensor, "B k"]) -> SearchStep:
        """The candidates of this step, for the log; to be called before the step is taken."""
        ends, t = token == self.eos, self.tokens.shape[2]
        rank = torch.arange(token.shape[1], device=token.device)
        place = (~ends).cumsum(dim=1) - 1  # among those that do not end
        row = place.masked_fill(ends | (place >= self.width) | (total == NEG_INF), -1)
        finished = ends & (rank < self.width) & (total > NEG_INF)
        log_prob = total - self.log_probs.gather(1, parent)
        tensors = (parent, token, log_prob, total, total / self.norms[t + 1], row, finished)
        return SearchStep(self.sentence[~self.done], *(x[~self.done] for x in tensors))

    def newly_done(self) -> list[int]:
        """Sentences whose answer can no longer change, each told once.

        Besides the definition's ends (above) there is one that only saves time: no live hypothesis can
        enter the n best any more. A log-probability only falls, so no continuation can score above the
        log-probability there is, divided by the largest norm that can still be reached.
        """
        t = self.tokens.shape[2]
        to_beat, live = self.best_scores[:, -1], self.log_probs[:, 0]
        enough = (self.n_finished >= self.width) & (to_beat >= live / self.norms[t])
        reach = torch.maximum(self.norms[min(t + 1, len(self.norms) - 1)], self.norms[self.limit])
        done = (self.limit <= t) | enough | (to_beat >= live / reach)
        new = done & ~self.done
        self.done |= done
        return new.nonzero()[:, 0].tolist()

    def hypotheses(self, i: int) -> list[Hypothesis]:
        """The n best of sentence i: finished ones, then live ones if places are left."""
        best = (x[i].tolist() for x in (self.best_tokens, self.best_scores, self.best_log_probs))
        norm = float(self.norms[self.tokens.shape[2]])
        found = [
            Hypothesis(tokens[: tokens.index(self.eos)], score, log_prob, True)
            for tokens, score, log_prob in zip(*best, strict=True)
            if score > NEG_INF
        ] + [
            Hypothesis(tokens, log_prob / norm, log_prob, False)
            for tokens, log_prob in zip(self.tokens[i].tolist(), self.log_probs[i].tolist(), strict=True)
            if log_prob > NEG_INF
        ]
        return found[: self.n_best]

    def keep(self, staying: Int[Tensor, " B2"]) -> None:
        """Drop every other sentence."""
        for name in (
            "limit",
            "forced",
            "sentence",
            "done",
            "n_finished",
            "log_probs",
            "tokens",
            "best_scores",
            "best_log_probs",
            "best_tokens",
        ):
            setattr(self, name, getattr(self, name)[staying])

    def _log_probs_of_tokens(self, logits: Float[Tensor, "B w V"]) -> Float[Tensor, "B w V"]:
        """Log-probability of every token after every live hypothesis; what may not be written is dead."""
        t = self.tokens.shape[2]
        said = logits.log_softmax(dim=-1)
        if t == 0:
            refuse_nan(said[:, :, self.eos])
        said[:, :, self.suppress_tokens] = NEG_INF
        if t < self.forced.shape[1]:
            # Under a forced token the beam is one hypothesis, its first; the other places are dead.
            token = self.forced[:, t]
            bound = token >= 0
            only = said[:, 0].gather(1, token.clamp(min=0)[:, None])
            said[bound] = NEG_INF
            said[bound, 0, token[bound]] = only[bound, 0]
        return said

    def _collect(self, log_probs: Float[Tensor, "B k"], parent: Int[Tensor, "B k"], ends: Bool[Tensor, "B k"]) -> None:
        """Put the candidates that end among the finished, and keep the n best (older ones first on ties)."""
        ends = ends & (log_probs > NEG_INF)
        if not bool(ends.any()):
            return
        self.n_finished += ends.sum(dim=1)
        log_probs = log_probs.masked_fill(~ends, NEG_INF)
        scores = torch.cat([self.best_scores, log_probs / self.norms[self.tokens.shape[2] + 1]], dim=1)
        room = self.best_tokens.shape[2] - self.tokens.shape[2]
        ended = F.pad(_of_parents(self.tokens, parent), (0, room), value=self.eos)  # EOS to the end
        scores, order = scores.sort(dim=1, descending=True, stable=True)
        order = order[:, : self.n_best]
        self.best_scores = scores[:, : self.n_best].contiguous()
        self.best_log_probs = torch.cat([self.best_log_probs, log_probs], dim=1).gather(1, order)
        self.best_tokens = _of_parents(torch.cat([self.best_tokens, ended], dim=1), order)


def _of_parents(tokens: Int[Tensor, "B w t"], parent: Int[Tensor, "B k"]) -> Int[Tensor, "B k t"]:
    return tokens.gather(1, parent[:, :, None].expand(-1, -1, tokens.shape[2]))


def _best(
    said: Float[Tensor, "B w V"], log_probs: Float[Tensor, "B w"], k: int
) -> tuple[Float[Tensor, "B k"], Int[Tensor, "B k"]]:
    """The k best extensions of each sentence: what is said of a token, and of the hypothesis before it, added.

    Sorted, as totals and places in (w · V), filled up with dead places where there are fewer than k.
    """
    if k == 1:
        place = said[:, 0].argmax(dim=1, keepdim=True)  # the first of equals, which topk does not promise
        return said[:, 0].gather(1, place) + log_probs, place
    n, width, vocab_size = said.shape
    n_blocks = vocab_size // BLOCK
    if width * n_blocks < k:
        totals = (said + log_probs[:, :, None]).view(n, -1)
        place = torch.arange(width * vocab_size, device=said.device).expand(n, -1)
    else:
        # The k best tokens lie in the k blocks whose maxima are best, or behind the last whole block.
        whole = said[:, :, : n_blocks * BLOCK].unflatten(2, (n_blocks, BLOCK))
        maxima = (whole.amax(dim=3) + log_probs[:, :, None]).view(n, -1)
        block = maxima.topk(k, dim=1, sorted=False).indices
        first = block // n_blocks * vocab_size + block % n_blocks * BLOCK
        within = torch.arange(BLOCK, device=said.device)
        place = (first[:, :, None] + within).view(n, -1)
        rest = torch.arange(n_blocks * BLOCK, vocab_size, device=said.device)
        rests = (torch.arange(width, device=said.device)[:, None] * vocab_size + rest).view(1, -1)
        place = torch.cat([place, rests.expand(n, -1)], dim=1)
        totals = said.view(n, -1).gather(1, place) + log_probs.gather(1, place // vocab_size)
    values, among = totals.topk(min(k, totals.shape[1]), dim=1)
    place = place.gather(1, among)
    if missing := k - values.shape[1]:
        return F.pad(values, (0, missing), value=NEG_INF), F.pad(place, (0, missing))
    return values, place


def _forced_tokens(
    prefixes: Sequence[Sequence[int]] | None, n: int, special: set[int], device: torch.device
) -> Int[Tensor, "n P"]:
    """Prefixes as one tensor, -1 behind their ends."""
    prefixes = [[]] * n if prefixes is None else prefixes
    if len(prefixes) != n:
        raise UsageError(f"{n} sentences need {n} prefixes (each may be empty), not {len(prefixes)}")
    for number, prefix in enumerate(prefixes):
        if special.intersection(prefix):
            hint = "a prefix is ordinary tokens: the search itself begins and ends every hypothesis"
            raise UsageError(f"prefix {number} holds a BOS, EOS or padding id", hint)
    longest = max((len(prefix) for prefix in prefixes), default=0)
    rows = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes]
    return torch.tensor(rows, dtype=torch.long, device=device).view(n, longest)


def _check(config: DecodeConfig, limits: Sequence[int], max_len: int) -> None:
    if config.beam_size < 1:
        raise UsageError(f"beam_size must be 1 or more, not {config.beam_size}")
    if not 1 <= config.n_best <= config.beam_size:
        hint = f"a beam keeps only so many hypotheses: raise --beam-size to {config.n_best} or more"
        message = f"n_best must be from 1 to the beam size ({config.beam_size}), not {config.n_best}"
        raise UsageError(message, hint)
    if wrong := [limit for limit in limits if not 1 <= limit <= max_len]:
        raise UsageError(f"a length limit must be from 1 to the model's {max_len} tokens, not {wrong[0]}")
