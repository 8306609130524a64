"""Sample from an incremental decoder with temperature, top-k, top-p and min-p, for prompts of unequal length.

Each row has random numbers of its own, one for each position of its text, so the text does not depend on the rows that
share its batch. `jobs.py` forms the batches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.config import DecodeConfig
from glassformer.decode.incremental import ModelDecoder
from glassformer.decode.search import Hypothesis, active_rows, length_penalties, refuse_nan
from glassformer.text.long_text import window_start


def sample(
    decoder: ModelDecoder,
    prompts: Sequence[Sequence[int]],
    config: DecodeConfig,
    *,
    limits: Sequence[int],
    rows: Sequence[int],
    eos: int | None = None,
    suppress_tokens: Sequence[int] = (),
) -> list[Hypothesis]:
    """Continue each prompt with sampled tokens.

    Rows advance together from the end of the shortest prompt; within a longer prompt its own tokens are taken.

    Args:
        decoder: holds no tokens yet; a translator's holds one sentence per prompt.
        prompts: at least one token each (a translator's is BOS).
        config: `temperature`, `top_k`, `top_p`, `min_p`, `decode_seed` and `length_penalty` are used.
        limits: maximum new tokens after each prompt, EOS included.
        rows: row number of each prompt; equal numbers give equal random numbers.
        eos: token that ends a text, or None.
        suppress_tokens: tokens that are never sampled.

    Returns:
        The continuation of each prompt. `log_prob` is the model's own, before temperature and filters.

    Raises:
        DivergedError: the model's logits are NaN.
    """
    n, device = len(prompts), decoder.device
    lengths = [len(prompt) for prompt in prompts]
    ends = [length + limit for length, limit in zip(lengths, limits, strict=True)]
    padded = [[*prompt, *[0] * (max(ends) - len(prompt))] for prompt in prompts]
    tokens, first, last = (torch.tensor(x, dtype=torch.long, device=device) for x in (padded, lengths, ends))
    each, total = torch.zeros(tokens.shape, device=device), torch.zeros(n, device=device)
    ended, done = torch.zeros(2, n, dtype=torch.bool, device=device)
    # Random numbers are float64, which Apple's GPUs lack.
    u = torch.from_numpy(uniform_numbers(config.decode_seed, rows, max(ends)))
    u = u if device.type == "mps" else u.to(device)
    # The unfinished rows; how many tokens each has; of these the decoder holds start … end - 1.
    index, length, start, end = torch.arange(n, device=device), min(lengths), 0, 0
    while len(index):
        if start != (new_start := window_start(length, decoder.max_len)):
            decoder.reset()
            start = end = new_start
        logits = decoder.step(tokens[index, end:length])
        end = length
        drawn = sample_tokens(logits.to(u.device), config, u[index.to(u.device), end], suppress_tokens)
        token, log_prob = (x.to(device) for x in drawn)
        sampled = (first[index] <= length) & ~done  # elsewhere the prompt's own token is taken
        tokens[index, length] = torch.where(sampled, token, tokens[index, length])
        each[index, length] = torch.where(sampled, log_prob, 0.0)
        total[index] += each[index, length]
        length += 1
        if eos is not None:
            ended[index] |= sampled & (token == eos)
        done = ended[index] | (last[index] <= length)
        if (active := active_rows(done)) is not None:
            index, done = index[active], done[active]
            if len(index):
                decoder.reorder(active, active)
    penalties, results = length_penalties(max(limits), config.length_penalty), list[Hypothesis]()
    for i, finished in enumerate(ended.tolist()):
        ids = tokens[i, lengths[i] : ends[i]].tolist()
        ids = ids[: ids.index(eos)] if finished else ids
        own, whole = each[i, lengths[i] : lengths[i] + len(ids) + finished].tolist(), float(total[i])
        results.append(Hypothesis(ids, whole / penalties[len(ids) + finished], whole, finished, own))
    return results


def sample_tokens(
    logits: Float[Tensor, "R V"], config: DecodeConfig, u: Float[Tensor, " R"], suppress_tokens: Sequence[int] = ()
) -> tuple[Int[Tensor, " R"], Float[Tensor, " R"]]:
    """Sample a token for each row; return the tokens and their log-probabilities under the model.

    The token is the first, in the order of ids, at which the cumulative probability of the allowed ones exceeds u times
    their total. (In the order of probability, two near-equal tokens could trade places by rounding alone.)

    Args:
        logits: (R, V).
        config: `temperature` (0 is greedy), `top_k`, `top_p` and `min_p` are used.
        u: (R,) uniform in [0, 1), float64.
        suppress_tokens: tokens that are never sampled.
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
    """Return which tokens pass every filter; each filter sees the same probabilities p.

    (Chained filters, which renormalise in between, make the result depend on their order.) top_k: the k most probable.
    top_p: the fewest that hold this probability mass (Holtzman et al. 2020). min_p: at least this fraction of the
    largest probability. Of equal tokens the lower id comes first.
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
            passes &= ordered.cumsum(dim=-1) - ordered < config.top_p
            passes[:, 0] = True
        mask &= torch.zeros_like(mask).scatter(1, ids, passes)
    return mask


def uniform_numbers(seed: int, rows: Sequence[int], n: int) -> Float[np.ndarray, "R n"]:
    """Return n float64 numbers in [0, 1) for each row, one for each position of its text."""
    return np.stack([np.random.default_rng([seed, row]).random(n) for row in rows])
