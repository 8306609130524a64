"""Call back with the outputs of modules, as one thread calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

from torch import Tensor, nn


@contextmanager
def after_calls(
    modules: Iterable[nn.Module], replace: Callable[[nn.Module, tuple[Any, ...], dict[str, Any], Tensor], Tensor | None]
) -> Iterator[None]:
    """Call back with the arguments and the output of each call of modules; None keeps the output."""
    thread = get_ident()

    # *args: while hooks are added and removed, another thread may call this one without the arguments by name.
    def hook(*args: Any) -> Tensor | None:
        return replace(*args) if get_ident() == thread else None

    handles = [module.register_forward_hook(hook, with_kwargs=True) for module in dict.fromkeys(modules)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
