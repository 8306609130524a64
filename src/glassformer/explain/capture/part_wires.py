"""What embeddings, residual branches and feed-forward blocks tell the tape. Attention has a file of its own."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import Tensor, nn

from glassformer.explain.capture.hooks import Watch
from glassformer.explain.capture.part import Call, Part
from glassformer.models.bigrams import BigramEmbedding
from glassformer.models.hashed_ngrams import HashedNgramEmbedding
from glassformer.models.spelling import NgramEmbedding, Spelling
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.nn.feed_forward import FeedForward, SwiGLU
from glassformer.nn.layers import Residual
from glassformer.nn.norms import LayerNorm, RMSNorm
from glassformer.nn.positions import LearnedPositions, SinusoidalPositions


def stream_of(name: str) -> str:
    """The stream an embedding of that name begins: "src_embedding" the source, "tgt_embedding" the target."""
    last = name.rsplit(".", 1)[-1]
    return (
        "source" if last.startswith(("src", "source")) else "target" if last.startswith(("tgt", "target")) else "text"
    )


def key_of(norm: LayerNorm | RMSNorm) -> str:
    """Of the step that a norm is."""
    return "norm:layer_norm" if isinstance(norm, LayerNorm) else "norm:rms_norm"


class NgramWires:
    """spelling and ngrams: which n-grams each token has, and the mean or sum of their rows."""

    def __init__(self, watch: Watch, module: NgramEmbedding, name: str) -> None:
        self.tape, self.module, self.name = watch.tape, module, name
        self.count = lambda: watch.count(module)
        watch.before(module, self.begin)
        watch.after(module, self.end)

    def begin(self, args: dict[str | int, Any]) -> None:
        spelling: Spelling = args[0] if 0 in args else args["spelling"]
        self.numbers = spelling.ngrams[spelling.which]  # (B, S, G)

    def end(self, output: Tensor) -> Tensor:
        part = Part(self.tape, Call("", self.count()), {"token": "text"})
        name = f"{self.name.removesuffix('ngrams')}spelling"
        hashed = isinstance(self.module, HashedNgramEmbedding)
        key, attrs = ("spelling:hashed", {"kind": "hashed"}) if hashed else ("spelling", {})
        part.known["numbers"] = part.tell(key, self.numbers, name=name, attrs=attrs).id
        how = {"how": self.module.how}
        return part.tell("ngrams", output, name=self.name, params=self.module, attrs=how).value


class BigramWires:
    """pairs and bigrams: which listed pair each token ends, and its row."""

    def __init__(self, watch: Watch, module: BigramEmbedding, name: str) -> None:
        self.tape, self.module, self.name = watch.tape, module, name
        self.count = lambda: watch.count(module)
        watch.before(module, self.begin)
        watch.after(module, self.end)

    def begin(self, args: dict[str | int, Any]) -> None:
        self.numbers = self.module.numbers(args[0] if 0 in args else args["ids"])  # (B, S)

    def end(self, output: Tensor) -> Tensor:
        part = Part(self.tape, Call("", self.count()), {"token": "text"})
        name = f"{self.name.removesuffix('bigrams')}pairs"
        part.known["numbers"] = part.tell("pairs", self.numbers, name=name).id
        return part.tell("bigrams", output, name=self.name, params=self.module).value


class EmbeddingWires:
    """ids, rows, scaled where the factor is not 1, spelled and paired where vectors of n-grams and of pairs are added,
    positions and sum where they are.

    Args:
        names: one, or two for a table that source and target share: a call says which stream it embeds.
    """

    def __init__(self, watch: Watch, module: TokenEmbedding, names: list[str]) -> None:
        self.tape, self.module, self.names = watch.tape, module, names
        self.calls = Counter[str]()
        watch.before(module, self.begin)
        if module.positions is not None:
            watch.given(module.positions, self.number)
            watch.after(module.positions, self.place)
        watch.given(module.dropout, self.end)

    def begin(self, args: dict[str | int, Any]) -> None:
        stream = args.get("stream")
        self.name = next((name for name in self.names if stream_of(name) == stream), self.names[0])
        self.calls[self.name] += 1
        self.call = Call(self.name, self.calls[self.name])
        self.ids: Tensor = args[0] if 0 in args else args["ids"]
        self.added = [args[place] for place in sorted(place for place in args if isinstance(place, int) and place > 1)]

    def number(self, positions: Tensor) -> None:
        self.first = int(positions[0, 0]) if positions.numel() else 0

    def place(self, output: Tensor) -> Tensor:
        self.positions = self.tape.tapped(self.call.id("positions"), output)  # told of after the rows
        return self.positions

    def end(self, total: Tensor) -> Tensor:
        """What dropout is about to get is the last step: the sum, or what there would be to add to."""
        tape, id, module = self.tape, self.call.id, self.module
        part = Part(tape, self.call, {"token": stream_of(self.name)})
        origins = {tape.origin(added, id("added")).id: added for added in self.added}
        sums = {other: "paired" if other.endswith("bigrams") else "spelled" for other in origins}
        there = {
            "scaled": module.scale != 1,
            **dict.fromkeys(sums.values(), True),
            "sum": module.positions is not None,
        }
        last = next((step for step in reversed(there) if there[step]), "rows")

        def tell(step: str, x: Tensor, **more: Any) -> None:
            part.known["before"] = part.tell(step, total if step == last else x, **more).id

        part.tell("ids", self.ids)
        again = any(tape.wants(id(step)) for step in ("rows", "scaled", "spelled", "paired"))
        x = module.weight.detach()[self.ids] if again else total
        tell("rows", x, params={"weight": module.weight})
        if there["scaled"]:
            x = x * module.scale
            tell("scaled", x, attrs={"factor": module.scale})
        for other, added in origins.items():
            tape.put_off(other)
            x, part.known["added"] = x + added, other
            tell(sums[other], x)
        if module.positions is not None:
            self.tell_positions(part, module.positions)
            return part.tell("sum", total).value
        return total

    def tell_positions(self, part: Part, module: nn.Module) -> None:
        kind = "other"
        attrs: dict[str, Any] = {"scheme": type(module).__name__}
        params: dict[str, Tensor | None] = {}
        match module:
            case SinusoidalPositions():
                kind = "sinusoidal" if module.amplitude == 1 else "amplitude"
                attrs = {"scheme": "sinusoidal", "amplitude": module.amplitude}
            case LearnedPositions():
                kind = attrs["scheme"] = "learned"
                params["weight"] = module.weight
        if self.first:
            attrs["first"] = self.first  # with a cache: earlier positions were embedded by earlier calls
        part.record(f"positions:{kind}", part.call.id("positions"), self.positions, params=params, attrs=attrs)


class ResidualWires:
    """norm and residual of a block, in the order the module has them."""

    def __init__(self, watch: Watch, module: Residual, name: str) -> None:
        self.tape, self.module, self.name = watch.tape, module, name
        self.count = lambda: watch.count(module)
        watch.before(module, self.begin)
        watch.given(module.dropout, self.end_branch)
        watch.after(module, self.end)
        if isinstance(module.norm, LayerNorm | RMSNorm):
            if not module.pre_norm:
                watch.given(module.norm, self.add)
            watch.around(module.norm, self.normed)

    def begin(self, args: dict[str | int, Any]) -> None:
        call = Call(self.name, self.count())
        x = self.tape.origin(args[0] if 0 in args else args["x"], call.id("input"))
        self.part = Part(self.tape, call, {"token": x.stream})
        self.part.known["x"] = x.id
        self.stream = x.stream

    def end_branch(self, branch: Tensor) -> None:
        found = self.tape.origin(branch, self.part.call.id("branch"), self.stream)
        self.part.known["branch"] = found.id

    def normed(self, x: Tensor, output: Tensor) -> Tensor:
        norm = self.module.norm
        assert isinstance(norm, LayerNorm | RMSNorm)
        self.part.known["before"] = self.part.known["x"] if self.module.pre_norm else self.part.call.id("residual")
        return self.part.tell(key_of(norm), output, params=norm, attrs={"eps": norm.eps}).value

    def end(self, output: Tensor) -> Tensor:
        """Without a norm, the sum is what a block with post-norm returns, too."""
        return output if "residual" in self.part.told else self.add(output)

    def add(self, value: Tensor) -> Tensor:
        return self.part.tell("residual:pre" if self.module.pre_norm else "residual:post", value).value


class FeedForwardWires:
    """w_gate (swiglu), w_in, hidden (after the activation) and out."""

    def __init__(self, watch: Watch, module: FeedForward | SwiGLU, name: str) -> None:
        self.tape, self.module, self.name = watch.tape, module, name
        self.kind = "SwiGLU" if isinstance(module, SwiGLU) else "FeedForward"
        self.count = lambda: watch.count(module)
        watch.before(module, self.begin)
        if isinstance(module, SwiGLU):
            watch.after(module.w_gate, self.gate)
        watch.after(module.w_in, self.inner)
        watch.given(module.w_out, self.activated)
        watch.after(module.w_out, self.out)

    def begin(self, args: dict[str | int, Any]) -> None:
        call = Call(self.name, self.count())
        x = self.tape.origin(args[0] if 0 in args else args["x"], call.id("input"))
        self.part = Part(self.tape, call, {"token": x.stream})
        self.part.known["x"] = x.id

    def gate(self, output: Tensor) -> Tensor:
        assert isinstance(self.module, SwiGLU)
        return self.part.tell("w_gate:SwiGLU", output, params=self.module.w_gate).value

    def inner(self, output: Tensor) -> Tensor:
        return self.part.tell(f"w_in:{self.kind}", output, params=self.module.w_in).value

    def activated(self, hidden: Tensor) -> Tensor:
        kind = self.module.activation if isinstance(self.module, FeedForward) else "swiglu"
        return self.part.tell(f"hidden:{kind}", hidden).value

    def out(self, output: Tensor) -> Tensor:
        return self.part.tell(f"out:{self.kind}", output, params=self.module.w_out).value
