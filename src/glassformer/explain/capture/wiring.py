"""Hooks that tell the tape what each part of a model computed, under the name a reader knows it by.

Parts are found by their type, so that any model put together from `glassformer.nn` can be traced. What is
recorded are the tensors of the forward pass themselves; only gathers (rows of a table, heads of a vector)
and the embedding's factor are taken again. Ids of a translator, in order:

    src_embedding.ids, .rows, .scaled, .positions, .sum
    encoder.0.self.norm, .q_proj, .k_proj, .v_proj, .q_heads, .q_norm, .k_heads, .k_norm, .q, .k, .v,
        .products, .scores, .mask, .weights, .context, .concat, .out, .residual
    encoder.0.ff.norm, .w_gate, .w_in, .hidden, .out, .residual        encoder.norm
    tgt_embedding.*    decoder.0.self.*    decoder.0.cross.*    decoder.0.ff.*    decoder.norm    logits

With post-norm a block's norm follows its residual. A classifier ends in pooled, head, logits; one that reads
n-grams has embedding.spelling, .ngrams and .spelled (their sum with the row) before its positions, one that reads
pairs .pairs, .bigrams and .paired. Where rows are not scaled there is no .scaled. The ids of an ensemble begin
with members.0, members.1, … What each step
is, stands in `sites.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from torch import Tensor, nn

from glassformer.explain.capture.attention_wires import AttentionWires
from glassformer.explain.capture.hooks import Watch
from glassformer.explain.capture.part import Call, Part
from glassformer.explain.capture.part_wires import (
    BigramWires,
    EmbeddingWires,
    FeedForwardWires,
    NgramWires,
    ResidualWires,
    key_of,
)
from glassformer.explain.capture.tape import Origin
from glassformer.models import LanguageModel, TextClassifier, Translator
from glassformer.models.bigrams import BigramEmbedding
from glassformer.models.spelling import NgramEmbedding, Spelling
from glassformer.nn.attention import MultiHeadAttention
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.nn.feed_forward import FeedForward, SwiGLU
from glassformer.nn.layers import Decoder, Encoder, Residual
from glassformer.nn.norms import LayerNorm, RMSNorm

PLAIN = {
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
"""Names of modules, as they appear in ids."""

KNOWN = (
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
    Translator,
)
"""The types of modules that are watched."""


def plain_name(path: str, names: Mapping[str, str] | None = None) -> str:
    """A module's path as an id: "decoder.layers.1.cross_attention" is "decoder.1.cross".

    `names` are the user's own for some paths; each stands for all that is inside, too.
    """
    for own in sorted(names or {}, key=len, reverse=True):
        if path == own or path.startswith(f"{own}."):
            rest = plain_name(path[len(own) + 1 :])
            return ".".join(part for part in ((names or {})[own], rest) if part)
    return ".".join(filter(None, (PLAIN.get(part, part) for part in path.split("."))))


_plain_path = lru_cache(maxsize=4096)(plain_name)


@cache
def _is_known(kind: type[nn.Module]) -> bool:
    """Whether `attach` has something to do with modules of this type, or of one derived from it."""
    return issubclass(kind, KNOWN)


def attach(modules: Sequence[tuple[str, nn.Module]], watch: Watch, names: Mapping[str, str] | None) -> None:
    """Put hooks on every part of a model, given by path, itself first."""
    ids: dict[nn.Module, list[str]] = {}
    for path, module in modules:
        if _is_known(type(module)):
            ids.setdefault(module, []).append(plain_name(path, names) if names else _plain_path(path))
    inner: set[nn.Module] = set()
    for module, (name, *_) in ids.items():
        match module:
            case nn.Linear() | LayerNorm() | RMSNorm() | Encoder() | Decoder():
                continue
            case TokenEmbedding():
                EmbeddingWires(watch, module, sorted(ids[module]))
            case NgramEmbedding():
                NgramWires(watch, module, name)
            case BigramEmbedding():
                BigramWires(watch, module, name)
            case MultiHeadAttention():
                AttentionWires(watch, module, name)
            case FeedForward() | SwiGLU():
                FeedForwardWires(watch, module, name)
            case Residual():
                ResidualWires(watch, module, name)
            case TextClassifier():
                _classifier(watch, module, name)
                inner.add(module.head)
                continue
            case LanguageModel() | Translator():
                _output(watch, module, name)
                inner.update([module.output] if module.output is not None else [])
                continue
        inner.update(module.modules())
    for module, (name, *_) in ids.items():
        match module:
            case Encoder() | Decoder():
                _remember_end(watch, module, name)
            case LayerNorm() | RMSNorm() if module not in inner:
                _norm(watch, module, name or "norm")
            case nn.Linear() if module not in inner:
                _linear(watch, module, name or "linear")
    _whole(watch, modules[0][1])


def _remember_end(watch: Watch, module: Encoder | Decoder, name: str) -> None:
    def end(output: Tensor) -> None:
        watch.tape.stream_end = watch.tape.origin(output, f"{name}.output")

    watch.after(module, end)


def _norm(watch: Watch, module: LayerNorm | RMSNorm, name: str) -> None:
    def normed(x: Tensor, output: Tensor) -> Tensor:
        call = Call("", watch.count(module))
        before = watch.tape.origin(x, call.id(f"{name}.input"))
        part = Part(watch.tape, call, {"token": before.stream})
        part.known["before"] = before.id
        return part.tell(key_of(module), output, name=name, params=module, attrs={"eps": module.eps}).value

    watch.around(module, normed)


def _linear(watch: Watch, module: nn.Linear, name: str) -> None:
    """A linear layer that belongs to no block: a head of the user's own, or an output projection."""

    def made(x: Tensor, output: Tensor) -> Tensor:
        call = Call("", watch.count(module))
        before = watch.tape.origin(x, call.id(f"{name}.input"))
        part = Part(watch.tape, call, {"token": before.stream})
        part.known["before"] = before.id
        key = "linear:class" if output.dim() < 3 else "linear:token"
        return part.tell(key, output, name=name, params=module).value

    watch.around(module, made)


def _classifier(watch: Watch, model: TextClassifier, name: str) -> None:
    tape, two_classes, how = watch.tape, model.n_classes == 2, model.config.pooling
    part = Part(tape, Call(name, 1), {"key": "text"})
    real: Tensor | None = None

    def begin(args: dict[str | int, Any]) -> None:
        nonlocal real
        real = args.get("padding_mask", args.get(1))
        part.call, part.known, part.told = Call(name, watch.count(model)), {}, set()

    def pooled(vector: Tensor) -> Tensor:
        end, padding = tape.stream_end, None if real is None else tape.padding
        part.known = {"end": end and end.id, "padding": padding}
        if real is not None and padding in tape.edited:
            # Pooling reads the mask itself, not what attention got.
            part.known["padding"] = part.call.id("mask")
            part.record("mask:padding", part.call.id("mask"), real[:, None, None, :], attrs={"kind": "padding"})
        return part.tell(f"pooled:{how}", vector, attrs={"how": how}).value

    def classified(output: Tensor) -> Tensor:
        return part.tell("head" if two_classes else "logits:class", output, params=model.head).value

    def pinned(output: Tensor) -> Tensor:
        return part.tell("logits:pin_zero", output).value if two_classes else output

    watch.before(model, begin)
    watch.given(model.head, pooled)
    watch.after(model.head, classified)
    watch.after(model, pinned)


def _output(watch: Watch, model: LanguageModel | Translator, name: str) -> None:
    """Logits: a layer of their own, or the embedding's table used once more."""
    tape = watch.tape
    table = model.embedding.weight if isinstance(model, LanguageModel) else model.tgt_embedding.weight
    key = "logits:LanguageModel" if isinstance(model, LanguageModel) else "logits:Translator"

    def spoke(output: Tensor) -> Tensor:
        end = tape.stream_end or Origin("input", "text")
        weight = table if model.output is None else model.output.weight
        part = Part(tape, Call(name, watch.count(model)), {"token": end.stream})
        part.known["end"] = end.id
        return part.tell(key, output, params={"weight": weight}).value

    watch.after(model, spoke)


def _whole(watch: Watch, model: nn.Module) -> None:
    """Remember what the model was called with and what it answered, to compute it a second way."""
    tape = watch.tape

    def begin(args: dict[str | int, Any]) -> None:
        if not all(isinstance(value, Tensor | Spelling | bool | None) for value in args.values()):
            tape.call = None  # a cache: it would not be the same call a second time
            return
        copies = {key: value.clone() if isinstance(value, Tensor) else value for key, value in args.items()}
        by_name = {key: value for key, value in copies.items() if isinstance(key, str)}
        tape.call = tuple(value for key, value in copies.items() if isinstance(key, int)), by_name

    def end(output: Any) -> None:
        tape.answer = tape.copy(output) if isinstance(output, Tensor) else None

    watch.before(model, begin)
    watch.after(model, end)
