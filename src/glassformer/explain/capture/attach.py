"""Attach hooks to the modules of a model, which record its steps under readable ids.

Modules are found by type, so any model built from `glassformer.nn` can be traced. The recorded tensors are those of the
forward pass; only gathers (rows of a table, heads of a vector) and the scaling of the embedding are recomputed. The ids
of a translator, in order:

    src_embedding.ids, .rows, .scaled, .positions, .sum
    encoder.0.self.norm, .q_proj, .k_proj, .v_proj, .q_heads, .k_heads, .q, .k, .v,
        .products, .scores, .mask, .weights, .context, .concat, .out, .residual
    encoder.0.ff.norm, .w_gate, .w_in, .hidden, .out, .residual        encoder.norm
    tgt_embedding.*    decoder.0.self.*    decoder.0.cross.*    decoder.0.ff.*    decoder.norm    logits

There are q_heads and k_heads with rotary positions, mask where there is one, and w_gate with SwiGLU. In ff, w_gate,
w_in and out are the outputs of gate_proj, up_proj and down_proj; elsewhere out is that of o_proj. With post-norm a
block's norm follows its residual. A classifier ends in pooled, head, logits, a bare encoder in pooled. Before its
positions, an embedding with n-grams has .ngram_ids, .ngrams and .with_ngrams, one with bigrams .bigram_ids, .bigrams
and .with_bigrams, one with segments .segment_ids, .segments and .with_segments. Rows that are not scaled have no
.scaled; a norm after the embedding is .norm. A pooler is pooler, pooler_hidden, between pooled and the head. A masked
language model ends in mlm_transform, mlm_hidden, mlm_norm, logits. The ids of an ensemble begin with members.0,
members.1, … `sites.py` describes each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from torch import Tensor, nn

from glassformer.explain.capture.hooks import Arguments, AttentionHooks, CallRecorder, EmbeddingHooks, ModuleHooks
from glassformer.explain.capture.tape import Origin
from glassformer.models import LanguageModel, MaskedLanguageModel, TextClassifier, Translator
from glassformer.models.encoder_models import TextEmbedder, TokenClassifier
from glassformer.nn.attention import MultiHeadAttention
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.nn.layers import FeedForward, LayerNorm, Residual, RMSNorm, Stack, SwiGLU
from glassformer.nn.ngram_embeddings import (
    BigramEmbedding,
    HashedNgramEmbedding,
    NgramBatch,
    NgramEmbedding,
    SegmentEmbedding,
)

ID_PARTS = {
    "self_attention": "self",
    "self_residual": "self",
    "cross_attention": "cross",
    "cross_residual": "cross",
    "feed_forward": "ff",
    "feed_forward_residual": "ff",
    "layers": "",
    "ngrams": "embedding.ngrams",
    "bigrams": "embedding.bigrams",
    "segments": "embedding.segments",
}
"""The names in ids of some modules."""


def id_of_path(path: str, names: Mapping[str, str] | None = None) -> str:
    """Return a module's path as an id: "decoder.layers.1.cross_attention" gives "decoder.1.cross".

    Args:
        path: the path.
        names: ids of some modules by path, as given by the user; they also replace the path in ids of submodules.
    """
    for prefix in sorted(names or {}, key=len, reverse=True):
        if path == prefix or path.startswith(f"{prefix}."):
            rest = id_of_path(path[len(prefix) + 1 :])
            return ".".join(part for part in ((names or {})[prefix], rest) if part)
    return ".".join(filter(None, (ID_PARTS.get(part, part) for part in path.split("."))))


_cached_id = lru_cache(maxsize=4096)(id_of_path)


def _hook_ngrams(hooks: ModuleHooks, module: NgramEmbedding, name: str) -> None:
    """Record the n-gram ids of each token, and the mean or sum of their rows."""
    recorder = hooks.recorder(module, "")
    ids_name = f"{name.removesuffix('ngrams')}ngram_ids"

    def start_call(args: Arguments) -> None:
        batch: NgramBatch = args["batch"]
        hashed = isinstance(module, HashedNgramEmbedding)
        key, attrs = ("ngram_ids:hashed", {"kind": "hashed"}) if hashed else ("ngram_ids", {})
        recorder.streams["token"] = "text"
        recorder.record(key, batch.ngrams[batch.index], name=ids_name, attrs=attrs)  # (B, S, G)
        recorder.inputs["table_ids"] = recorder.id(ids_name)

    hooks.on_call(module, start_call)
    hooks.on_output(
        module, lambda x: recorder.record("ngrams", x, name=name, params=module, attrs={"how": module.mode})
    )


def _hook_bigrams(hooks: ModuleHooks, module: BigramEmbedding, name: str) -> None:
    """Record the bigram id of each token, and its row."""
    recorder = hooks.recorder(module, "")
    ids_name = f"{name.removesuffix('bigrams')}bigram_ids"

    def start_call(args: Arguments) -> None:
        recorder.streams["token"] = "text"
        recorder.record("bigram_ids", module.lookup_ids(args["ids"]), name=ids_name)  # (B, S)
        recorder.inputs["table_ids"] = recorder.id(ids_name)

    hooks.on_call(module, start_call)
    hooks.on_output(module, lambda x: recorder.record("bigrams", x, name=name, params=module))


def _hook_segments(hooks: ModuleHooks, module: SegmentEmbedding, name: str) -> None:
    """Record the segment of each token, and its row."""
    recorder = hooks.recorder(module, "")
    ids_name = f"{name.removesuffix('segments')}segment_ids"

    def start_call(args: Arguments) -> None:
        recorder.streams["token"] = "text"
        attrs = {} if module.separator is None else {"separator": module.separator}
        recorder.record("segment_ids", module.segment_ids(args["ids"]), name=ids_name, attrs=attrs)  # (B, S)
        recorder.inputs["table_ids"] = recorder.id(ids_name)

    hooks.on_call(module, start_call)
    hooks.on_output(module, lambda x: recorder.record("segments", x, name=name, params=module))


def _recorder_of(hooks: ModuleHooks, module: nn.Module, name: str, input: str, step: str) -> CallRecorder:
    """Return a recorder for calls whose first argument is this input; one of unknown origin becomes a step."""
    recorder = hooks.recorder(module, name)

    def start_call(args: Arguments) -> None:
        recorder.streams["token"] = recorder.take(input, next(iter(args.values())), step)

    hooks.on_call(module, start_call)
    return recorder


def _hook_residual(hooks: ModuleHooks, module: Residual, name: str) -> None:
    """Record norm and residual, in the order of pre-norm or post-norm."""
    recorder = _recorder_of(hooks, module, name, "x", "input")
    norm = module.norm

    def record_branch(branch: Tensor) -> None:
        recorder.take("branch", branch, "branch", recorder.streams["token"])

    def record_sum(value: Tensor) -> Tensor:
        return recorder.record("residual:pre" if module.pre_norm else "residual:post", value)

    def record_norm(output: Tensor) -> Tensor:
        recorder.inputs["before"] = recorder.inputs["x"] if module.pre_norm else recorder.id("residual")
        return _record_norm(recorder, norm, output)

    hooks.on_input(module.dropout, record_branch)
    # The output is the sum, unless a norm follows it.
    hooks.on_output(module, lambda x: x if "residual" in recorder.recorded else record_sum(x))
    if isinstance(norm, LayerNorm | RMSNorm):
        if not module.pre_norm:
            hooks.on_input(norm, record_sum)
        hooks.on_output(norm, record_norm)


def _hook_feed_forward(hooks: ModuleHooks, module: FeedForward | SwiGLU, name: str) -> None:
    """Record w_gate (SwiGLU), w_in, hidden (after the activation) and out."""
    recorder = _recorder_of(hooks, module, name, "x", "input")
    kind = "SwiGLU" if isinstance(module, SwiGLU) else "FeedForward"
    activation = module.activation if isinstance(module, FeedForward) else "swiglu"
    if isinstance(module, SwiGLU):
        hooks.record_output(recorder, "w_gate:SwiGLU", module.gate_proj)
    hooks.record_output(recorder, f"w_in:{kind}", module.up_proj)
    hooks.on_input(module.down_proj, lambda x: recorder.record(f"hidden:{activation}", x))
    hooks.record_output(recorder, f"out:{kind}", module.down_proj)


def _record_norm(recorder: CallRecorder, norm: Any, output: Tensor, name: str = "norm") -> Tensor:
    key = "norm:layer_norm" if isinstance(norm, LayerNorm) else "norm:rms_norm"
    return recorder.record(key, output, name=name, params=norm, attrs={"eps": norm.eps})


def _hook_norm(hooks: ModuleHooks, module: LayerNorm | RMSNorm, name: str) -> None:
    name = name or "norm"
    recorder = _recorder_of(hooks, module, "", "before", f"{name}.input")
    hooks.on_output(module, lambda output: _record_norm(recorder, module, output, name))


def _hook_linear(hooks: ModuleHooks, module: nn.Linear, name: str) -> None:
    """Record a linear layer outside of blocks: a custom head, or an output projection."""
    name = name or "linear"
    recorder = _recorder_of(hooks, module, "", "before", f"{name}.input")

    def record(output: Tensor) -> Tensor:
        key = "linear:class" if output.dim() < 3 else "linear:token"
        return recorder.record(key, output, name=name, params=module)

    hooks.on_output(module, record)


def _hook_stack_end(hooks: ModuleHooks, module: Stack, name: str) -> list[nn.Module]:
    def end(output: Tensor) -> None:
        hooks.tape.stack_end = hooks.tape.origin(output, f"{name}.output")

    hooks.on_output(module, end)
    return []


def _pooling(
    hooks: ModuleHooks, model: TextClassifier | TextEmbedder, recorder: CallRecorder
) -> Callable[[Tensor], Tensor]:
    """Return the function that records the pooled vector of a call of the model."""
    tape, how = hooks.tape, model.config.pooling
    padding_mask: Tensor | None = None
    only: Tensor | None = None  # of the tokens, the one whose vector is looked at

    def start_call(args: Arguments) -> None:
        nonlocal padding_mask, only
        padding_mask, recorder.streams["key"] = args.get("padding_mask"), "text"
        if isinstance(model, TextClassifier) and model.token is not None:
            only = model.pooled_tokens(args["ids"], None)

    def pooled(vector: Tensor) -> Tensor:
        end, padding = tape.stack_end, None if padding_mask is None else tape.padding
        recorder.inputs = {"end": end and end.id, "padding": padding}
        if only is not None:
            recorder.inputs["padding"] = recorder.id("mask")
            recorder.record("mask:word", only[:, None, None, :], attrs={"kind": "word"}, tap=False)
        elif padding_mask is not None and padding in tape.edited:
            # Pooling reads the mask itself, not the edited one of attention.
            recorder.inputs["padding"] = recorder.id("mask")
            recorder.record("mask:padding", padding_mask[:, None, None, :], attrs={"kind": "padding"}, tap=False)
        attrs: dict[str, Any] = {"how": how}
        if isinstance(model, TextClassifier) and model.token is not None:
            attrs["token"] = model.token
        return recorder.record(f"pooled:{how}", vector, attrs=attrs)

    hooks.on_call(model, start_call)
    return pooled


def _hook_embedder(hooks: ModuleHooks, model: TextEmbedder, name: str) -> list[nn.Module]:
    """Record the pooled vector, which is the output."""
    hooks.on_output(model, _pooling(hooks, model, hooks.recorder(model, name)))
    return []


def _hook_classifier(hooks: ModuleHooks, model: TextClassifier, name: str) -> list[nn.Module]:
    two_classes, recorder = model.n_classes == 2, hooks.recorder(model, name)

    def pooler_hidden(output: Tensor) -> Tensor:
        assert model.pooler is not None
        used = recorder.record(f"pooler_hidden:{model.pooler.activation}", output)
        recorder.inputs["pooled"] = recorder.id("pooler_hidden")  # what the head reads
        return used

    pooled = _pooling(hooks, model, recorder)
    hooks.on_input(model.head if model.pooler is None else model.pooler, pooled)
    if model.pooler is not None:
        hooks.record_output(recorder, "pooler", model.pooler.dense)
        hooks.on_output(model.pooler, pooler_hidden)
    hooks.record_output(recorder, "head" if two_classes or model.several else "logits:class", model.head)
    if two_classes and not model.several:  # several labels are traced one at a time, as two classes each
        hooks.on_output(model, lambda output: recorder.record("logits:pin_zero", output))
    return [model.head, *([] if model.pooler is None else [model.pooler.dense])]


def _hook_tagger(hooks: ModuleHooks, model: TokenClassifier, name: str) -> list[nn.Module]:
    """Record the logits of all tokens; of two classes the one that they share."""
    recorder = _recorder_of(hooks, model.head, name, "before", "head.input")
    step = "head" if model.n_classes == 2 else "logits"
    hooks.on_output(model.head, lambda x: recorder.record("linear:token", x, name=step, params=model.head))
    return [model.head]


def _hook_logits(hooks: ModuleHooks, model: LanguageModel | Translator, name: str) -> list[nn.Module]:
    """Record logits, computed with an output layer or the tied embedding."""
    recorder = hooks.recorder(model, name)
    table = model.embedding.weight if isinstance(model, LanguageModel) else model.tgt_embedding.weight
    key = "logits:LanguageModel" if isinstance(model, LanguageModel) else "logits:Translator"

    def record(output: Tensor) -> Tensor:
        end = hooks.tape.stack_end or Origin("input", "text")
        recorder.streams["token"], recorder.inputs["end"] = end.stream, end.id
        weight, bias = table if model.output is None else model.output.weight, getattr(model, "output_bias", None)
        return recorder.record(key, output, params={"weight": weight, "bias": bias})

    hooks.on_output(model, record)
    return [] if model.output is None else [model.output]


def _hook_masked(hooks: ModuleHooks, model: MaskedLanguageModel, name: str) -> list[nn.Module]:
    """Record the head of a masked language model.

    A call for selected tokens passes it (N, D): they are recorded as the tokens of one text.
    """
    recorder = hooks.recorder(model, name)
    weight = model.embedding.weight if model.output is None else model.output.weight

    def record(key: str, x: Tensor, **details: Any) -> Tensor:
        if x.dim() > 2:
            return recorder.record(key, x, **details)
        return recorder.record(key, x[None], **details)[0]

    def transform(output: Tensor) -> Tensor:
        end = hooks.tape.stack_end or Origin("input", "text")
        recorder.streams = {"token": end.stream}
        recorder.inputs = {"end": end.id, "before": recorder.id("mlm_hidden")}
        return record("mlm_transform", output, params=model.mlm_transform)

    def record_norm(output: Tensor) -> Tensor:
        x = output if output.dim() > 2 else output[None]
        normed = _record_norm(recorder, model.mlm_norm, x, "mlm_norm")
        recorder.inputs["before"] = recorder.id("mlm_norm")
        return normed if output.dim() > 2 else normed[0]

    hooks.on_output(model.mlm_transform, transform)
    hooks.on_input(model.mlm_norm, lambda x: record("mlm_hidden", x))
    hooks.on_output(model.mlm_norm, record_norm)
    hooks.on_output(
        model, lambda x: record("logits:MaskedLanguageModel", x, params={"weight": weight, "bias": model.output_bias})
    )
    return [model.mlm_transform, model.mlm_norm, *([] if model.output is None else [model.output])]


def _hook_model(hooks: ModuleHooks, model: nn.Module) -> None:
    """Keep the arguments and the output of the model, to compute it a second time."""
    tape = hooks.tape

    def start_call(args: tuple[Any, ...], kwargs: Arguments) -> None:
        if not all(isinstance(value, Tensor | NgramBatch | bool | None) for value in (*args, *kwargs.values())):
            # A cache, which a second call would find changed.
            tape.call = None
            return
        tape.call = tuple(map(_copied, args)), {name: _copied(value) for name, value in kwargs.items()}

    def end_call(output: Any) -> None:
        tape.output = tape.copy(output) if isinstance(output, Tensor) else None

    hooks.before(model, start_call)
    hooks.on_output(model, end_call)


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


Hook = Callable[[ModuleHooks, Any, str], Any]
BLOCKS: dict[type[nn.Module], Hook] = {
    TokenEmbedding: EmbeddingHooks,
    NgramEmbedding: _hook_ngrams,
    BigramEmbedding: _hook_bigrams,
    SegmentEmbedding: _hook_segments,
    MultiHeadAttention: AttentionHooks,
    FeedForward: _hook_feed_forward,
    SwiGLU: _hook_feed_forward,
    Residual: _hook_residual,
}
"""How the steps of a block are recorded; all modules inside it are included."""
MODELS: dict[type[nn.Module], Callable[[ModuleHooks, Any, str], Iterable[nn.Module]]] = {
    Stack: _hook_stack_end,
    TokenClassifier: _hook_tagger,
    TextClassifier: _hook_classifier,
    TextEmbedder: _hook_embedder,
    MaskedLanguageModel: _hook_masked,
    LanguageModel: _hook_logits,
    Translator: _hook_logits,
}
"""How the steps of a model or stack outside its blocks are recorded; returns the modules that are included."""
LAYERS: dict[type[nn.Module], Hook] = {LayerNorm: _hook_norm, RMSNorm: _hook_norm, nn.Linear: _hook_linear}
"""How layers are recorded that are included in none of these."""


@cache
def _base_of(kind: type[nn.Module]) -> type[nn.Module] | None:
    """Return the nearest type with hooks that a module's type is made from."""
    return next((base for base in kind.__mro__ if base in BLOCKS or base in MODELS or base in LAYERS), None)


def attach(modules: Sequence[tuple[str, nn.Module]], hooks: ModuleHooks, names: Mapping[str, str] | None) -> None:
    """Attach hooks to the modules of a model, given by path."""
    found: dict[nn.Module, tuple[type[nn.Module], str]] = {}
    for path, module in modules:
        if base := _base_of(type(module)):
            found.setdefault(module, (base, id_of_path(path, names) if names else _cached_id(path)))
    inner: set[nn.Module] = set()
    for module, (base, name) in found.items():
        if base in BLOCKS:
            BLOCKS[base](hooks, module, name)
            inner.update(module.modules())
        elif base in MODELS:
            inner.update(MODELS[base](hooks, module, name))
    for module, (base, name) in found.items():
        if base in LAYERS and module not in inner:
            LAYERS[base](hooks, module, name)
    _hook_model(hooks, modules[0][1])
