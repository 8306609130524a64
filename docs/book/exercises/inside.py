"""Leave-one-out: `erase_one(ids, predict, mask)`, what a prediction loses with each token."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from exercises.checker import Exercise


def solution(ids: Tensor, predict: Callable[[Tensor], Tensor], mask: Tensor) -> Tensor:
    """Return by how much the prediction falls, (T,), when each token of ids (T,) is replaced by `mask`."""
    erased = ids.repeat(len(ids), 1)
    erased.fill_diagonal_(int(mask))
    return predict(ids[None]) - predict(erased)


def with_the_sign_reversed(ids: Tensor, predict: Callable[[Tensor], Tensor], mask: Tensor) -> Tensor:
    """Return by how much the prediction rises."""
    return -solution(ids, predict, mask)


def kept_alone(ids: Tensor, predict: Callable[[Tensor], Tensor], mask: Tensor) -> Tensor:
    """Erase all tokens but one."""
    alone = torch.full((len(ids), len(ids)), int(mask))
    alone[range(len(ids)), range(len(ids))] = ids
    return predict(ids[None]) - predict(alone)


def without_what_it_was(ids: Tensor, predict: Callable[[Tensor], Tensor], mask: Tensor) -> Tensor:
    """Return the predictions without each token."""
    return predict(ids[None]) - solution(ids, predict, mask)


def more_and_more(ids: Tensor, predict: Callable[[Tensor], Tensor], mask: Tensor) -> Tensor:
    """Erase a token and all before it."""
    erased = ids.repeat(len(ids), 1).triu(diagonal=1) + torch.full((len(ids), len(ids)), int(mask)).tril()
    return predict(ids[None]) - predict(erased)


def deleted(ids: Tensor, predict: Callable[[Tensor], Tensor], mask: Tensor) -> Tensor:
    """Take the token out, which moves all after it."""
    rest = torch.stack([torch.cat([ids[:i], ids[i + 1 :]]) for i in range(len(ids))])
    return predict(ids[None]) - predict(rest)


def inputs(generator: torch.Generator) -> tuple[Tensor, Callable[[Tensor], Tensor], Tensor]:
    """Return ids, a small random model in which place and neighbours matter, and the mask's id."""
    length = int(torch.randint(3, 9, (), generator=generator))
    table = torch.randn(20, 6, generator=generator)
    places, output = torch.randn(10, 6, generator=generator), torch.randn(6, generator=generator)

    def predict(ids: Tensor) -> Tensor:
        x = (table[ids] + places[: ids.shape[1]]).tanh()
        return (x.mean(dim=1) + x[:, 1:].mul(x[:, :-1]).mean(dim=1)) @ output

    return torch.randint(5, 20, (length,), generator=generator), predict, torch.tensor(4)


EXERCISE = Exercise(
    reference=solution,
    inputs=inputs,
    mistakes={
        with_the_sign_reversed: "a token that supports the prediction has a positive score: before minus after",
        kept_alone: "this erases all tokens but one; erase one at a time",
        without_what_it_was: "return the difference to the prediction of the whole text",
        more_and_more: "each row erases one token; here the earlier ones are erased, too",
        deleted: "replace the token by `mask` instead of taking it out, which moves the others",
    },
)
