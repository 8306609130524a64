"""Greedy decoding: `greedy(logits, bos, eos, limit)`, for a model that sees only the last token."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checker import Exercise


def solution(logits: Tensor, bos: Tensor, eos: Tensor, limit: Tensor) -> Tensor:
    """Return the generated ids, (T,): up to and including `eos`, or `limit` of them; logits are (V, V)."""
    generated, last = [], bos
    while len(generated) < limit:
        last = logits[last].argmax()
        generated.append(last)
        if last == eos:
            break
    return torch.stack(generated)


def one_token(logits: Tensor, bos: Tensor, eos: Tensor, limit: Tensor) -> Tensor:
    """Stop when a token was generated, as one tutorial says."""
    return logits[bos].argmax()[None]


def never_ends(logits: Tensor, bos: Tensor, eos: Tensor, limit: Tensor) -> Tensor:
    """Continue after the end token."""
    generated, last = [], bos
    for _ in range(int(limit)):
        last = logits[last].argmax()
        generated.append(last)
    return torch.stack(generated)


def with_start(logits: Tensor, bos: Tensor, eos: Tensor, limit: Tensor) -> Tensor:
    """Return the start token, too."""
    return torch.cat([bos[None], solution(logits, bos, eos, limit)])


def without_end(logits: Tensor, bos: Tensor, eos: Tensor, limit: Tensor) -> Tensor:
    """Leave the end token out."""
    ids = solution(logits, bos, eos, limit)
    return ids[ids != eos]


def always_from_start(logits: Tensor, bos: Tensor, eos: Tensor, limit: Tensor) -> Tensor:
    """Predict each token from the start token."""
    return logits[bos].argmax().repeat(int(limit))


def least_likely(logits: Tensor, bos: Tensor, eos: Tensor, limit: Tensor) -> Tensor:
    """Take the least probable token."""
    return solution(-logits, bos, eos, limit)


def inputs(generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return random logits of a chain that reaches the end token in some cases and not in others."""
    n = int(torch.randint(5, 9, (), generator=generator))
    order, logits = torch.randperm(n, generator=generator), torch.randn(n, n, generator=generator)
    for last, following in zip(order.tolist(), order.roll(-1).tolist(), strict=True):
        logits[last, following] += 9.0
    end = int(torch.randint(2, n, (), generator=generator))
    return logits, order[0], order[end], torch.tensor(int(torch.randint(2, n + 3, (), generator=generator)))


EXERCISE = Exercise(
    reference=solution,
    inputs=inputs,
    mistakes={
        one_token: "generation stops at the end token, not at any token",
        never_ends: "stop as soon as the end token was generated",
        with_start: "the start token is given to the model; it is not generated",
        without_end: "keep the end token: it says that the text is complete and not cut",
        always_from_start: "each token is predicted from the one before it, not from the start token",
        least_likely: "take the most probable token, the largest logit",
    },
)
