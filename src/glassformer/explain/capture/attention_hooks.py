"""Record multi-head attention: projections by hooks, the steps between them by a tap."""

from __future__ import annotations

from torch import Tensor, nn

from glassformer.explain.capture.module_hooks import Arguments, ModuleHooks
from glassformer.nn.attention import MultiHeadAttention, Tap, fused_attention
from glassformer.nn.masks import Mask
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

    def __init__(self, args: Arguments) -> None:
        self.mask: Mask | None = args.get("mask")
        self.tensors: dict[str, Tensor] = {}

    def __call__(self, site: str, tensor: Tensor) -> Tensor:
        self.tensors[site] = tensor
        if site != "context":
            return tensor
        q, k, v = (self.tensors[name] for name in "qkv")
        return fused_attention(q, k, v, self.mask, kernel=True)


class AttentionHooks:
    """Hooks of one attention.

    With rotary positions, rotate gives q and k and split_heads is a step of its own; else split_heads gives them.
    """

    def __init__(self, hooks: ModuleHooks, module: MultiHeadAttention, name: str) -> None:
        self.hooks, self.module, self.name = hooks, module, name
        hooks.set_tap(module, self.start_call)
        for letter in "qkv":
            self._hook_projection(letter, getattr(module, f"{letter}_proj"))
        hooks.on_input(module.o_proj, lambda x: self.recorder.record("concat", x))
        hooks.on_output(module.o_proj, lambda x: self.recorder.record("out", x, params=module.o_proj))

    def start_call(self, args: Arguments) -> Tap:
        """Start the record of a call; return the tap for its steps."""
        self.mask: Mask | None = args.get("mask")
        self.rotation: Rotation | None = args.get("rotation")
        self.recorder = recorder = self.hooks.recorder(self.module, self.name)
        queries = recorder.take("x", args["x"], "input")
        if (memory := args.get("memory")) is None:
            keys = recorder.take("memory", args["x"], "input")
        else:  # one of unknown origin is taken for the source
            keys = recorder.take("memory", memory, "memory", "source")
        recorder.streams = {"token": queries, "memory": keys, "key": keys}
        return self.tap

    def _hook_projection(self, letter: str, linear: nn.Linear) -> None:
        def record(output: Tensor) -> Tensor:
            value = self.recorder.record(f"{letter}_proj", output, params=linear)
            if letter != "v" and self.rotation is not None:
                self.recorder.record(f"{letter}_heads", self.module._split_heads(value))
            return value

        self.hooks.on_output(linear, record)

    def tap(self, step: str, value: Tensor) -> Tensor:
        """Record one step of `attention`; return the tensor to use from there."""
        match step:
            case "q" | "k" if self.rotation is not None:
                return self.recorder.record(f"{step}:rotate", value, attrs={"base": self.rotation.base})
            case "products":
                self.products: Tensor | None = self.recorder.record(step, value)
                return self.products
            case "scores":
                assert self.products is not None
                factor = observed_factor(self.products, value, self.module.d_head**-0.5)
                # Free a large tensor that may not be kept.
                self.products = None
                return self.recorder.record(step, value, attrs={"factor": factor})
            case "mask":
                return self._record_mask(value)
            case _:
                return self.recorder.record(step, value)

    def _record_mask(self, mask: Tensor) -> Tensor:
        """Record a mask (Q, K), or (1, K) if all queries share it, with batch and head axes where they differ."""
        causal = self.mask is not None and self.mask.is_causal
        kind = "causal" if causal else "given" if mask.shape[-2] > 1 else "padding"
        if kind == "padding":
            self.hooks.tape.padding = self.recorder.id("mask")
        return self.recorder.record(f"mask:{kind}", mask, attrs={"kind": kind})
