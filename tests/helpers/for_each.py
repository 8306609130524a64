"""Tests of many small cases under one id."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any


def for_each(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test for each case, as `pytest.mark.parametrize` does, but within one test; all failures are reported.

    For tests without fixtures whose cases take milliseconds: a thousand ids cost more than they say. Several decorators
    multiply.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    values = [dict(zip(arguments, case if len(arguments) > 1 else (case,), strict=True)) for case in cases]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def run(**others: Any) -> None:
            failures = list[Exception]()
            for case in values:
                try:
                    test(**others, **case)
                except Exception as error:
                    error.add_note(f"with {case!r}"[:1000])
                    failures.append(error)
            if len(failures) == 1:
                raise failures[0]
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(values)} cases failed", failures)

        signature = inspect.signature(test)
        rest = [p for name, p in signature.parameters.items() if name not in arguments]
        run.__signature__ = signature.replace(parameters=rest)  # pyright: ignore[reportFunctionMemberAccess]
        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        return run

    return decorate
