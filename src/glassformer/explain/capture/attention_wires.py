"""What multi-head attention tells the tape: projections by hooks, the steps between them by a tap."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from glassformer.explain.capture.hooks import Watch
from glassformer.explain.capture.part import Call, Part
from glassformer.nn.attention import MultiHeadAttention, Tap, fused_attention
from glassformer.nn.masks import Mask
from glassformer.nn.norms import RMSNorm
from glassformer.nn.positions import Rotation


def observed_factor(before: Tensor, after: Tensor, usual: float) -> float:
    """What one number of a tensor was multiplied by: `usual` where that gives it to the bit, else their quotient."""
    row = before.detach().flatten()[: before.shape[-1]] if before.numel() else before
    if not bool(row.any()):
        row = before.detach().flatten()
    if not bool(row.any()):
        return usual  # of zeros alone nothing can be said
    place = row.abs().argmax()
    one, made = row[place], after.detach().flatten()[place]
    return usual if bool(one * usual == made) else float(made.double() / one.double())


class FusedContext:
    """A tap that answers: torch's fused kernel gets what attention got, and its context is used instead."""

    def __init__(self, args: dict[str | int, Any]) -> None:
        self.mask: Mask | None = args.get("mask", args.get(2))
        self.seen: dict[str, Tensor] = {}

    def __call__(self, site: str, tensor: Tensor) -> Tensor:
        self.seen[site] = tensor
        if site != "context":
            return tensor
        q, k, v = (self.seen[name] for name in "qkv")
        return fused_attention(q, k, v, self.mask, kernel=True)


class AttentionWires:
    """One attention. What lies between projection and tap (heads apart, normed, turned) is told where it is not q or k
    itself: q is the last of split_heads, rms_norm and rotate that applies."""

    def __init__(self, watch: Watch, module: MultiHeadAttention, name: str) -> None:
        self.watch, self.tape, self.module, self.name = watch, watch.tape, module, name
        self.watch.tap(module, self.begin)
        self.attach()
        self.watch.after(module.o_proj, self.out)

    def attach(self) -> None:
        """Put the hooks on the parts."""
        for letter in "qkv":
            self.attach_projection(letter, getattr(self.module, f"{letter}_proj"))
        for letter in "qk":
            norm = getattr(self.module, f"{letter}_norm")
            if isinstance(norm, RMSNorm):
                self.attach_norm(letter, norm)
        self.watch.given(self.module.o_proj, self.concat)

    def begin(self, args: dict[str | int, Any]) -> Tap:
        """A call begins; returns what is to see its steps."""
        given = {("x", "memory", "mask")[key] if isinstance(key, int) else key: v for key, v in args.items()}
        call = Call(self.name, self.watch.count(self.module))
        x, memory = given["x"], given.get("memory")
        self.mask: Mask | None = given.get("mask")
        self.rotation: Rotation | None = given.get("rotation")
        asking = self.tape.origin(x, call.id("input"))
        # What is read besides x is the source, whoever computed it.
        read = asking if memory is None else self.tape.origin(memory, call.id("memory"), "source")
        self.part = Part(self.tape, call, {"token": asking.stream, "memory": read.stream, "key": read.stream})
        self.part.known = {"x": asking.id, "memory": read.id}
        return self.see

    def attach_projection(self, letter: str, linear: nn.Linear) -> None:
        def projected(output: Tensor) -> Tensor:
            told = self.part.tell(f"{letter}_proj", output, params=linear).value
            if letter != "v" and (self.rotation is not None or self.has_norm(letter)):
                self.part.tell(f"{letter}_heads", self.module._split_heads(told))
            return told

        self.watch.after(linear, projected)

    def has_norm(self, letter: str) -> bool:
        return isinstance(getattr(self.module, f"{letter}_norm"), RMSNorm)

    def attach_norm(self, letter: str, norm: RMSNorm) -> None:
        def normed(output: Tensor) -> Tensor:
            if self.rotation is None:
                return output  # it is q or k itself, which the tap sees
            return self.tell_norm(letter, f"{letter}_norm", output)

        self.watch.after(norm, normed)

    def tell_norm(self, letter: str, key: str, value: Tensor) -> Tensor:
        norm: RMSNorm = getattr(self.module, f"{letter}_norm")
        return self.part.tell(key, value, params={"weight": norm.weight}, attrs={"eps": norm.eps}).value

    def see(self, step: str, value: Tensor) -> Tensor:
        """One step of `attention`, as it happens; what is used from there."""
        match step:
            case "q" | "k" if self.rotation is not None:
                key = f"{step}:rotate_normed" if self.has_norm(step) else f"{step}:rotate"
                return self.part.tell(key, value, attrs={"base": self.rotation.base}).value
            case "q" | "k" if self.has_norm(step):
                return self.tell_norm(step, f"{step}:rms_norm", value)
            case "products":
                self.products: Tensor | None = self.part.tell(step, value).value
                return self.products
            case "scores":
                assert self.products is not None
                factor = observed_factor(self.products, value, self.module.d_head**-0.5)
                self.products = None  # it may be large, and nobody may want it
                return self.part.tell(step, value, attrs={"factor": factor}).value
            case "mask":
                return self.tell_mask(value)
            case _:
                return self.part.tell(step, value).value

    def tell_mask(self, mask: Tensor) -> Tensor:
        """(Q, K), or (1, K) when it is the same for all queries; head and batch axes where they matter."""
        causal = self.mask is not None and self.mask.is_causal
        kind = "causal" if causal else "given" if mask.shape[-2] > 1 else "padding"
        told = self.part.tell(f"mask:{kind}", mask, attrs={"kind": kind})
        if kind == "padding":
            self.tape.padding = told.id
        return told.value

    def concat(self, combined: Tensor) -> Tensor:
        return self.part.tell("concat", combined).value

    def out(self, output: Tensor) -> Tensor:
        return self.part.tell("out", output, params=self.module.o_proj).value
