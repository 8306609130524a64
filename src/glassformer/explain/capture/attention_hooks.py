"""Record multi-head attention: projections by hooks, the steps between them by a tap."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from glassformer.explain.capture.module_hooks import ModuleHooks
from glassformer.explain.capture.recorder import CallRecorder, ModuleCall
from glassformer.nn.attention import MultiHeadAttention, Tap, fused_attention
from glassformer.nn.masks import Mask
from glassformer.nn.norms import RMSNorm
from glassformer.nn.positions import Rotation


def observed_factor(before: Tensor, after: Tensor, expected: float) -> float:
    """Return the factor between two tensors: `expected` where it is exact, else the quotient of one element."""
    row = before.detach().flatten()[: before.shape[-1]] if before.numel() else before
    if not bool(row.any()):
        row = before.detach().flatten()
    if not bool(row.any()):
        # All zeros: any factor fits.
        return expected
    index = row.abs().argmax()
    value, scaled = row[index], after.detach().flatten()[index]
    return expected if bool(value * expected == scaled) else float(scaled.double() / value.double())


class FusedContext:
    """A tap that replaces the context by that of the fused kernel for the same queries, keys and values."""

    def __init__(self, args: dict[str | int, Any]) -> None:
        self.mask: Mask | None = args.get("mask", args.get(2))
        self.tensors: dict[str, Tensor] = {}

    def __call__(self, site: str, tensor: Tensor) -> Tensor:
        self.tensors[site] = tensor
        if site != "context":
            return tensor
        q, k, v = (self.tensors[name] for name in "qkv")
        return fused_attention(q, k, v, self.mask, kernel=True)


class AttentionHooks:
    """Hooks of one attention.

    The last of split_heads, rms_norm and rotate that applies gives q and k; the others are steps of their own.
    """

    def __init__(self, hooks: ModuleHooks, module: MultiHeadAttention, name: str) -> None:
        self.hooks, self.tape, self.module, self.name = hooks, hooks.tape, module, name
        hooks.set_tap(module, self.start_call)
        for letter in "qkv":
            self._hook_projection(letter, getattr(module, f"{letter}_proj"))
        for letter in "qk":
            norm = getattr(module, f"{letter}_norm")
            if isinstance(norm, RMSNorm):
                self._hook_norm(letter, norm)
        hooks.on_input(module.o_proj, lambda x: self.recorder.record("concat", x).value)
        hooks.on_output(module.o_proj, lambda x: self.recorder.record("out", x, params=module.o_proj).value)

    def start_call(self, args: dict[str | int, Any]) -> Tap:
        """Start the record of a call; return the tap for its steps."""
        named = {("x", "memory", "mask")[key] if isinstance(key, int) else key: v for key, v in args.items()}
        call = ModuleCall(self.name, self.hooks.count_call(self.module))
        x, memory = named["x"], named.get("memory")
        self.mask: Mask | None = named.get("mask")
        self.rotation: Rotation | None = named.get("rotation")
        queries = self.tape.origin(x, call.id("input"))
        # A memory of unknown origin is taken for the source.
        keys = queries if memory is None else self.tape.origin(memory, call.id("memory"), "source")
        streams = {"token": queries.stream, "memory": keys.stream, "key": keys.stream}
        self.recorder = CallRecorder(self.tape, call, streams)
        self.recorder.inputs = {"x": queries.id, "memory": keys.id}
        return self.tap

    def _hook_projection(self, letter: str, linear: nn.Linear) -> None:
        def record(output: Tensor) -> Tensor:
            value = self.recorder.record(f"{letter}_proj", output, params=linear).value
            if letter != "v" and (self.rotation is not None or self._has_norm(letter)):
                self.recorder.record(f"{letter}_heads", self.module._split_heads(value))
            return value

        self.hooks.on_output(linear, record)

    def _has_norm(self, letter: str) -> bool:
        return isinstance(getattr(self.module, f"{letter}_norm"), RMSNorm)

    def _hook_norm(self, letter: str, norm: RMSNorm) -> None:
        def record(output: Tensor) -> Tensor:
            # Without a rotation it is q or k itself, which the tap records.
            return output if self.rotation is None else self._record_norm(letter, f"{letter}_norm", output)

        self.hooks.on_output(norm, record)

    def _record_norm(self, letter: str, key: str, value: Tensor) -> Tensor:
        norm: RMSNorm = getattr(self.module, f"{letter}_norm")
        return self.recorder.record(key, value, params={"weight": norm.weight}, attrs={"eps": norm.eps}).value

    def tap(self, step: str, value: Tensor) -> Tensor:
        """Record one step of `attention`; return the tensor to use from there."""
        match step:
            case "q" | "k" if self.rotation is not None:
                key = f"{step}:rotate_normed" if self._has_norm(step) else f"{step}:rotate"
                return self.recorder.record(key, value, attrs={"base": self.rotation.base}).value
            case "q" | "k" if self._has_norm(step):
                return self._record_norm(step, f"{step}:rms_norm", value)
            case "products":
                self.products: Tensor | None = self.recorder.record(step, value).value
                return self.products
            case "scores":
                assert self.products is not None
                factor = observed_factor(self.products, value, self.module.d_head**-0.5)
                # Free a large tensor that may not be kept.
                self.products = None
                return self.recorder.record(step, value, attrs={"factor": factor}).value
            case "mask":
                return self._record_mask(value)
            case _:
                return self.recorder.record(step, value).value

    def _record_mask(self, mask: Tensor) -> Tensor:
        """Record a mask (Q, K), or (1, K) where all queries have the same, with batch and head axes where they differ."""
        causal = self.mask is not None and self.mask.is_causal
        kind = "causal" if causal else "given" if mask.shape[-2] > 1 else "padding"
        step = self.recorder.record(f"mask:{kind}", mask, attrs={"kind": kind})
        if kind == "padding":
            self.tape.padding = step.id
        return step.value
