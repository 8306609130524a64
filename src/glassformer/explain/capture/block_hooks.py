"""Record embeddings, residual connections and feed-forward blocks."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from glassformer.explain.capture.hooks import Arguments, CallRecorder, ModuleHooks
from glassformer.nn.embeddings import LearnedPositions, SinusoidalPositions, TokenEmbedding
from glassformer.nn.layers import FeedForward, LayerNorm, Residual, RMSNorm, SwiGLU
from glassformer.nn.ngram_embeddings import BigramEmbedding, HashedNgramEmbedding, NgramBatch, NgramEmbedding


def stream_of(name: str) -> str:
    """Return the stream of an embedding by its name: "src_embedding" has the source, "tgt_embedding" the target."""
    last = name.rsplit(".", 1)[-1]
    if last.startswith(("src", "source")):
        return "source"
    return "target" if last.startswith(("tgt", "target")) else "text"


def norm_key(norm: LayerNorm | RMSNorm) -> str:
    """Return the key in `SITES` of a norm."""
    return "norm:layer_norm" if isinstance(norm, LayerNorm) else "norm:rms_norm"


class NgramHooks:
    """Hooks of an n-gram embedding: the n-gram ids of each token, and the mean or sum of their rows."""

    def __init__(self, hooks: ModuleHooks, module: NgramEmbedding, name: str) -> None:
        self.hooks, self.module, self.name = hooks, module, name
        hooks.on_call(module, self.start_call)
        hooks.on_output(module, self.record)

    def start_call(self, args: Arguments) -> None:
        ngrams: NgramBatch = args["batch"]
        self.ids = ngrams.ngrams[ngrams.index]  # (B, S, G)

    def record(self, output: Tensor) -> Tensor:
        recorder = self.hooks.recorder(self.module, "")
        recorder.streams["token"] = "text"
        hashed = isinstance(self.module, HashedNgramEmbedding)
        key, attrs = ("ngram_ids:hashed", {"kind": "hashed"}) if hashed else ("ngram_ids", {})
        name = f"{self.name.removesuffix('ngrams')}ngram_ids"
        recorder.record(key, self.ids, name=name, attrs=attrs)
        recorder.inputs["table_ids"] = recorder.id(name)
        how = {"how": self.module.mode}
        return recorder.record("ngrams", output, name=self.name, params=self.module, attrs=how)


class BigramHooks:
    """Hooks of a bigram embedding: the bigram id of each token, and its row."""

    def __init__(self, hooks: ModuleHooks, module: BigramEmbedding, name: str) -> None:
        self.hooks, self.module, self.name = hooks, module, name
        hooks.on_call(module, self.start_call)
        hooks.on_output(module, self.record)

    def start_call(self, args: Arguments) -> None:
        self.ids = self.module.lookup_ids(args["ids"])  # (B, S)

    def record(self, output: Tensor) -> Tensor:
        recorder = self.hooks.recorder(self.module, "")
        recorder.streams["token"] = "text"
        name = f"{self.name.removesuffix('bigrams')}bigram_ids"
        recorder.record("bigram_ids", self.ids, name=name)
        recorder.inputs["table_ids"] = recorder.id(name)
        return recorder.record("bigrams", output, name=self.name, params=self.module)


class EmbeddingHooks:
    """Hooks of a token embedding.

    Its steps are ids, rows, scaled (unless the factor is 1), with_ngrams and with_bigrams (where these are added),
    positions and sum (where there are positions).
    """

    def __init__(self, hooks: ModuleHooks, module: TokenEmbedding, name: str) -> None:
        self.hooks, self.tape, self.module, self.name = hooks, hooks.tape, module, name
        hooks.on_call(module, self.start_call)
        if module.positions is not None:
            hooks.on_input(module.positions, self.keep_first_position)
            hooks.on_output(module.positions, self.keep_positions)
        hooks.on_input(module.dropout, self.record)

    def start_call(self, args: Arguments) -> None:
        self.recorder = self.hooks.recorder(self.module, self.name)
        self.recorder.streams["token"] = stream_of(self.name)
        self.ids: Tensor = args["ids"]
        self.added: tuple[Tensor, ...] = args["more"]

    def keep_first_position(self, positions: Tensor) -> None:
        self.first = int(positions[0, 0]) if positions.numel() else 0

    def keep_positions(self, output: Tensor) -> Tensor:
        # Recorded later, after the rows.
        self.positions = self.tape.apply_tap(self.recorder.id("positions"), output)
        return self.positions

    def record(self, total: Tensor) -> Tensor:
        """Record all steps of a call, given the input of dropout, which is the value of the last one."""
        tape, recorder, id, module = self.tape, self.recorder, self.recorder.id, self.module
        origins = {tape.origin(added, id("added")).id: added for added in self.added}
        sums = {other: "with_bigrams" if other.endswith("bigrams") else "with_ngrams" for other in origins}
        present = {
            "scaled": module.scale != 1,
            **dict.fromkeys(sums.values(), True),
            "sum": module.positions is not None,
        }
        last = next((step for step in reversed(present) if present[step]), "rows")

        def record(step: str, x: Tensor, **more: Any) -> None:
            nonlocal total
            if step == last:
                total = recorder.record(f"{step}:last", total, **more)
            else:
                recorder.record(step, x, **more)
            recorder.inputs["before"] = id(step)

        recorder.record("ids", self.ids)
        recompute = any(tape.wants(id(step)) for step in ("rows", "scaled", "with_ngrams", "with_bigrams"))
        x = module.weight.detach()[self.ids] if recompute else total
        record("rows", x, params={"weight": module.weight})
        if present["scaled"]:
            x = x * module.scale
            record("scaled", x, attrs={"factor": module.scale})
        for other, added in origins.items():
            tape.move_to_end(other)
            x, recorder.inputs["added"] = x + added, other
            record(sums[other], x)
        if module.positions is not None:
            self._record_positions(recorder, module.positions)
            return recorder.record("sum", total)
        return total

    def _record_positions(self, recorder: CallRecorder, module: nn.Module) -> None:
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
            # With a cache, earlier calls embedded the earlier positions.
            attrs["first"] = self.first
        recorder.add(f"positions:{kind}", recorder.id("positions"), self.positions, params=params, attrs=attrs)


class ResidualHooks:
    """Hooks of a residual connection: norm and residual, in the order of pre-norm or post-norm."""

    def __init__(self, hooks: ModuleHooks, module: Residual, name: str) -> None:
        self.hooks, self.module, self.name = hooks, module, name
        hooks.on_call(module, self.start_call)
        hooks.on_input(module.dropout, self.record_branch)
        hooks.on_output(module, self.record_output)
        if isinstance(module.norm, LayerNorm | RMSNorm):
            if not module.pre_norm:
                hooks.on_input(module.norm, self.record_sum)
            hooks.on_input_and_output(module.norm, self.record_norm)

    def start_call(self, args: Arguments) -> None:
        self.recorder = self.hooks.recorder(self.module, self.name)
        self.recorder.streams["token"] = self.recorder.take("x", args["x"], "input")

    def record_branch(self, branch: Tensor) -> None:
        self.recorder.take("branch", branch, "branch", self.recorder.streams["token"])

    def record_norm(self, x: Tensor, output: Tensor) -> Tensor:
        norm, inputs = self.module.norm, self.recorder.inputs
        assert isinstance(norm, LayerNorm | RMSNorm)
        inputs["before"] = inputs["x"] if self.module.pre_norm else self.recorder.id("residual")
        return self.recorder.record(norm_key(norm), output, params=norm, attrs={"eps": norm.eps})

    def record_output(self, output: Tensor) -> Tensor:
        # The output is the sum, unless a norm follows it.
        return output if "residual" in self.recorder.recorded else self.record_sum(output)

    def record_sum(self, value: Tensor) -> Tensor:
        return self.recorder.record("residual:pre" if self.module.pre_norm else "residual:post", value)


class FeedForwardHooks:
    """Hooks of a feed-forward block: w_gate (SwiGLU), w_in, hidden (after the activation) and out."""

    def __init__(self, hooks: ModuleHooks, module: FeedForward | SwiGLU, name: str) -> None:
        self.hooks, self.module, self.name = hooks, module, name
        kind = "SwiGLU" if isinstance(module, SwiGLU) else "FeedForward"
        activation = module.activation if isinstance(module, FeedForward) else "swiglu"
        hooks.on_call(module, self.start_call)
        if isinstance(module, SwiGLU):
            self._record_output(module.gate_proj, "w_gate:SwiGLU")
        self._record_output(module.up_proj, f"w_in:{kind}")
        hooks.on_input(module.down_proj, lambda x: self.recorder.record(f"hidden:{activation}", x))
        self._record_output(module.down_proj, f"out:{kind}")

    def start_call(self, args: Arguments) -> None:
        self.recorder = self.hooks.recorder(self.module, self.name)
        self.recorder.streams["token"] = self.recorder.take("x", args["x"], "input")

    def _record_output(self, linear: nn.Linear, key: str) -> None:
        self.hooks.on_output(linear, lambda x: self.recorder.record(key, x, params=linear))
