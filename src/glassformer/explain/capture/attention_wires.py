"""What multi-head attention tells the tape: projections by hooks, the steps between them by a tap."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from glassformer.explain.capture.hooks import Call, Watch
from glassformer.explain.capture.part_wires import FEATURE, add_linear
from glassformer.explain.capture.records import Axis
from glassformer.nn.attention import MultiHeadAttention, Tap, fused_attention
from glassformer.nn.masks import Mask
from glassformer.nn.norms import RMSNorm
from glassformer.nn.positions import Rotation

HEAD, HEAD_FEATURE, SIDE_BY_SIDE = Axis("head"), Axis("head_feature"), Axis("heads_features")


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
    """One attention. What lies between projection and tap (heads apart, normed, turned) is told by which of
    the two are there: q is the last of split_heads, rms_norm and rotate that applies."""

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
        self.call = Call(self.name, self.watch.count(self.module))
        x, memory = given["x"], given.get("memory")
        self.mask: Mask | None = given.get("mask")
        self.rotation: Rotation | None = given.get("rotation")
        self.x = self.tape.origin(x, self.call.id("input"))
        source = "source" if self.x.stream == "target" else "text"
        self.source = self.x if memory is None else self.tape.origin(memory, self.call.id("memory"), source)
        self.before: dict[str, str] = {}  # the step before q, k and v, as far as they have come
        token, source_token = Axis("token", self.x.stream), Axis("token", self.source.stream)
        self.stream = {"q": token, "k": source_token, "v": source_token}
        self.heads = [HEAD, token, HEAD_FEATURE]
        self.table = [HEAD, token, Axis("key", self.source.stream)]
        return self.see

    def attach_projection(self, letter: str, linear: nn.Linear) -> None:
        def projected(output: Tensor) -> None:
            step, axes = f"{letter}_proj", [self.stream[letter], SIDE_BY_SIDE]
            before = self.x if letter == "q" else self.source
            self.before[letter] = self.call.id(step)
            add_linear(self.tape, self.call.id(step), linear, before, output, axes, source=step)
            if letter != "v" and (self.rotation is not None or self.has_norm(letter)):
                self.split(letter, output)

        self.watch.after(linear, projected)

    def has_norm(self, letter: str) -> bool:
        return isinstance(getattr(self.module, f"{letter}_norm"), RMSNorm)

    def split(self, letter: str, projected: Tensor) -> None:
        heads = self.module._split_heads(projected)
        axes, id = [HEAD, self.stream[letter], HEAD_FEATURE], self.call.id(f"{letter}_heads")
        self.tape.add(id, "split_heads", [self.before[letter]], heads, axes, source="split_heads")
        self.before[letter] = id

    def attach_norm(self, letter: str, norm: RMSNorm) -> None:
        def normed(output: Tensor) -> None:
            if self.rotation is None:
                return  # then it is q or k itself, which the tap sees
            self.add_head_norm(self.call.id(f"{letter}_norm"), letter, norm, output)
            self.before[letter] = self.call.id(f"{letter}_norm")

        self.watch.after(norm, normed)

    def add_head_norm(self, id: str, letter: str, norm: RMSNorm, value: Tensor) -> None:
        self.tape.add(id, "rms_norm", self.made_from(letter), value, [HEAD, self.stream[letter], HEAD_FEATURE],
                      source="rms_norm", params={"weight": norm.weight}, attrs={"eps": norm.eps})  # fmt: skip

    def made_from(self, letter: str) -> list[str]:
        """The step before; none when keys and values were kept from an earlier call."""
        return [self.before[letter]] if letter in self.before else []

    def see(self, step: str, value: Tensor) -> Tensor:
        """One step of `attention`, as it happens; it is handed back as it came."""
        id, scores, heads = self.call.id, self.table, self.heads
        match step:
            case "q" | "k" | "v":
                self.add_heads(step, value)
            case "products":
                self.products: Tensor | None = value
                self.tape.add(id(step), "dot", [id("q"), id("k")], value, scores, source="dot")
            case "scores":
                assert self.products is not None
                attrs = {"factor": observed_factor(self.products, value, self.module.d_head**-0.5)}
                self.products = None  # it may be large, and nobody may want it
                self.tape.add(
                    id(step), "scale", [id("products")], value, scores, source="attention.scale", attrs=attrs
                )
            case "mask":
                self.add_mask(value)
            case "weights":
                inputs = [id("scores"), id("mask")] if self.mask_seen else [id("scores")]
                self.tape.add(id(step), "softmax", inputs, value, scores, source="softmax")
            case "context":
                self.context = self.tape.add(
                    id(step), "mix", [id("weights"), id("v")], value, heads, source="mix"
                )
        return value

    def add_heads(self, letter: str, value: Tensor) -> None:
        """q, k or v as attention gets them."""
        self.mask_seen = False
        id, inputs, axes = (
            self.call.id(letter),
            self.made_from(letter),
            [HEAD, self.stream[letter], HEAD_FEATURE],
        )
        if letter != "v" and self.rotation is not None:
            attrs = {"base": self.rotation.base}
            self.tape.add(id, "rotate", inputs, value, axes, source="rotate", attrs=attrs)
        elif letter != "v" and self.has_norm(letter):
            self.add_head_norm(id, letter, getattr(self.module, f"{letter}_norm"), value)
        else:
            self.tape.add(id, "split_heads", inputs, value, axes, source="split_heads")

    def add_mask(self, mask: Tensor) -> None:
        """(Q, K), or (1, K) when it is the same for all queries; head and batch axes where they matter."""
        self.mask_seen = True
        by_query = mask.shape[-2] > 1
        causal = self.mask is not None and self.mask.is_causal
        kind = "causal" if causal else "given" if by_query else "padding"
        if mask.dim() > 3 and mask.shape[1] == 1:
            mask = mask.squeeze(1)
        axes = self.table if mask.dim() > 3 else self.table[1:]
        if kind == "padding":
            self.tape.padding = self.call.id("mask")
        self.tape.add(
            self.call.id("mask"), "mask", (), mask, axes, source=f"mask.{kind}", attrs={"kind": kind}
        )

    def concat(self, combined: Tensor) -> None:
        axes = [self.stream["q"], SIDE_BY_SIDE]
        self.combined = self.tape.add(self.call.id("concat"), "concat_heads", [self.context.id], combined, axes,
                                      source="concat_heads")  # fmt: skip

    def out(self, output: Tensor) -> None:
        axes = [self.stream["q"], FEATURE]
        add_linear(self.tape, self.call.id("out"), self.module.o_proj, self.combined, output, axes, "o_proj")
