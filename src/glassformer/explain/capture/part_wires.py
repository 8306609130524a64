"""What embeddings, residual branches and feed-forward blocks tell the tape. Attention has a file of its own."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import Tensor, nn

from glassformer.explain.capture.hooks import Call, Watch
from glassformer.explain.capture.records import Axis
from glassformer.explain.capture.tape import Origin, Tape
from glassformer.models.bigrams import BigramEmbedding
from glassformer.models.spelling import NgramEmbedding, Spelling
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.nn.feed_forward import FeedForward, SwiGLU
from glassformer.nn.layers import Residual
from glassformer.nn.norms import LayerNorm, RMSNorm
from glassformer.nn.positions import LearnedPositions, SinusoidalPositions

FEATURE = Axis("feature")


def stream_of(name: str) -> str:
    """The stream an embedding of that name begins: "src_embedding" the source, "tgt_embedding" the target."""
    last = name.rsplit(".", 1)[-1]
    return (
        "source"
        if last.startswith(("src", "source"))
        else "target"
        if last.startswith(("tgt", "target"))
        else "text"
    )


def add_norm(tape: Tape, id: str, norm: LayerNorm | RMSNorm, before: Origin, value: Tensor) -> Origin:
    """A record of what this norm gave."""
    axes = [Axis("token", before.stream), FEATURE]
    op = "layer_norm" if isinstance(norm, LayerNorm) else "rms_norm"
    return tape.add(id, op, [before.id], value, axes, source=op, params=norm, attrs={"eps": norm.eps})


def add_linear(
    tape: Tape, id: str, linear: nn.Linear, before: Origin, value: Tensor, axes: list[Axis], source: str
) -> Origin:
    """A record of what this linear layer gave."""
    return tape.add(id, "linear", [before.id], value, axes, source=source, params=linear)


class NgramWires:
    """spelling and ngrams: which n-grams each token has, and the mean of their rows."""

    def __init__(self, watch: Watch, module: NgramEmbedding, name: str) -> None:
        self.tape, self.module, self.name = watch.tape, module, name
        self.count = lambda: watch.count(module)
        watch.before(module, self.begin)
        watch.after(module, self.end)

    def begin(self, args: dict[str | int, Any]) -> None:
        spelling: Spelling = args[0] if 0 in args else args["spelling"]
        self.numbers = spelling.ngrams[spelling.which]  # (B, S, G)

    def end(self, output: Tensor) -> None:
        token, call = Axis("token", "text"), Call("", self.count())
        id = call.id(f"{self.name.removesuffix('ngrams')}spelling")
        self.tape.add(id, "spelling", (), self.numbers, [token, Axis("ngram")], source="embedding.spelling")
        self.tape.add(call.id(self.name), "bag", [id], output, [token, FEATURE], source="embedding.ngrams",
                      params=self.module)  # fmt: skip


class BigramWires:
    """pairs and bigrams: which listed pair each token ends, and its row."""

    def __init__(self, watch: Watch, module: BigramEmbedding, name: str) -> None:
        self.tape, self.module, self.name = watch.tape, module, name
        self.count = lambda: watch.count(module)
        watch.before(module, self.begin)
        watch.after(module, self.end)

    def begin(self, args: dict[str | int, Any]) -> None:
        self.numbers = self.module.numbers(args[0] if 0 in args else args["ids"])  # (B, S)

    def end(self, output: Tensor) -> None:
        token, call = Axis("token", "text"), Call("", self.count())
        id = call.id(f"{self.name.removesuffix('bigrams')}pairs")
        self.tape.add(id, "pairs", (), self.numbers, [token], source="embedding.pairs")
        self.tape.add(call.id(self.name), "lookup", [id], output, [token, FEATURE], source="embedding.bigrams",
                      params=self.module)  # fmt: skip


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
        self.added = [
            args[place] for place in sorted(place for place in args if isinstance(place, int) and place > 1)
        ]

    def number(self, positions: Tensor) -> None:
        self.first = int(positions[0, 0]) if positions.numel() else 0

    def place(self, output: Tensor) -> None:
        self.positions = output

    def end(self, total: Tensor) -> None:
        """What dropout is about to get is the last step: the sum, or what there would be to add to."""
        tape, id, module = self.tape, self.call.id, self.module
        token, weight = Axis("token", stream_of(self.name)), {"weight": module.weight}
        origins = {tape.origin(added, id("added")).id: added for added in self.added}
        sums = {other: "paired" if other.endswith("bigrams") else "spelled" for other in origins}
        there = {
            "scaled": module.scale != 1,
            **dict.fromkeys(sums.values(), True),
            "sum": module.positions is not None,
        }
        last = next((step for step in reversed(there) if there[step]), "rows")

        def add(step: str, op: str, inputs: list[str], x: Tensor, **more: Any) -> str:
            tape.add(id(step), op, inputs, total if step == last else x, [token, FEATURE], **more)
            return id(step)

        tape.add(id("ids"), "ids", (), self.ids, [token], source="ids")
        again = any(tape.wants(id(step)) for step in ("rows", "scaled", "spelled", "paired"))
        x = module.weight.detach()[self.ids] if again else total
        before = add("rows", "lookup", [id("ids")], x, source="lookup", params=weight)
        if there["scaled"]:
            x, attrs = x * module.scale, {"factor": module.scale}
            before = add("scaled", "scale", [before], x, source="embedding.scale", attrs=attrs)
        for other, added in origins.items():
            tape.put_off(other)
            x = x + added
            before = add(sums[other], "add", [before, other], x, source="embedding.added")
        if module.positions is not None:
            self.add_positions(module.positions)
            add("sum", "add", [before, id("positions")], total, source="embedding.add")

    def add_positions(self, module: nn.Module) -> None:
        attrs: dict[str, Any] = {"scheme": type(module).__name__}
        params: dict[str, Tensor | None] = {}
        match module:
            case SinusoidalPositions():
                attrs |= {"scheme": "sinusoidal", "amplitude": module.amplitude}
            case LearnedPositions():
                attrs["scheme"], params["weight"] = "learned", module.weight
        scaled = isinstance(module, SinusoidalPositions) and module.amplitude != 1
        if self.first:
            attrs["first"] = self.first  # with a cache: earlier positions were embedded by earlier calls
        axes = [Axis("token", stream_of(self.name)), FEATURE]
        self.tape.add(self.call.id("positions"), "positions", (), self.positions, axes,
                      source="positions.amplitude" if scaled else f"positions.{attrs['scheme']}", params=params, attrs=attrs)  # fmt: skip


class ResidualWires:
    """norm and residual of a block, in the order the module has them."""

    def __init__(self, watch: Watch, module: Residual, name: str) -> None:
        self.tape, self.module, self.name = watch.tape, module, name
        self.count = lambda: watch.count(module)
        watch.before(module, self.begin)
        watch.given(module.dropout, self.end_branch)
        if isinstance(module.norm, LayerNorm | RMSNorm):
            watch.around(module.norm, self.normed)
        watch.after(module, self.end)

    def begin(self, args: dict[str | int, Any]) -> None:
        self.call = Call(self.name, self.count())
        self.x = self.tape.origin(args[0] if 0 in args else args["x"], self.call.id("input"))
        self.added = False

    def end_branch(self, branch: Tensor) -> None:
        self.branch = self.tape.origin(branch, self.call.id("branch"), self.x.stream)

    def normed(self, x: Tensor, output: Tensor) -> None:
        assert isinstance(self.module.norm, LayerNorm | RMSNorm)
        before = self.x if self.module.pre_norm else self.add(x)
        add_norm(self.tape, self.call.id("norm"), self.module.norm, before, output)

    def end(self, output: Tensor) -> None:
        if not self.added:
            self.add(output)

    def add(self, value: Tensor) -> Origin:
        self.added = True
        axes = [Axis("token", self.x.stream), FEATURE]
        source = "residual.pre" if self.module.pre_norm else "residual.post"
        return self.tape.add(
            self.call.id("residual"), "add", [self.x.id, self.branch.id], value, axes, source=source
        )


class FeedForwardWires:
    """w_gate (swiglu), w_in, hidden (after the activation) and out."""

    def __init__(self, watch: Watch, module: FeedForward | SwiGLU, name: str) -> None:
        self.tape, self.module, self.name, self.kind = watch.tape, module, name, type(module).__name__
        self.count = lambda: watch.count(module)
        watch.before(module, self.begin)
        if isinstance(module, SwiGLU):
            watch.after(module.w_gate, self.gate)
        watch.after(module.w_in, self.inner)
        watch.given(module.w_out, self.activated)
        watch.after(module.w_out, self.out)

    def begin(self, args: dict[str | int, Any]) -> None:
        self.call = Call(self.name, self.count())
        self.x = self.tape.origin(args[0] if 0 in args else args["x"], self.call.id("input"))
        self.token = Axis("token", self.x.stream)

    def gate(self, output: Tensor) -> None:
        assert isinstance(self.module, SwiGLU)
        self.widen("w_gate", self.module.w_gate, output)

    def inner(self, output: Tensor) -> None:
        self.widen("w_in", self.module.w_in, output)

    def widen(self, step: str, linear: nn.Linear, output: Tensor) -> None:
        axes = [self.token, Axis("hidden")]
        add_linear(self.tape, self.call.id(step), linear, self.x, output, axes, f"{self.kind}.{step}")

    def activated(self, hidden: Tensor) -> None:
        id, module = self.call.id, self.module
        op = module.activation if isinstance(module, FeedForward) else "swiglu"
        inputs = [id("w_gate"), id("w_in")] if op == "swiglu" else [id("w_in")]
        axes = [self.token, Axis("hidden")]
        self.hidden = self.tape.add(id("hidden"), op, inputs, hidden, axes, source=op)

    def out(self, output: Tensor) -> None:
        source = f"{self.kind}.w_out"
        add_linear(
            self.tape,
            self.call.id("out"),
            self.module.w_out,
            self.hidden,
            output,
            [self.token, FEATURE],
            source,
        )
