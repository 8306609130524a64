"""A model as it is to be looked at: in evaluation mode, in full fp32 precision, and not compiled.

Every pass of an explanation runs like this, also those that decode and those that ask again with words
erased: numbers that are set beside each other must have been computed alike.

Some of these settings belong to the model or the process, not to a thread. Blocks that overlap share
them: the first to begin sets them, the last to end restores them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

_lock = threading.Lock()
_shared: dict[Hashable, tuple[int, Callable[[], None]]] = {}
"""For each shared setting, how many blocks need it now, and how to restore it."""


@contextmanager
def exactly(model: nn.Module) -> Iterator[None]:
    """Within the block the model neither drops out, nor rounds products to fewer bits than fp32 has, nor
    runs compiled code, which calls no hooks."""
    device = next((p.device.type for p in model.parameters()), "cpu")
    with ExitStack() as stack:
        stack.enter_context(_while_needed(id(model), lambda: _evaluate(model)))
        if torch.amp.is_autocast_available(device):
            stack.enter_context(torch.autocast(device, enabled=False))
        if _rounds_products(device, torch.get_float32_matmul_precision()):
            stack.enter_context(_while_needed("precision", _full_precision))
        if "torch._dynamo" in sys.modules:  # else nothing can be compiled, and importing it takes seconds
            stack.enter_context(_while_needed("stance", _eager))
        yield


@contextmanager
def asking(model: nn.Module) -> Iterator[None]:
    """`exactly`, for answers alone: without gradients."""
    with exactly(model), torch.inference_mode():
        yield


def answer(model: nn.Module, *args: Any, **kwargs: Any) -> Tensor:
    """What the model says, computed `exactly`: the one place from which an explanation calls a model. Whether
    gradients are kept is the caller's choice; decoding, which calls a model itself, is to be inside of `asking`."""
    with exactly(model):
        return model(*args, **kwargs)


@contextmanager
def _while_needed(what: Hashable, begin: Callable[[], Callable[[], None]]) -> Iterator[None]:
    """`begin` makes a setting and returns what restores it."""
    with _lock:
        n, restore = _shared[what] if what in _shared else (0, begin())
        _shared[what] = n + 1, restore
    try:
        yield
    finally:
        with _lock:
            n, restore = _shared.pop(what)
            if n > 1:
                _shared[what] = n - 1, restore
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


@cache
def _rounds_products(device: str, setting: str) -> bool:
    """Whether products of fp32 matrices have fewer bits than fp32 under this setting, found by trying.

    "medium" allows a processor to round to bf16, but most have no instruction for it: there it only chooses
    the faster fp32 kernel, and leaving it alone keeps the very numbers that `predict` computes.
    """
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(128, 128, generator=generator) for _ in range(2))
    product = (a.to(device) @ b.to(device)).cpu().double()
    exact = a.double() @ b.double()
    return float((product - exact).abs().max() / exact.abs().max()) > 1e-5  # fp32 gives 1e-7, bf16 1e-3


def _full_precision() -> Callable[[], None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    return lambda: torch.set_float32_matmul_precision(before)


def _eager() -> Callable[[], None]:
    stance = torch.compiler.set_stance("force_eager")
    stance.__enter__()
    return lambda: stance.__exit__(None, None, None)
