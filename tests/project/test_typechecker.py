"""The checker that all other tests run under: what does not fit an annotation is an error, wherever it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float, Int, TypeCheckError
from tests.helpers.for_each import for_each
from tests.helpers.typechecker import SOURCE, check, modules_with_shapes
from torch import Tensor

from glassformer.nn.attention import attention


@check
def product(x: Float[Tensor, "B D"], weight: Float[Tensor, "D E"], as_is: bool = False) -> Float[Tensor, "B E"]:
    return x if as_is else x @ weight


@check
def half(x: float) -> float:
    return x / 2 if x else "none"  # type: ignore[return-value]


@check
def upto(n: int) -> Iterator[int]:
    yield from range(n)


@check
@dataclass(frozen=True)
class Pair:
    ids: Int[Tensor, "S"]
    mask: Int[Tensor, "S"]


def test_what_fits_passes() -> None:
    assert product(torch.ones(2, 3), torch.ones(3, 4)).shape == (2, 4)
    assert product(torch.ones(2, 3), weight=torch.ones(3, 3), as_is=True).shape == (2, 3)
    assert half(3) == 1.5, "an int is a float"
    assert list(upto(2)) == [0, 1]
    assert Pair(torch.arange(3), torch.arange(3)).ids.shape == (3,)


@for_each(
    "call",
    [
        lambda: product(torch.ones(2, 3), torch.ones(2, 3)),  # D is 3, and then 2
        lambda: product(torch.ones(2, 5), torch.ones(5, 4), as_is=True),  # what returns is (B, D)
        lambda: product(torch.ones(2, 3).long(), torch.ones(3, 3).long()),
        lambda: product(torch.ones(2, 3), torch.ones(3, 3), as_is=1),
        lambda: half("3"),
        lambda: upto("3"),
        lambda: Pair(torch.arange(3), torch.arange(4)),
        lambda: attention(torch.ones(1, 2, 4), torch.ones(1, 3, 4), torch.ones(1, 2, 4)),
    ],
)
def test_what_does_not_fit_is_an_error(call: Callable[[], object]) -> None:
    for _ in range(2):
        with pytest.raises((BeartypeCallHintViolation, TypeCheckError)):
            call()


def test_modules_with_shapes_are_checked_and_no_package_is() -> None:
    """A package that imported jaxtyping would be checked with all its modules."""
    found = modules_with_shapes()
    assert {"glassformer.nn.attention", "glassformer.models.decoder_models", "glassformer.decode.search"} <= set(found)
    assert not any((SOURCE / name.replace(".", "/")).is_dir() for name in found)
