"""The type checker of the tests: calls of our functions against their annotations, shapes included.

jaxtyping gives the axes of a call their sizes and beartype compares. A call whose arguments have the types, shapes and
dtypes of an earlier one of the same function is not compared again, which was most of the time.
"""

import dataclasses
import functools
import inspect
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
with_axes = jaxtyping.jaxtyped
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
    shaped = [path for path in sources if "from jaxtyping import" in (SOURCE / path).read_text("utf-8")]
    return [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in shaped]


def check(thing: Any) -> Any:
    """A function that compares what it is given and what it returns; of a dataclass, the shapes it is made of.

    Functions inside functions stay as they are: they are made again at each call, and so would be their checks.
    """
    if not isinstance(thing, type):
        return thing if "<locals>" in thing.__qualname__ else checked(thing)
    made = vars(thing).get("__init__") if dataclasses.is_dataclass(thing) else None
    if made and any(has_axes(resolved(hint, made)) for hint in made.__annotations__.values()):
        thing.__init__ = checked(made)
    return thing


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(function):
        return with_axes(function, typechecker=compare)  # what it yields is not looked at
    function.__annotations__ = {name: resolved(hint, function) for name, hint in function.__annotations__.items()}
    compared, passed = with_axes(function, typechecker=compare), set[Any]()

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        # While a graph is recorded, sizes are symbols, which are no int and have no hash.
        if torch.compiler.is_exporting() or (given := signature((args, tuple(kwargs.items())))) in passed:
            return function(*args, **kwargs)
        result = compared(*args, **kwargs)
        passed.add(given)
        return result

    return call


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
    shaped = isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray)
    return shaped or any(map(has_axes, typing.get_args(hint)))
