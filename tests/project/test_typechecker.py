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
def applied(to: Callable[[Float[Tensor, "N"]], Float[Tensor, "N"]], x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return to(x)


@check
@dataclass(frozen=True)
class Pair:
    ids: Int[Tensor, "S"]
    mask: Int[Tensor, "S"]


class Holder:
    @check
    def grown(self, x: Float[Tensor, "N"], by: int) -> Float[Tensor, "N+1"]:
        return torch.cat([x, x[:by]])


def test_what_fits_passes() -> None:
    assert product(torch.ones(2, 3), torch.ones(3, 4)).shape == (2, 4)
    assert product(torch.ones(2, 3), weight=torch.ones(3, 3), as_is=True).shape == (2, 3)
    assert half(3) == 1.5, "an int is a float"
    assert list(upto(2)) == [0, 1]
    assert applied(torch.neg, torch.ones(3)).shape == (3,)
    assert Holder().grown(torch.ones(3), 1).shape == (4,)
    assert Pair(torch.arange(3), torch.arange(3)).ids.shape == (3,)


def test_a_call_like_an_earlier_one_is_compared_by_what_it_returns() -> None:
    x, weight = torch.ones(2, 3), torch.ones(3, 3)
    for _ in range(2):
        assert product(x, weight).shape == (2, 3)
    assert half(3) == 1.5
    with pytest.raises(BeartypeCallHintViolation):
        half(0)
    for result in (torch.ones(3), torch.ones(3)):
        assert applied(lambda _, result=result: result, torch.ones(3)).shape == (3,)
    for _ in range(2):
        with pytest.raises((TypeCheckError, BeartypeCallHintViolation)):
            applied(lambda x: x[1:], torch.ones(3))
        with pytest.raises((TypeCheckError, BeartypeCallHintViolation)):
            product(x, weight.long())


@for_each(
    "call",
    [
        lambda: product(torch.ones(2, 3), torch.ones(2, 3)),  # D is 3, and then 2
        lambda: product(torch.ones(2, 3), torch.ones(3, 4), as_is=True),  # what returns is (B, D)
        lambda: product(torch.ones(2, 3).long(), torch.ones(3, 3).long()),
        lambda: product(torch.ones(2, 3), torch.ones(3, 3), as_is=1),
        lambda: half("3"),
        lambda: half(0),
        lambda: upto("3"),
        lambda: applied(lambda x: x[1:], torch.ones(3)),
        lambda: Pair(torch.arange(3), torch.arange(4)),
        lambda: Holder().grown(torch.ones(3), 2),
        lambda: attention(torch.ones(1, 2, 4), torch.ones(1, 3, 4), torch.ones(1, 2, 4)),
    ],
)
def test_what_does_not_fit_is_an_error(call: Callable[[], object]) -> None:
    with pytest.raises((BeartypeCallHintViolation, TypeCheckError)):
        call()


def test_axes_of_one_call_are_not_those_of_another() -> None:
    @check
    def twice(x: Float[Tensor, "N"]) -> Float[Tensor, "2"]:
        return torch.stack([shortened(x).sum(), x.sum()])

    @check
    def shortened(x: Float[Tensor, "N"]) -> Float[Tensor, "M"]:
        return x[1:]

    assert twice(torch.ones(4)).tolist() == [3, 4]


def test_modules_with_shapes_are_checked_and_no_package_is() -> None:
    """A package that imported jaxtyping would be checked with all its modules."""
    found = modules_with_shapes()
    assert {"glassformer.nn.attention", "glassformer.models.decoder_models", "glassformer.decode.search"} <= set(found)
    assert not any((SOURCE / name.replace(".", "/")).is_dir() for name in found)
    assert "glassformer.config.recipes" not in found
