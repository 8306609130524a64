"""Sampling from a decoder: temperature, top-k, top-p and min-p, with prompts of unequal length in one batch.

The random number behind a token is a hash of (seed, row, position) and not the next of a stream, so the text
of a row does not depend on which rows share its batch. Batching of prompts is in `generate.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.config import DecodeConfig
from glassformer.decode.hypothesis import Hypothesis, active_rows, length_penalties, refuse_nan
from glassformer.decode.incremental import IncrementalDecoder
from glassformer.errors import UsageError

BEGIN_WITH = "give at least one token to begin with, a line break for example"


def window_start(n_tokens: int, max_len: int) -> int:
    """First of the n_tokens written so far that the model still sees when it predicts the next one.

    Up to max_len that is the first of all. Beyond, the window jumps ahead by half of max_len at a time and is
    read anew: the model sees between half of max_len and max_len tokens, and all but one token in
    max_len / 2 cost one cached step. (Sliding by one would shift every position, and void the cache, at
    each token.) It depends on the number of tokens alone, so it is the same in every batch.
    """
    jump = max_len - max_len // 2
    return jump * -(-max(0, n_tokens - max_len) // jump)


def sample(
    decoder: IncrementalDecoder,
    prompts: Sequence[Sequence[int]],
    config: DecodeConfig,
    *,
    limits: Sequence[int],
    rows: Sequence[int],
    eos: int | None = None,
    suppress_tokens: Sequence[int] = (),
) -> list[Hypothesis]:
    """Continue each prompt by tokens drawn from the model.

    Rows advance together from the end of the shortest prompt; a longer prompt's own tokens are taken first.

    Args:
        decoder: holds nothing of the past; a translator's holds one sentence a prompt.
        prompts: at least one token each (a translator's is BOS).
        config: `temperature`, `top_k`, `top_p`, `min_p`, `decode_seed` and `length_penalty` are used.
        limits: most tokens to write after each prompt, EOS included.
        rows: the number of each row in the hash: equal numbers draw equal random numbers.
        eos: token that ends a text, if any does. banned: tokens never drawn.

    Returns:
        What was written after each prompt. `log_prob` is the model's own, before temperature and filters.

    Raises:
        UsageError: a setting out of range, or an empty prompt.
        DivergedError: the model's logits are not numbers.
    """
    check_sampling(config, limits)
    if not all(prompts):
        raise UsageError("a prompt is empty", BEGIN_WITH)
    if not prompts:
        return []
    written: dict[int, Hypothesis] = {}
    norms = length_penalties(max(limits), config.length_penalty)
    texts = _Texts(prompts, limits, decoder.device)
    number = torch.arange(len(prompts), device=decoder.device)  # place of each row in the caller's list
    # Numbers are drawn in float64, which Apple's GPUs lack.
    drawing = torch.device("cpu") if decoder.device.type == "mps" else decoder.device
    hashed = torch.tensor(rows, device=drawing)
    start, seen = 0, 0  # the decoder holds the tokens start … seen - 1
    while True:
        if start != (now := window_start(texts.length, decoder.max_len)):
            decoder.reset()
            start = seen = now
        logits = decoder.step(texts.tokens[:, seen : texts.length]).to(drawing)
        seen = texts.length
        token, log_prob = sample_tokens(
            logits, config, hashed_uniform(config.decode_seed, hashed, seen), suppress_tokens
        )
        for i in texts.append(token.to(decoder.device), log_prob.to(decoder.device), eos):
            ids, log_prob_sum, finished = texts.result(i)
            norm = norms[len(ids) + finished]
            written[int(number[i])] = Hypothesis(ids, log_prob_sum / norm, log_prob_sum, finished)
        staying = active_rows(texts.done)
        if staying is not None:
            if not len(staying):
                return [written[i] for i in range(len(prompts))]
            texts.keep(staying)
            number, hashed = number[staying], hashed[staying.to(drawing)]
            decoder.reorder(staying, staying)


class _Texts:
    """The rows in progress: their tokens, where their prompts end and where they must."""

    def __init__(self, prompts: Sequence[Sequence[int]], limits: Sequence[int], device: torch.device) -> None:
        lengths = [len(prompt) for prompt in prompts]
        ends = [length + limit for length, limit in zip(lengths, limits, strict=True)]
        padded = [[*prompt, *[0] * (max(ends) - len(prompt))] for prompt in prompts]
        self.tokens = torch.tensor(padded, dtype=torch.long, device=device)
        self.length = min(lengths)  # tokens each row has so far
        self.prompt_length = torch.tensor(lengths, device=device)
        self.end = torch.tensor(ends, device=device)
        self.log_prob = torch.zeros(len(prompts), device=device)
        self.done = torch.zeros(len(prompts), dtype=torch.bool, device=device)
        self.ended = self.done.clone()  # by EOS

    def append(self, token: Int[Tensor, " R"], log_prob: Float[Tensor, " R"], eos: int | None) -> list[int]:
        """One more token a row, drawn or the prompt's own; returns the rows that this completes."""
        drawn = (self.prompt_length <= self.length) & ~self.done
        self.tokens[:, self.length] = torch.where(drawn, token, self.tokens[:, self.length])
        self.log_prob += torch.where(drawn, log_prob, 0.0)
        self.length += 1
        if eos is not None:
            self.ended |= drawn & (token == eos)
        new = (self.ended | (self.end <= self.length)) & ~self.done
        self.done |= new
        return new.nonzero()[:, 0].tolist()

    def result(self, i: int) -> tuple[list[int], float, bool]:
        """Ids after the prompt, log-probability, whether EOS came; asked when row i is just complete."""
        finished = bool(self.ended[i])
        ids = self.tokens[i, int(self.prompt_length[i]) : self.length - finished].tolist()
        return ids, float(self.log_prob[i]), finished

    def keep(self, staying: Int[Tensor, " R2"]) -> None:
        """Drop every other row."""
        for name in ("tokens", "prompt_length", "end", "log_prob", "ended", "done"):
            setattr(self, name, getattr(self, name)[staying])


def sample_tokens(
    logits: Float[Tensor, "R V"], config: DecodeConfig, u: Float[Tensor, " R"], suppress_tokens: Sequence[int] = ()
) -> tuple[Int[Tensor, " R"], Float[Tensor, " R"]]:
    """A token for each row, and its log-probability under the model.

    The token is the first, in the order of ids, at which the summed probability of the allowed ones exceeds
    u times their total. (In the order of probability, two near-equal tokens could trade places by
    rounding alone.)

    Args:
        logits: (R, V). u: uniform in [0, 1), (R,), float64. banned: tokens that are never drawn.
    """
    log_probs = logits.log_softmax(dim=-1)
    refuse_nan(log_probs[:, 0])
    if suppress_tokens:
        logits = logits.index_fill(1, torch.tensor(suppress_tokens, device=logits.device), float("-inf"))
    if config.temperature == 0:
        token = logits.argmax(dim=-1)
    else:
        logits = logits.double()
        p = ((logits - logits.amax(dim=-1, keepdim=True)) / config.temperature).softmax(dim=-1)
        cumulative = p.masked_fill(~filter_mask(p, config), 0.0).cumsum(dim=-1)
        token = torch.searchsorted(cumulative, u[:, None] * cumulative[:, -1:], right=True)[:, 0]
    return token, log_probs.gather(1, token[:, None])[:, 0]


def filter_mask(p: Float[Tensor, "R V"], config: DecodeConfig) -> Bool[Tensor, "R V"]:
    """Tokens that pass every filter; each filter looks at the same probabilities p (R, V).

    (Chained filters, which renormalise in between, make the result depend on their order.)
    top_k: the k most probable. top_p: the fewest that hold this share (Holtzman et al. 2020). min_p: at least
    this share of the most probable one's probability. Of equal tokens the lower id goes first.
    """
    mask = p > 0
    if config.min_p > 0:
        mask &= p >= config.min_p * p.amax(dim=-1, keepdim=True)
    if 0 < config.top_k < p.shape[1] or config.top_p < 1:
        ordered, ids = p.sort(dim=-1, descending=True, stable=True)
        passes = torch.ones_like(mask)
        if config.top_k > 0:
            passes[:, config.top_k :] = False
        if config.top_p < 1:
            passes &= ordered.cumsum(dim=-1) - ordered < config.top_p  # held before this token
            passes[:, 0] = True
        mask &= torch.zeros_like(mask).scatter(1, ids, passes)
    return mask


def hashed_uniform(seed: int, rows: Int[Tensor, " R"], position: int) -> Float[Tensor, " R"]:
    """Numbers in [0, 1), float64, that are a hash of (seed, row, position) and nothing else."""
    h = _mix(torch.full_like(rows, _signed(seed)))
    h = _mix(h ^ _mix(rows + 1))
    h = _mix(h ^ _mix(torch.full_like(rows, -1 - position)))
    return _shift_right(h, 12).double() * 2.0**-52


def _mix(x: Int[Tensor, " R"]) -> Int[Tensor, " R"]:
    """SplitMix64 (Steele, Lea and Flood 2014): every bit of x moves about half the bits of the result."""
    x = x + _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shift_right(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift_right(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift_right(x, 31)


def _shift_right(x: Int[Tensor, " R"], n: int) -> Int[Tensor, " R"]:
    """Shift in zeros, where torch's >> repeats the sign."""
    return (x >> n) & ((1 << (64 - n)) - 1)


def _signed(x: int) -> int:
    """The 64-bit two's complement of x, as torch's int64 holds it."""
    return (x + 2**63) % 2**64 - 2**63


def check_sampling(config: DecodeConfig, limits: Sequence[int]) -> None:
    """Refuse settings that mean nothing.

    Raises:
        UsageError: names the setting, its range and what came.
    """
    for name, value, fits, expected in (
        ("temperature", config.temperature, 0 <= config.temperature < float("inf"), "0 or more"),
        ("top_k", config.top_k, config.top_k >= 0, "0 (all tokens) or more"),
        ("top_p", config.top_p, 0 < config.top_p <= 1, "above 0 and at most 1"),
        ("min_p", config.min_p, 0 <= config.min_p <= 1, "from 0 to 1"),
    ):
        if not fits:
            raise UsageError(f"{name} must be {expected}, not {value}")
    if limits and min(limits) < 1:
        what = f"there must be 1 new token or more to write, not {min(limits)}"
        raise UsageError(what, hint="raise --max-new-tokens")
