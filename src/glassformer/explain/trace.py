"""Record every step of a forward pass with `trace`.

    with trace(model, only="decoder.*.cross.*") as t:
        model(src, tgt_in)
    t["decoder.1.cross.weights"]     # (H, T, S)

A tap receives the tensor of every step and returns the tensor to use instead (activation patching):

    with trace(model, tap=lambda id, x: x * 0 if id == "decoder.1.cross.out" else x) as t:
        model(src, tgt_in)

The model is not changed: hooks and evaluation mode end with the block. `capture/tape.py` defines the ids of the steps.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase

import torch
from torch import nn

from glassformer.errors import UsageError
from glassformer.explain.capture.exact_inference import exact_forward, exact_inference
from glassformer.explain.capture.hooks import replace_outputs
from glassformer.explain.capture.tape import Check, Step, Tape, UnknownRecord
from glassformer.nn.attention import Tap
from glassformer.nn.steps import is_reporting, report_to, step


class Trace(Mapping[str, Step]):
    """The records of a forward pass by id, in order of computation.

    It can be read while the block is still open.
    """

    def __init__(self, model: nn.Module, tape: Tape) -> None:
        self.model = model
        self._tape = tape
        self._checks: list[Check] | None = None

    def __getitem__(self, id: str) -> Step:
        if id in self._tape.steps:
            return self._tape.steps[id]
        if id in self._tape.computed:
            raise UnknownRecord(f"{id!r} was computed, but `only` leaves it out", "add it to `only`")
        if not self._tape.computed:
            raise UnknownRecord(
                f"the trace holds no step yet, so none called {id!r}", "call the model inside `with trace(model)`"
            )
        hint = nearest(id, [*self._tape.computed])
        raise UnknownRecord(f"the trace holds no step called {id!r} among its {len(self)}", hint)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tape.steps)

    def __len__(self) -> int:
        return len(self._tape.steps)

    def __contains__(self, id: object) -> bool:
        return id in self._tape.steps

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.values())) or "a trace without records"

    def find(self, pattern: str) -> list[Step]:
        """Return the records whose ids match a wildcard: `t.find("decoder.*.cross.weights")`."""
        return [record for id, record in self.items() if fnmatchcase(id, pattern)]

    @property
    def checks(self) -> list[Check]:
        """Return the cached `check()`; empty if the model was not called as a whole, or a tap replaced a step."""
        if self._checks is None:
            whole = self._tape.call is not None and self._tape.output is not None
            self._checks = [self.check()] if whole and not self.edited else []
        return self._checks

    @property
    def computed(self) -> list[str]:
        """Return the ids of all steps of the pass in order, also of those that `only` leaves out."""
        return list(self._tape.computed)

    @property
    def edited(self) -> list[str]:
        """Return the ids of the steps whose tensor the tap replaced, in order."""
        return list(self._tape.edited)

    def check(self) -> Check:
        """Call the model once more, with the same arguments and fused attention, and compare the outputs.

        Raises:
            UsageError: the model was not called as a whole in the block (or with a cache, which the first
                call has changed), did not return a tensor, or a tap replaced a step.
        """
        if self._tape.call is None or self._tape.output is None:
            raise UsageError("the traced model was not called as a whole", "call model(…) inside `with trace(model)`")
        if self.edited:
            raise UsageError(
                f"a tap replaced {self.edited[0]!r}, which the fused kernel cannot do", "check a trace without a tap"
            )
        args, kwargs = self._tape.call
        with report_to(None), torch.no_grad():
            fused = exact_forward(self.model, *args, **kwargs)
        value = float((fused - self._tape.output).abs().max()) if fused.numel() else 0.0
        unit = max(1e-4, 8 * torch.finfo(fused.dtype).eps)
        tolerance = unit * max(1.0, float(fused.abs().max()) if fused.numel() else 0.0)
        meaning = "The largest difference between the logits of attention step by step and of the fused kernel."
        return Check("explicit against fused attention", value, tolerance, value <= tolerance, meaning)


def nearest(id: str, known: Sequence[str]) -> str:
    """Return a hint with the most similar ids."""
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
    """Record all that `model` computes within the block, in this thread, in evaluation mode and full fp32.

    Args:
        model: a model of this package, or any module made of layers from `glassformer.nn`.
        only: wildcards of the ids to keep, "decoder.*.cross.*", or a predicate of an id; everything by default.
        names: ids for modules by path, to use instead of the path.
        tap: called with the id of every step of the forward pass, kept or not, and a copy of its tensor with the batch
            axis first; returns the tensor to record and use instead, of the same shape and type. Steps computed
            only for the record (`Site.editable` is False) are not passed. A mask is boolean and broadcasts to
            (B, H, Q, K). A cache keeps the keys and values from before the tap.

    Yields:
        The trace, a mapping from ids to records.

    Raises:
        UsageError: another trace is open in this thread; the tap returned no tensor of the same shape, type and device;
            or, at the end of the block, a wildcard matched none of the steps.
    """
    if is_reporting():
        raise UsageError("a trace is already open in this thread", "close it before opening another")
    # Without the wrapper of torch.compile.
    inner = getattr(model, "_orig_mod", model)
    modules = list(inner.named_modules(remove_duplicate=False))
    tape = Tape(modules, [only] if isinstance(only, str) else only, tap, names)
    linear = [module for _, module in modules if isinstance(module, nn.Linear)]
    with (
        report_to(tape.listen),
        replace_outputs(linear, lambda module, x, named, y: step(module, "", y, *x, *named.values())),
        replace_outputs([inner], tape.end_call),
        exact_inference(inner),
    ):
        yield Trace(inner, tape)
    if missed := tape.unmatched():
        hint = nearest(missed[0], [*tape.computed])
        raise UsageError(f"only={missed[0]!r} matches no step that was computed", hint)
