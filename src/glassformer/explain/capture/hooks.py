"""Forward hooks that see the calls of one thread only, and ids for a part's first, second, … call.

What sees a tensor may answer with another one, which is used from there. No other file puts a hook on a module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from glassformer.explain.capture.tape import Tape
from glassformer.nn.attention import Tap


class Watch:
    """The hooks of one trace. They call back in the thread that made them, and keep silent in others."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.thread = get_ident()
        self._handles: list[RemovableHandle] = []
        self._calls: dict[int, int] = {}

    def before(self, module: nn.Module, see: Callable[[dict[str | int, Any]], None]) -> None:
        """`see` gets the arguments of each call, by position (0, 1, …) or name, as they were given."""

        # While hooks come and go, another thread may call one without its kwargs: *rest.
        def hook(_: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
            if get_ident() == self.thread:
                see({**dict(enumerate(args)), **rest[0]})

        self._handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    def tap(self, module: nn.Module, begin: Callable[[dict[str | int, Any]], Tap]) -> None:
        """Each call of an attention gets the tap that `begin` makes of its arguments, behind one it has already.
        It gets it as an argument, since threads that share a module do not share a call."""

        def hook(_: nn.Module, args: tuple[Any, ...], *rest: Any) -> Any:
            if get_ident() != self.thread:
                return None
            see, own = begin({**dict(enumerate(args)), **rest[0]}), rest[0].get("tap")
            return args, {**rest[0], "tap": see if own is None else lambda site, x: see(site, own(site, x))}

        self._handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    def given(self, module: nn.Module, see: Callable[[Tensor], Tensor | None]) -> None:
        """`see` gets the first argument of each call, for parts of parts, which ours call by position."""

        def hook(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
            used = see(args[0]) if get_ident() == self.thread else None
            return None if used is None or used is args[0] else (used, *args[1:])

        self._handles.append(module.register_forward_pre_hook(hook))

    def after(self, module: nn.Module, see: Callable[[Tensor], Tensor | None]) -> None:
        """`see` gets what each call returned."""

        def hook(_: nn.Module, __: tuple[Any, ...], output: Tensor) -> Tensor | None:
            return see(output) if get_ident() == self.thread else None

        self._handles.append(module.register_forward_hook(hook))

    def around(self, module: nn.Module, see: Callable[[Tensor, Tensor], Tensor | None]) -> None:
        """`see` gets the first argument of each call, by position or name, and what it returned."""

        def hook(_: nn.Module, args: tuple[Any, ...], *rest: Any) -> Tensor | None:
            if get_ident() != self.thread:
                return None
            kwargs, output = rest
            return see(args[0] if args else next(iter(kwargs.values())), output)

        self._handles.append(module.register_forward_hook(hook, with_kwargs=True))

    def count(self, module: nn.Module) -> int:
        """1 for the first call of a part, 2 for the second, …"""
        n = self._calls[id(module)] = self._calls.get(id(module), 0) + 1
        return n

    def remove(self) -> None:
        """Take every hook off again."""
        for handle in self._handles:
            handle.remove()


@contextmanager
def instead(
    modules: Iterable[nn.Module], give: Callable[[nn.Module, tuple[Any, ...], Tensor], Tensor | None]
) -> Iterator[None]:
    """Within the block and in this thread, these modules return what `give` makes of their arguments and of what they
    would have returned; None leaves that as it is."""
    thread = get_ident()

    def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
        return give(module, args, output) if get_ident() == thread else None

    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
