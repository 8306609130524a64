"""Check a reader's function: on random inputs against a reference, then against the mistakes that are often made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Function = Callable[..., Tensor]
N_INPUTS = 20
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Exercise:
    """An exercise.

    Attributes:
        reference: what the reader's function must equal.
        inputs: makes the arguments of one call from a random generator, the first of them a tensor; sizes differ from
            each other and between calls.
        mistakes: functions that are often written instead, each with a hint.
    """

    reference: Function
    inputs: Callable[[torch.Generator], tuple[Any, ...]]
    mistakes: dict[Function, str] = field(default_factory=dict)

    def check(self, answer: Function) -> bool:
        """Print what is right or wrong with an answer; returns whether it is right."""
        generator = torch.Generator().manual_seed(0)
        cases = sorted((self.inputs(generator) for _ in range(N_INPUTS)), key=lambda case: case[0].numel())
        for case in cases:
            try:
                got = answer(*copies(case))
            except NotImplementedError:
                print("not yet: the function raises NotImplementedError")
                return False
            except Exception as error:
                print(f"{type(error).__name__} for inputs of shape {shapes(case)}: {error}")
                return False
            expected = self.reference(*case)
            if problem := difference(got, expected):
                print(f"not yet: for inputs of shape {shapes(case)}, {problem}")
                if hint := self.hint(answer, cases):
                    print(f"hint: {hint}")
                return False
        print(f"correct, on {N_INPUTS} random inputs")
        return True

    def hint(self, answer: Function, cases: list[tuple[Any, ...]]) -> str:
        """Return the hint of the mistake whose results the answer has in every case; empty if there is none."""
        for mistake, hint in self.mistakes.items():
            if all(same(answer, mistake, case) for case in cases):
                return hint
        return ""


def same(one: Function, other: Function, case: tuple[Any, ...]) -> bool:
    """Return whether two functions give the same tensor, or both fail."""
    results = []
    for function in (one, other):
        try:
            results.append(function(*copies(case)))
        except Exception:
            results.append(None)
    got, expected = results
    if got is None or expected is None:
        return got is expected
    return not difference(got, expected)


def difference(got: object, expected: Tensor) -> str:
    """Return what distinguishes a result from the expected tensor; empty if they agree to `TOLERANCE`."""
    if not isinstance(got, Tensor):
        return f"a tensor was expected, and {type(got).__name__} came"
    if got.shape != expected.shape:
        return f"the result has shape {tuple(got.shape)} instead of {tuple(expected.shape)}"
    if got.dtype != expected.dtype:
        return f"the result has the type {got.dtype} instead of {expected.dtype}"
    apart = (got.double() - expected.double()).abs().nan_to_num(torch.inf)
    apart = apart.masked_fill((got == expected) | (got.isnan() & expected.isnan()), 0.0)
    if apart.max() > TOLERANCE:
        i = int(apart.argmax())
        return f"an entry is {entry(got.flatten()[i])} instead of {entry(expected.flatten()[i])}"
    return ""


def entry(x: Tensor) -> str:
    """Return a number to four digits, or True or False."""
    return str(x.item()) if x.dtype == torch.bool else f"{x.item():.4f}"


def shapes(case: tuple[Any, ...]) -> str:
    """Return the shapes of some tensors as text."""
    return ", ".join(str(tuple(x.shape)) for x in case if isinstance(x, Tensor))


def copies(case: tuple[Any, ...]) -> list[Any]:
    """Return the arguments of a call, with copies of tensors, which a function may change."""
    return [x.clone() if isinstance(x, Tensor) else x for x in case]
