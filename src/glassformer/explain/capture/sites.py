"""Describe every step that can be recorded: its operation, inputs, axes, source line, and how a tap can edit it.

The hooks (`attach.py`, `block_hooks.py`, `attention_hooks.py`) pass the tensor of a step and its key in `SITES`. The
page's list of operations is generated from this file (`explain/typescript.py`). A test checks the snippets of source
lines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from glassformer.models import LanguageModel, MaskedLanguageModel, TextClassifier, Translator, classifier
from glassformer.nn import masks, norms, positions
from glassformer.nn.attention import MultiHeadAttention, attention
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.nn.feed_forward import FeedForward, SwiGLU, activate
from glassformer.nn.layers import Residual
from glassformer.nn.ngram_embeddings import BigramEmbedding, HashedNgramEmbedding, NgramEmbedding
from glassformer.text.ngrams import NgramVocabulary

OPERATIONS: dict[str, tuple[str, str]] = {
    "ids": ("", "token ids (L)"),
    "lookup": ("[ids] {weight}", "weight[ids]"),
    "scale": ("[x] attrs.factor", "x · factor"),
    "ngram_ids": ("[]", "ids of each token's n-grams (L, G), padded with 0"),
    "bigram_ids": ("[]", "row of the word bigram that ends at each token (L); 0 for none"),
    "embedding_bag": (
        "[ngram_ids] {weight} attrs.how",
        '"mean" or "sum" of weight[ngram_ids], without 0; zeros if there are none',
    ),
    "positions": (
        "[] attrs.scheme, {weight?}",
        '"sinusoidal" (paper 3.5) times attrs.amplitude, or rows 0…L-1 of "learned" weight',
    ),
    "add": ("[a, b]", "a + b"),
    "layer_norm": ("[x] {weight, bias} attrs.eps", "over the last axis, biased variance"),
    "rms_norm": ("[x] {weight} attrs.eps", "x / √(mean x² + eps) · weight, over the last axis"),
    "linear": ("[x] {weight (out, in), bias?}", "x Wᵀ + b"),
    "split_heads": ("[x (L, H·E)]", "(H, L, E): feature h·E + e goes to head h"),
    "rotate": ("[x (H, L, E)] attrs.base", "feature j is paired with j + E/2, angle pos · base^(-2j/E)"),
    "dot": ("[q (H, Q, E), k (H, K, E)]", "q kᵀ per head"),
    "mask": ("[] attrs.kind", 'booleans (Q, K) or (1, K), true = may attend: "causal" | "padding"'),
    "softmax": ("[scores, mask?]", "over the last axis; masked keys get 0; a row with no key is 0"),
    "mix": ("[weights (H, Q, K), v (H, K, E)]", "weights · v"),
    "concat_heads": ("[x (H, L, E)]", "(L, H·E)"),
    "relu": ("[x]", "max(0, x)"),
    "gelu": ("[x]", "with erf"),
    "swiglu": ("[gate, x]", "silu(gate) · x"),
    "pool": ("[x, mask?] attrs.how", '"mean" | "max" | "mean+max" | "first", over real tokens'),
    "pin_zero": ("[head (1)]", "(0, head): two classes share one logit"),
}
"""Each operation's inputs (in brackets), parameters (in braces) and constants, and its result. L = positions."""


AXES: dict[str, str] = {
    "token": "positions of its stream (in attention, of the queries)",
    "key": "positions that are attended to",
    "head": "",
    "feature": "D",
    "head_feature": "E, inside one head",
    "heads_features": "H·E, heads side by side",
    "hidden": "F",
    "pooled": "D or 2D",
    "class": "",
    "vocab": "",
    "ngram": "",
    "bigram": "",
    "out": "rows of a weight",
    "in": "columns of a weight",
}
"""The axes of steps and parameters."""


@dataclass(frozen=True)
class Site:
    """A kind of step.

    Attributes:
        op: one of `OPERATIONS`; "input" for a tensor that no recorded module computed.
        inputs: steps of the same call by name, or inputs from outside by the name in `CallRecorder.inputs`; those that
            the call has not recorded are omitted.
        axes: the axes without the batch; "memory" are the tokens that attention reads keys and values from.
        line: the function that computes it, and a snippet of the line; None where there is no such line here.
        edit: where a tap replaces the tensor: the "output" of a module, the "input" of the next one, or the "tap" of
            attention. Empty for recomputed tensors, which the forward pass does not use.
        stream: True if it belongs to the embedding of a stream.
    """

    op: str
    inputs: tuple[str, ...]
    axes: tuple[str, ...]
    line: tuple[Callable[..., Any], str] | None
    edit: Literal["", "output", "input", "tap"] = ""
    stream: bool = False


def _site(
    op: str,
    inputs: str,
    axes: str,
    function: Callable[..., Any] | None,
    snippet: str = "",
    edit: Literal["", "output", "input", "tap"] = "",
    stream: bool = False,
) -> Site:
    line = None if function is None else (function, snippet)
    return Site(op, tuple(inputs.split()), tuple(axes.split()), line, edit, stream)


_embed, _attend, _split = TokenEmbedding.forward, MultiHeadAttention.forward, MultiHeadAttention._split_heads
_rms, _learned, _waves = (
    norms.RMSNorm.forward,
    positions.LearnedPositions.forward,
    positions.SinusoidalPositions.__init__,
)
_pools = {
    "mean": "mean = (x * real).sum(",
    "max": "peak = x.masked_fill(",
    "mean+max": "torch.cat([mean, peak]",
    "first": "x[:, 0]",
}


def _heads(letter: str, token: str) -> dict[str, Site]:
    """Return the sites of queries or keys by head: split, rotated."""
    axes, rotate = f"head {token} head_feature", positions.Rotation.rotate
    apart = _site("split_heads", f"{letter}_proj", axes, _split, ".unflatten(")
    return {
        f"{letter}_heads": apart,
        letter: replace(apart, edit="tap"),
        f"{letter}:rotate": _site("rotate", f"{letter}_heads", axes, rotate, "x * self.cos", "tap"),
    }


def _embedded(inputs: str, op: str, name: str, snippet: str) -> dict[str, Site]:
    """Return the sites of a step of the embedding.

    It is recomputed, except where it is the last, which the forward pass uses.
    """
    step = _site(op, inputs, "token feature", _embed, snippet, stream=True)
    return {name: step, f"{name}:last": replace(step, edit="input")}


SITES: dict[str, Site] = {
    "input": _site("input", "", "token feature", None),
    "ids": _site("ids", "", "token", _embed, "ids: ", stream=True),
    **_embedded("ids", "lookup", "rows", "functional.embedding(ids, self.weight)"),
    **_embedded("before", "scale", "scaled", "* self.scale"),
    "ngram_ids": _site("ngram_ids", "", "token ngram", NgramVocabulary.lookup, "known = [", stream=True),
    "ngram_ids:hashed": _site(
        "ngram_ids", "", "token ngram", HashedNgramEmbedding.lookup_ids, "self.n_rows + 1", stream=True
    ),
    "ngrams": _site(
        "embedding_bag", "table_ids", "token feature", NgramEmbedding.forward, "F.embedding_bag(", "output", True
    ),
    "bigram_ids": _site("bigram_ids", "", "token", BigramEmbedding.lookup_ids, "torch.searchsorted(", stream=True),
    "bigrams": _site("lookup", "table_ids", "token feature", BigramEmbedding.forward, "F.embedding(", "output", True),
    **_embedded("before added", "add", "with_ngrams", "x + added"),
    **_embedded("before added", "add", "with_bigrams", "x + added"),
    "positions:sinusoidal": _site(
        "positions", "", "token feature", positions.sinusoidal, "table[:, 0::2] = angle.sin()", "output", True
    ),
    "positions:amplitude": _site("positions", "", "token feature", _waves, "* amplitude", "output", True),
    "positions:learned": _site("positions", "", "token feature", _learned, "self.weight[positions]", "output", True),
    "positions:other": _site("positions", "", "token feature", None, "", "output", True),
    "sum": _site("add", "before positions", "token feature", _embed, "x + self.positions(", "input", True),
    "norm:layer_norm": _site(
        "layer_norm", "before", "token feature", norms.LayerNorm.forward, "F.layer_norm(", "output"
    ),
    "norm:rms_norm": _site("rms_norm", "before", "token feature", _rms, "torch.rsqrt(", "output"),
    "q_proj": _site("linear", "x", "token heads_features", _attend, "self.q_proj(", "output"),
    "k_proj": _site("linear", "memory", "memory heads_features", _attend, "self.k_proj(", "output"),
    "v_proj": _site("linear", "memory", "memory heads_features", _attend, "self.v_proj(", "output"),
    **_heads("q", "token"),
    **_heads("k", "memory"),
    "v": _site("split_heads", "v_proj", "head memory head_feature", _split, ".unflatten(", "tap"),
    "products": _site("dot", "q k", "head token key", attention, "q @ k.transpose(-2, -1)", "tap"),
    "scores": _site("scale", "products", "head token key", attention, "products * scale", "tap"),
    "mask:causal": _site("mask", "", "head token key", masks.causal_mask, ".tril(", "tap"),
    "mask:padding": _site("mask", "", "head token key", masks.Mask.of, "padding_mask[:, None, None, :]", "tap"),
    "mask:given": _site("mask", "", "head token key", masks.additive_mask, "masked_fill_(~mask", "tap"),
    "weights": _site("softmax", "scores mask", "head token key", attention, ".softmax(dim=-1)", "tap"),
    "context": _site("mix", "weights v", "head token head_feature", attention, "@ v)", "tap"),
    "concat": _site(
        "concat_heads", "context", "token heads_features", MultiHeadAttention._combine_heads, ".flatten(-2)", "input"
    ),
    "out": _site("linear", "concat", "token feature", _attend, "self.o_proj(", "output"),
    "residual:pre": _site("add", "x branch", "token feature", Residual.forward, "return x + self.dropout(", "output"),
    "residual:post": _site(
        "add", "x branch", "token feature", Residual.forward, "return self.norm(x + self.dropout(", "input"
    ),
    "w_gate:SwiGLU": _site("linear", "x", "token hidden", SwiGLU.forward, "self.gate_proj(x)", "output"),
    "w_in:SwiGLU": _site("linear", "x", "token hidden", SwiGLU.forward, "self.up_proj(x)", "output"),
    "w_in:FeedForward": _site("linear", "x", "token hidden", FeedForward.forward, "self.up_proj(x)", "output"),
    "hidden:relu": _site("relu", "w_in", "token hidden", activate, "F.relu(", "input"),
    "hidden:gelu": _site("gelu", "w_in", "token hidden", activate, "F.gelu(", "input"),
    "hidden:swiglu": _site("swiglu", "w_gate w_in", "token hidden", SwiGLU.forward, "F.silu(", "input"),
    "out:SwiGLU": _site("linear", "hidden", "token feature", SwiGLU.forward, "self.down_proj(", "output"),
    "out:FeedForward": _site("linear", "hidden", "token feature", FeedForward.forward, "self.down_proj(", "output"),
    **{
        f"pooled:{how}": _site("pool", "end padding", "pooled", classifier.pool, snippet, "input")
        for how, snippet in _pools.items()
    },
    "head": _site("linear", "pooled", "class", TextClassifier.forward, "self.head(", "output"),
    "logits:class": _site("linear", "pooled", "class", TextClassifier.forward, "self.head(", "output"),
    "logits:pin_zero": _site(
        "pin_zero", "head", "class", TextClassifier.forward, "torch.cat([torch.zeros_like(logits), logits]", "output"
    ),
    "logits:LanguageModel": _site("linear", "end", "token vocab", LanguageModel.forward, "F.linear(", "output"),
    "logits:Translator": _site("linear", "end", "token vocab", Translator.decode, "F.linear(", "output"),
    "mlm_transform": _site("linear", "end", "token out", MaskedLanguageModel.forward, "self.mlm_transform(", "output"),
    "mlm_hidden": _site("gelu", "mlm_transform", "token out", MaskedLanguageModel.forward, "F.gelu(", "input"),
    "logits:MaskedLanguageModel": _site(
        "linear", "before", "token vocab", MaskedLanguageModel.forward, "F.linear(", "output"
    ),
    "linear:token": _site("linear", "before", "token out", None, "", "output"),
    "linear:class": _site("linear", "before", "class", None, "", "output"),
}
"""Every site by the name of its step, with a variant where one name has several."""
