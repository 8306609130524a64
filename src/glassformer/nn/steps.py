"""Report the steps of a forward pass where they are computed; `explain` records them, and may replace them.

    x = step(self, "residual", x + branch, x, branch)

While nobody listens in this thread, which is so in training and prediction, `step` returns the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import get_ident
from typing import Any

from torch import Tensor, nn

Input = Tensor | str | None
Listener = Callable[[nn.Module, str, Tensor, tuple[Input, ...], dict[str, Any]], Tensor]
"""Called with the arguments of `step`; the tensor that it returns is used from there on."""
_listeners: dict[int, Listener | None] = {}
"""By the thread that listens."""
ID_PARTS = {
    "self_attention": "self",
    "self_residual": "self",
    "cross_attention": "cross",
    "cross_residual": "cross",
    "feed_forward": "ff",
    "feed_forward_residual": "ff",
    "layers": "",
    "ngrams": "embedding",
    "bigrams": "embedding",
    "segments": "embedding",
    "gate_proj": "w_gate",
    "up_proj": "w_in",
    "down_proj": "out",
    "o_proj": "out",
}
"""The names in ids of some modules."""


@lru_cache(maxsize=4096)
def id_of_path(path: str, names: tuple[tuple[str, str], ...] = ()) -> str:
    """Return a module's path as an id: "decoder.layers.1.cross_attention" gives "decoder.1.cross".

    Args:
        path: the path.
        names: ids of some modules by path, as given by the user; they also replace the path in ids of submodules.
    """
    for prefix, name in sorted(names, key=lambda pair: len(pair[0]), reverse=True):
        if path == prefix or path.startswith(f"{prefix}."):
            return ".".join(filter(None, (name, id_of_path(path[len(prefix) + 1 :]))))
    return ".".join(filter(None, (ID_PARTS.get(part, part) for part in path.split("."))))


def step(module: nn.Module, name: str, value: Tensor, *inputs: Input, **constants: Any) -> Tensor:
    """Report a step of a module's forward pass; return the tensor to use in its place.

    Args:
        module: the module.
        name: the name of the step, a key of `SITES` in explain/capture/sites.py.
        value: the tensor.
        inputs: what it was computed from, in the order of the operation's arguments: tensors, or names of steps of
            this call; None is left out.
        constants: constants of the operation, such as `eps`, where they are not None; `op`, its name where the step
            may have several; parameters of other modules by role, `weight` and `bias`.
    """
    listener = _listeners.get(get_ident()) if _listeners else None
    return value if listener is None else listener(module, name, value, inputs, constants)


def is_reporting() -> bool:
    """Return whether anybody listens in this thread: attention is then computed step by step."""
    return bool(_listeners) and _listeners.get(get_ident()) is not None


@contextmanager
def report_to(listener: Listener | None) -> Iterator[None]:
    """Report the steps that this thread computes within the block, or none of them."""
    thread = get_ident()
    before, _listeners[thread] = _listeners.get(thread), listener
    try:
        yield
    finally:
        _listeners[thread] = before
        if before is None:
            del _listeners[thread]
