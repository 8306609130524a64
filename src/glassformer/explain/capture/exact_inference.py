"""Run a model for an explanation: in evaluation mode, in full fp32 precision, and not compiled.

All forward passes of an explanation run this way, also those that decode or mask words, so that their numbers are
comparable.

Some of these settings belong to the model or the process, not to a thread. Overlapping blocks share them: the first
block sets them, the last restores them. The precision of products is held by each thread (`utils/device.py`).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.utils.device import matmul_precision

_lock = threading.Lock()
_shared: dict[Hashable, tuple[int, Callable[[], None]]] = {}
"""For each shared setting the number of open blocks and the function that restores it."""


@contextmanager
def exact_inference(model: nn.Module) -> Iterator[None]:
    """Disable dropout, reduced-precision matrix products and compiled code, which calls no hooks, within the block."""
    device = next((p.device.type for p in model.parameters()), "cpu")
    with ExitStack() as stack:
        stack.enter_context(_shared_setting(id(model), lambda: _evaluate(model)))
        if torch.amp.is_autocast_available(device):
            stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(matmul_precision("highest"))
        # Without this module nothing is compiled, and importing it takes seconds.
        if "torch._dynamo" in sys.modules:
            stack.enter_context(_shared_setting("stance", _eager))
        yield


@contextmanager
def exact_no_grad(model: nn.Module) -> Iterator[None]:
    """Enter `exact_inference` without gradients."""
    with exact_inference(model), torch.inference_mode():
        yield


def exact_forward(model: nn.Module, *args: Any, **kwargs: Any) -> Tensor:
    """Call the model in `exact_inference`; all calls of a model by an explanation are made here.

    The caller decides about gradients. Decoding, which calls the model itself, needs `exact_no_grad`.
    """
    with exact_inference(model):
        return model(*args, **kwargs)


@contextmanager
def _shared_setting(key: Hashable, begin: Callable[[], Callable[[], None]]) -> Iterator[None]:
    """Hold a shared setting within the block; `begin` makes it and returns the function that restores it."""
    with _lock:
        n, restore = _shared[key] if key in _shared else (0, begin())
        _shared[key] = n + 1, restore
    try:
        yield
    finally:
        with _lock:
            n, restore = _shared.pop(key)
            if n > 1:
                _shared[key] = n - 1, restore
            else:
                restore()


def _evaluate(model: nn.Module) -> Callable[[], None]:
    in_training = [module for module in model.modules() if module.training]
    if in_training:
        model.eval()

    def restore() -> None:
        for module in in_training:
            module.training = True

    return restore


def _eager() -> Callable[[], None]:
    stance = torch.compiler.set_stance("force_eager")
    stance.__enter__()
    return lambda: stance.__exit__(None, None, None)


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
