"""What is said of an object that never changes is worked out once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

Of = TypeVar("Of")
Result = TypeVar("Result")


def weak_cache(function: Callable[[Of], Result]) -> Callable[[Of], Result]:
    """The function, its results remembered for each object for as long as that object lives."""
    known: WeakKeyDictionary[Of, Result] = WeakKeyDictionary()

    @wraps(function)
    def remembered(of: Of) -> Result:
        if of not in known:
            known[of] = function(of)
        return known[of]

    return remembered
