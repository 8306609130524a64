"""Register forward hooks that see the calls of one thread only, and count the calls of each module.

A callback that returns a tensor replaces the one it received. No other module registers hooks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import get_ident
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from glassformer.explain.capture.recorder import CallRecorder
from glassformer.explain.capture.tape import Tape
from glassformer.nn.attention import Tap

Arguments = dict[str, Any]


@cache
def _parameters(kind: type[nn.Module]) -> tuple[list[str], str | None]:
    """Return the names of the positional parameters of `forward`, and of the one that takes the rest."""
    _, *parameters = inspect.signature(kind.forward).parameters.values()
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return positional, next((p.name for p in parameters if p.kind == p.VAR_POSITIONAL), None)


def named_arguments(module: nn.Module, args: tuple[Any, ...], kwargs: Arguments) -> Arguments:
    """Return the arguments of a call by name."""
    names, rest = _parameters(type(module))
    named = {**dict(zip(names, args, strict=False)), **kwargs}
    return named if rest is None else named | {rest: args[len(names) :]}


class ModuleHooks:
    """The hooks of one trace, which ignore calls from threads other than the one that created them."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.thread = get_ident()
        self._handles: list[RemovableHandle] = []
        self._calls: dict[int, int] = {}

    def on_call(self, module: nn.Module, callback: Callable[[Arguments], None]) -> None:
        """Call back with the arguments of each call, by the names that `forward` gives them."""
        self.on_raw_call(module, lambda args, kwargs: callback(named_arguments(module, args, kwargs)))

    def on_raw_call(self, module: nn.Module, callback: Callable[[tuple[Any, ...], Arguments], None]) -> None:
        """Call back with the arguments of each call, positional ones and others."""

        # *rest: while hooks are added and removed, another thread may call this hook without kwargs.
        def hook(_: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
            if get_ident() == self.thread:
                callback(args, rest[0])

        self._handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    def set_tap(self, module: nn.Module, make_tap: Callable[[Arguments], Tap]) -> None:
        """Pass each call of an attention the tap that `make_tap` makes of its arguments, after its present tap.

        The tap is an argument of the call, since threads may share a module.
        """

        def hook(_: nn.Module, args: tuple[Any, ...], *rest: Any) -> Any:
            if get_ident() != self.thread:
                return None
            tap, present = make_tap(named_arguments(module, args, rest[0])), rest[0].get("tap")
            return args, {**rest[0], "tap": tap if present is None else lambda site, x: tap(site, present(site, x))}

        self._handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    def on_input(self, module: nn.Module, callback: Callable[[Tensor], Tensor | None]) -> None:
        """Call back with the first positional argument of each call."""

        def hook(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
            used = callback(args[0]) if get_ident() == self.thread else None
            return None if used is None or used is args[0] else (used, *args[1:])

        self._handles.append(module.register_forward_pre_hook(hook))

    def on_output(self, module: nn.Module, callback: Callable[[Tensor], Tensor | None]) -> None:
        """Call back with the output of each call."""

        def hook(_: nn.Module, __: tuple[Any, ...], output: Tensor) -> Tensor | None:
            return callback(output) if get_ident() == self.thread else None

        self._handles.append(module.register_forward_hook(hook))

    def on_input_and_output(self, module: nn.Module, callback: Callable[[Tensor, Tensor], Tensor | None]) -> None:
        """Call back with the first argument of each call, positional or not, and the output."""

        def hook(_: nn.Module, args: tuple[Any, ...], *rest: Any) -> Tensor | None:
            if get_ident() != self.thread:
                return None
            kwargs, output = rest
            return callback(args[0] if args else next(iter(kwargs.values())), output)

        self._handles.append(module.register_forward_hook(hook, with_kwargs=True))

    def recorder(self, module: nn.Module, name: str) -> CallRecorder:
        """Count a call of a module; return its recorder."""
        n = self._calls[id(module)] = self._calls.get(id(module), 0) + 1
        return CallRecorder(self.tape, name, n)

    def remove(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()


@contextmanager
def replace_outputs(
    modules: Iterable[nn.Module], replace: Callable[[nn.Module, tuple[Any, ...], Tensor], Tensor | None]
) -> Iterator[None]:
    """Replace the outputs of modules within the block, in this thread; None keeps an output."""
    thread = get_ident()

    def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
        return replace(module, args, output) if get_ident() == thread else None

    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
