"""`trace`: watch a forward pass, and get every step of it as a record.

    with trace(model, only="decoder.*.cross.*") as t:
        model(src, tgt_in)
    t["decoder.1.cross.weights"]     # (H, T, S)

A tap sees every step on the way and says what is used in its place:

    with trace(model, tap=lambda id, x: x * 0 if id == "decoder.1.cross.out" else x) as t:
        model(src, tgt_in)

Nothing of the model is changed by it and nothing is left behind: hooks and evaluation mode end
with the block. What the steps are called is in `capture/wiring.py`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from glassformer.errors import UsageError
from glassformer.explain.capture.attention_wires import FusedContext
from glassformer.explain.capture.exactly import answer, exactly
from glassformer.explain.capture.hooks import Watch
from glassformer.explain.capture.records import Check, Record, UnknownRecord
from glassformer.explain.capture.tape import Tape
from glassformer.explain.capture.wiring import attach
from glassformer.nn.attention import MultiHeadAttention, Tap

_tracing: ContextVar[bool] = ContextVar("tracing", default=False)


class Trace(Mapping[str, Record]):
    """The records of a forward pass by id, in the order they were computed.

    It can be read while the block is still open: what has been computed is there.
    """

    def __init__(self, model: nn.Module, tape: Tape) -> None:
        self.model = model
        self._tape = tape
        self._checks: list[Check] | None = None

    def __getitem__(self, id: str) -> Record:
        if id in self._tape.notes:
            return self._tape.record(id)
        if id in self._tape.left_out:
            raise UnknownRecord(f"{id!r} was computed, but `only` leaves it out", "name it there, too")
        if not self._tape.notes and not self._tape.left_out:
            raise UnknownRecord(
                f"the trace holds no step yet, so none called {id!r}",
                "call the model inside `with trace(model)`",
            )
        hint = _nearest(id, [*self._tape.notes, *self._tape.left_out])
        raise UnknownRecord(f"the trace holds no step called {id!r} among its {len(self)}", hint)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tape.notes)

    def __len__(self) -> int:
        return len(self._tape.notes)

    def __contains__(self, id: object) -> bool:
        return id in self._tape.notes

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.values())) or "a trace without records"

    def find(self, pattern: str) -> list[Record]:
        """The records whose ids match a wildcard: `t.find("decoder.*.cross.weights")`."""
        return [record for id, record in self.items() if fnmatchcase(id, pattern)]

    @property
    def checks(self) -> list[Check]:
        """`check()`, computed once; empty when the model as a whole was not called, or a tap replaced a step."""
        if self._checks is None:
            whole = self._tape.call is not None and self._tape.answer is not None
            self._checks = [self.check()] if whole and not self.edited else []
        return self._checks

    @property
    def edited(self) -> list[str]:
        """The ids of the steps whose tensor the tap replaced by another one, in order."""
        return list(self._tape.edited)

    def check(self) -> Check:
        """Call the model once more, with the same arguments and fused attention, and compare the answers.

        Raises:
            UsageError: the model as a whole was not called in the block (or with a cache, which a second
                call would find changed), did not return a tensor, or a tap replaced a step.
        """
        if self._tape.call is None or self._tape.answer is None:
            raise UsageError(
                "the traced model was not called as a whole", "call model(…) inside `with trace(model)`"
            )
        if self.edited:
            raise UsageError(
                f"a tap replaced {self.edited[0]!r}, which the fused kernel knows nothing of",
                "check a trace without a tap",
            )
        args, kwargs = self._tape.call
        watch = Watch(self._tape)
        try:
            for module in self.model.modules():
                if isinstance(module, MultiHeadAttention):
                    watch.tap(module, FusedContext)
            with torch.no_grad():
                fused = answer(self.model, *args, **kwargs)
        finally:
            watch.remove()
        value = float((fused - self._tape.answer).abs().max()) if fused.numel() else 0.0
        unit = max(1e-4, 8 * torch.finfo(fused.dtype).eps)
        tolerance = unit * max(1.0, float(fused.abs().max()) if fused.numel() else 0.0)
        meaning = (
            "The largest difference between the logits of attention step by step and of the fused kernel."
        )
        return Check("explicit against fused attention", value, tolerance, value <= tolerance, meaning)

    @property
    def plot(self) -> Any:
        """Figures of these records: `t.plot.attention(layer=1)`."""
        from glassformer.explain.figures.trace_plots import TracePlots

        return TracePlots(self)


def _nearest(id: str, known: Sequence[str]) -> str:
    """A hint: what may have been meant."""
    near = difflib.get_close_matches(id, known, n=3, cutoff=0.5)
    return f"the nearest are {', '.join(near)}" if near else f"the first is {known[0]}"


@contextmanager
def trace(
    model: nn.Module,
    only: str | Sequence[str] | Callable[[str], bool] = "*",
    *,
    names: Mapping[str, str] | None = None,
    tap: Tap | None = None,
) -> Iterator[Trace]:
    """Record what `model` computes within the block, in this thread, in evaluation mode and full fp32.

    Args:
        model: one of the three models, or any module made of parts from `glassformer.nn`.
        only: wildcards of the ids to keep, "decoder.*.cross.*", or what says it of an id; everything when absent.
        names: ids for modules by path, where the path itself is not what you want to read.
        tap: called with the id of every step on the way of the forward pass, kept or not, and a copy of its tensor with
            the batch axis in front; returns the tensor that is recorded and used from there, of the same shape and
            type. Steps that are taken again beside the pass (`Site.edit` is empty) are not on the way. A mask comes as
            booleans that broadcast to (B, H, Q, K). Keys and values that a cache keeps are those from before the tap.

    Raises:
        UsageError: another trace is open in this thread; the tap returned no tensor of the same shape, type and device;
            or, at the end of the block, a wildcard matched no step of all that were computed.
    """
    if _tracing.get():
        raise UsageError("a trace is already open in this thread", "close it before opening another")
    inner = getattr(model, "_orig_mod", model)  # what torch.compile wrapped
    modules = list(inner.named_modules(remove_duplicate=False))
    tape = Tape(modules, [only] if isinstance(only, str) else only, tap)
    found = Trace(inner, tape)
    watch = Watch(tape)
    token = _tracing.set(True)
    try:
        attach(modules, watch, names)
        with exactly(inner):
            yield found
    finally:
        _tracing.reset(token)
        watch.remove()
    if missed := tape.unmatched():
        hint = _nearest(missed[0], [*tape.notes, *tape.left_out])
        raise UsageError(f"only={missed[0]!r} matches no step that was computed", hint)
