"""Attach hooks to the modules of a model, which record its steps under readable ids.

Modules are found by type, so any model built from `glassformer.nn` can be traced. The recorded tensors are those of the
forward pass; only gathers (rows of a table, heads of a vector) and the scaling of the embedding are recomputed. The ids
of a translator, in order:

    src_embedding.ids, .rows, .scaled, .positions, .sum
    encoder.0.self.norm, .q_proj, .k_proj, .v_proj, .q_heads, .k_heads, .q, .k, .v,
        .products, .scores, .mask, .weights, .context, .concat, .out, .residual
    encoder.0.ff.norm, .w_gate, .w_in, .hidden, .out, .residual        encoder.norm
    tgt_embedding.*    decoder.0.self.*    decoder.0.cross.*    decoder.0.ff.*    decoder.norm    logits

With post-norm a block's norm follows its residual. A classifier ends in pooled, head, logits. Before its positions, an
embedding with n-grams has .ngram_ids, .ngrams and .with_ngrams, one with bigrams .bigram_ids, .bigrams and
.with_bigrams. Rows that are not scaled have no .scaled. A masked language model ends in mlm_transform, mlm_hidden,
mlm_norm, logits. The ids of an ensemble begin with members.0, members.1, …
`sites.py` describes each step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from torch import Tensor, nn

from glassformer.explain.capture.block_hooks import (
    BigramHooks,
    EmbeddingHooks,
    FeedForwardHooks,
    NgramHooks,
    ResidualHooks,
    norm_key,
)
from glassformer.explain.capture.hooks import Arguments, AttentionHooks, CallRecorder, ModuleHooks
from glassformer.explain.capture.tape import Origin
from glassformer.models import LanguageModel, MaskedLanguageModel, TextClassifier, Translator
from glassformer.nn.attention import MultiHeadAttention
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.nn.layers import Decoder, Encoder, FeedForward, LayerNorm, Residual, RMSNorm, SwiGLU
from glassformer.nn.ngram_embeddings import BigramEmbedding, NgramBatch, NgramEmbedding

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
}
"""The names in ids of some modules."""

HOOKED_TYPES = (
    nn.Linear,
    LayerNorm,
    RMSNorm,
    Residual,
    MultiHeadAttention,
    FeedForward,
    SwiGLU,
    TokenEmbedding,
    NgramEmbedding,
    BigramEmbedding,
    Encoder,
    Decoder,
    TextClassifier,
    LanguageModel,
    MaskedLanguageModel,
    Translator,
)
"""The types of modules that get hooks."""


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


@cache
def _has_hooks(kind: type[nn.Module]) -> bool:
    return issubclass(kind, HOOKED_TYPES)


def attach(modules: Sequence[tuple[str, nn.Module]], hooks: ModuleHooks, names: Mapping[str, str] | None) -> None:
    """Attach hooks to a model."""
    ids: dict[nn.Module, str] = {}
    for path, module in modules:
        if _has_hooks(type(module)):
            ids.setdefault(module, id_of_path(path, names) if names else _cached_id(path))
    inner: set[nn.Module] = set()
    for module, name in ids.items():
        match module:
            case nn.Linear() | LayerNorm() | RMSNorm() | Encoder() | Decoder():
                continue
            case TokenEmbedding():
                EmbeddingHooks(hooks, module, name)
            case NgramEmbedding():
                NgramHooks(hooks, module, name)
            case BigramEmbedding():
                BigramHooks(hooks, module, name)
            case MultiHeadAttention():
                AttentionHooks(hooks, module, name)
            case FeedForward() | SwiGLU():
                FeedForwardHooks(hooks, module, name)
            case Residual():
                ResidualHooks(hooks, module, name)
            case TextClassifier():
                _hook_classifier(hooks, module, name)
                inner.add(module.head)
                continue
            case MaskedLanguageModel():
                _hook_masked(hooks, module, name)
                inner.update([module.mlm_transform, module.mlm_norm])
                inner.update([module.output] if module.output is not None else [])
                continue
            case LanguageModel() | Translator():
                _hook_logits(hooks, module, name)
                inner.update([module.output] if module.output is not None else [])
                continue
        inner.update(module.modules())
    for module, name in ids.items():
        match module:
            case Encoder() | Decoder():
                _hook_stack_end(hooks, module, name)
            case LayerNorm() | RMSNorm() if module not in inner:
                _hook_norm(hooks, module, name or "norm")
            case nn.Linear() if module not in inner:
                _hook_linear(hooks, module, name or "linear")
    _hook_model(hooks, modules[0][1])


def _hook_stack_end(hooks: ModuleHooks, module: Encoder | Decoder, name: str) -> None:
    def end(output: Tensor) -> None:
        hooks.tape.stack_end = hooks.tape.origin(output, f"{name}.output")

    hooks.on_output(module, end)


def _hook_norm(hooks: ModuleHooks, module: LayerNorm | RMSNorm, name: str) -> None:
    def record(x: Tensor, output: Tensor) -> Tensor:
        recorder = _record_input(hooks, module, name, x)
        return recorder.record(norm_key(module), output, name=name, params=module, attrs={"eps": module.eps})

    hooks.on_input_and_output(module, record)


def _hook_linear(hooks: ModuleHooks, module: nn.Linear, name: str) -> None:
    """Attach hooks to a linear layer outside of blocks: a custom head, or an output projection."""

    def record(x: Tensor, output: Tensor) -> Tensor:
        recorder = _record_input(hooks, module, name, x)
        key = "linear:class" if output.dim() < 3 else "linear:token"
        return recorder.record(key, output, name=name, params=module)

    hooks.on_input_and_output(module, record)


def _record_input(hooks: ModuleHooks, module: nn.Module, name: str, x: Tensor) -> CallRecorder:
    """Return a recorder for a call of a module with one input."""
    recorder = hooks.recorder(module, "")
    recorder.streams["token"] = recorder.take("before", x, f"{name}.input")
    return recorder


def _hook_classifier(hooks: ModuleHooks, model: TextClassifier, name: str) -> None:
    tape, two_classes, how = hooks.tape, model.n_classes == 2, model.config.pooling
    recorder = CallRecorder(tape, name)
    padding_mask: Tensor | None = None

    def start_call(args: Arguments) -> None:
        nonlocal padding_mask, recorder
        padding_mask, recorder = args.get("padding_mask"), hooks.recorder(model, name)
        recorder.streams["key"] = "text"

    def pooled(vector: Tensor) -> Tensor:
        end, padding = tape.stack_end, None if padding_mask is None else tape.padding
        recorder.inputs = {"end": end and end.id, "padding": padding}
        if padding_mask is not None and padding in tape.edited:
            # Pooling reads the mask itself, not the edited one of attention.
            recorder.inputs["padding"] = recorder.id("mask")
            attrs = {"kind": "padding"}
            recorder.add("mask:padding", recorder.id("mask"), padding_mask[:, None, None, :], attrs=attrs)
        return recorder.record(f"pooled:{how}", vector, attrs={"how": how})

    def head(output: Tensor) -> Tensor:
        return recorder.record("head" if two_classes else "logits:class", output, params=model.head)

    def logits(output: Tensor) -> Tensor:
        return recorder.record("logits:pin_zero", output) if two_classes else output

    hooks.on_call(model, start_call)
    hooks.on_input(model.head, pooled)
    hooks.on_output(model.head, head)
    hooks.on_output(model, logits)


def _hook_logits(hooks: ModuleHooks, model: LanguageModel | Translator, name: str) -> None:
    """Attach hooks for logits, computed with an output layer or the tied embedding."""
    table = model.embedding.weight if isinstance(model, LanguageModel) else model.tgt_embedding.weight
    key = "logits:LanguageModel" if isinstance(model, LanguageModel) else "logits:Translator"

    def record(output: Tensor) -> Tensor:
        end = hooks.tape.stack_end or Origin("input", "text")
        weight = table if model.output is None else model.output.weight
        recorder = hooks.recorder(model, name)
        recorder.streams["token"], recorder.inputs["end"] = end.stream, end.id
        return recorder.record(key, output, params={"weight": weight})

    hooks.on_output(model, record)


def _hook_masked(hooks: ModuleHooks, model: MaskedLanguageModel, name: str) -> None:
    """Attach hooks to the head of a masked language model.

    A call for selected tokens passes it (N, D): they are recorded as the tokens of one text.
    """
    recorder = CallRecorder(hooks.tape, name)
    norm, weight = model.mlm_norm, model.embedding.weight if model.output is None else model.output.weight
    assert isinstance(norm, LayerNorm | RMSNorm)

    def record(key: str, x: Tensor, **details: Any) -> Tensor:
        if x.dim() > 2:
            return recorder.record(key, x, **details)
        return recorder.record(key, x[None], **details)[0]

    def transform(output: Tensor) -> Tensor:
        nonlocal recorder
        end, recorder = hooks.tape.stack_end or Origin("input", "text"), hooks.recorder(model, name)
        recorder.streams = {"token": end.stream}
        recorder.inputs = {"end": end.id, "before": recorder.id("mlm_hidden")}
        return record("mlm_transform", output, params=model.mlm_transform)

    def record_norm(output: Tensor) -> Tensor:
        normed = record(norm_key(norm), output, name="mlm_norm", params=norm, attrs={"eps": norm.eps})
        recorder.inputs["before"] = recorder.id("mlm_norm")
        return normed

    hooks.on_output(model.mlm_transform, transform)
    hooks.on_input(norm, lambda x: record("mlm_hidden", x))
    hooks.on_output(norm, record_norm)
    hooks.on_output(
        model, lambda x: record("logits:MaskedLanguageModel", x, params={"weight": weight, "bias": model.output_bias})
    )


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

    hooks.on_raw_call(model, start_call)
    hooks.on_output(model, end_call)


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value
