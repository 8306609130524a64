"""The type checker of the tests: every call of a function of ours against its annotations, shapes included.

jaxtyping gives the axes of a call their sizes and beartype compares. The two of them together, as jaxtyping joins
them, look at every argument twice, and at the axes of functions that have none, which was two thirds of the time
of the tests of decoding; here each function is wrapped once, and by no more than it needs. What has been compared
once is not compared again: a call whose arguments and result have the types, shapes and dtypes of an earlier one of
the same function has its outcome.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import threading
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import torch
from beartype import BeartypeConf, beartype

compare = beartype(conf=BeartypeConf(is_pep484_tower=True))
"""An int is welcome where a float is asked for (PEP 484)."""


together = jaxtyping.jaxtyped
axes = together("context")
"""While it is entered, axes of one name have one size."""


SOURCE = Path(__file__).parents[2] / "src"


def install() -> None:
    """Check the modules whose annotations have shapes. Must come before the package is first imported.

    The others are checked by pyright, which takes no time from the tests.
    """
    jaxtyping.install_import_hook(modules_with_shapes(), "tests.helpers.typechecker.compare")
    jaxtyping.jaxtyped = lambda typechecker: check  # what the hook writes above every function and class


def modules_with_shapes() -> list[str]:
    """The modules of `glassformer` that import jaxtyping, by name."""
    sources = [path.relative_to(SOURCE) for path in sorted((SOURCE / "glassformer").rglob("*.py"))]
    shaped = [path for path in sources if "from jaxtyping import" in (SOURCE / path).read_text(encoding="utf-8")]
    return [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in shaped]


def check(thing: Any) -> Any:
    """A function that compares what it is given and what it returns; of a dataclass, what it is made of."""
    if not isinstance(thing, type):
        return checked(thing)
    if dataclasses.is_dataclass(thing) and "__init__" in vars(thing):
        hints = {name: resolved(hint, thing.__init__) for name, hint in thing.__init__.__annotations__.items()}
        if any(map(has_axes, hints.values())):  # those of plain values check themselves, or pyright does
            thing.__init__ = checked(thing.__init__)
    return thing


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(function):
        return together(function, typechecker=compare)  # what it yields is not looked at
    hints = {name: resolved(hint, function) for name, hint in function.__annotations__.items()}
    copy = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__, copy.__module__, copy.__qualname__ = (
        function.__kwdefaults__,
        function.__module__,
        function.__qualname__,
    )
    copy.__annotations__ = hints
    compared = compare(copy)
    if not any(map(has_axes, hints.values())):

        @functools.wraps(function)
        def without_axes(*args: Any, **kwargs: Any) -> Any:
            # While a graph is recorded, sizes are symbols, which are no int.
            return (function if torch.compiler.is_exporting() else compared)(*args, **kwargs)

        return without_axes

    @functools.wraps(copy)
    def answered(*_args: Any, **_kwargs: Any) -> Any:
        return answer.value

    compared_with_answer, answer = compare(answered), threading.local()
    passed: dict[Any, set[Any]] = {}  # by signature of the arguments: those of the results

    @functools.wraps(function)
    def with_axes(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_exporting():
            return function(*args, **kwargs)
        given = signature((args, tuple(kwargs.items())))
        if given not in passed:
            with axes:
                result = compared(*args, **kwargs)
            passed[given] = {signature(result)}
            return result
        result = function(*args, **kwargs)
        if (returned := signature(result)) not in passed[given]:
            answer.value = result
            with axes:
                compared_with_answer(*args, **kwargs)
            passed[given].add(returned)
        return result

    return with_axes


def signature(value: Any) -> Any:
    """All of a value that the checks look at: types, and of tensors and arrays the shape and dtype.

    Strings stand for themselves, for a Literal. Of a long list the first elements count.
    """
    kind = type(value)
    if isinstance(value, torch.Tensor | np.ndarray):
        return kind, tuple(value.shape), value.dtype
    if kind is str:
        return value[:20]
    if kind in (list, tuple):
        return kind, len(value) > 0, *map(signature, value[:8])
    if kind is dict:
        return kind, *map(signature, [*value.items()][:8])
    return kind


def resolved(hint: Any, function: Callable[..., Any]) -> Any:
    """The type that an annotation names; Any where nothing has that name, as it may be a class still in the making."""
    try:
        named = types.SimpleNamespace(__annotations__={"hint": hint})
        return typing.get_type_hints(named, function.__globals__, include_extras=True)["hint"]
    except Exception:
        return Any


def has_axes(hint: Any) -> bool:
    """Whether a tensor's shape stands anywhere in a type."""
    if isinstance(hint, list):  # the parameters of a Callable
        return any(map(has_axes, hint))
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return any(map(has_axes, typing.get_args(hint)))
