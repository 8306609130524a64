"""Cache a function's results for as long as its argument, an object that never changes, is alive."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

Key = TypeVar("Key")
Result = TypeVar("Result")


def weak_cache(function: Callable[[Key], Result]) -> Callable[[Key], Result]:
    """Return the function with its results cached by weak references to its argument."""
    results: WeakKeyDictionary[Key, Result] = WeakKeyDictionary()

    @wraps(function)
    def cached(key: Key) -> Result:
        if key not in results:
            results[key] = function(key)
        return results[key]

    return cached
