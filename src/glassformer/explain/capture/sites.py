"""Every step that can be recorded, described once: its operation, inputs, axes, source line, and where an edit could act.

The wires (`wiring.py`, `part_wires.py`, `attention_wires.py`) say only that a step happened and hand over its
tensor; `tape.Part.tell` looks up the rest here. The page's list of operations is generated from this file
(`explain/typescript.py`). The pieces of source lines are checked by a test, so that a line that moves or changes cannot
leave a wrong excerpt behind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from glassformer.models import LanguageModel, TextClassifier, Translator, classifier
from glassformer.models.bigrams import BigramEmbedding
from glassformer.models.hashed_ngrams import HashedNgramEmbedding
from glassformer.models.spelling import NgramEmbedding
from glassformer.nn import masks, norms, positions
from glassformer.nn.attention import MultiHeadAttention, attention
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.nn.feed_forward import FeedForward, SwiGLU, activate
from glassformer.nn.layers import Residual
from glassformer.text.ngrams import Spelling

OPERATIONS: dict[str, tuple[str, str]] = {
    "ids": ("", "token ids (L)"),
    "lookup": ("[ids] {weight}", "weight[ids]"),
    "scale": ("[x] attrs.factor", "x · factor"),
    "spelling": ("[]", "numbers of each token's n-grams (L, G); 0: it has fewer"),
    "pairs": ("[]", "row of the pair of words each token ends (L); 0: it is not listed"),
    "bag": (
        "[spelling] {weight} attrs.how",
        '"mean" or "sum" of weight[n-grams], 0 left out; zeros where there are none',
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
"""What each computes from its inputs (in brackets), parameters (in braces) and constants. L = positions."""


AXES: dict[str, str] = {
    "token": "positions of its stream: queries, in attention",
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
"""What may run along an axis of a step or of a parameter."""


@dataclass(frozen=True)
class Site:
    """A kind of step.

    Attributes:
        op: one of `OPERATIONS`; "input", for a tensor that no recorded part computed.
        inputs: what it is computed from: steps of the same part by name, or what the part knows by that name. One that
            its call has not told is left out.
        axes: what runs along each axis, without the batch; "memory" are tokens of the stream that is read.
        line: the function that computes it and a piece of the line; None where there is no such line of ours.
        edit: where another tensor could be put in its place: the "result" of a module, what the next one is
            "given", or the "tap" of attention. Empty where none can: what was taken again is not on the way.
        stream: whether it belongs to the embedding of a stream.
    """

    op: str
    inputs: tuple[str, ...]
    axes: tuple[str, ...]
    line: tuple[Callable[..., Any], str] | None
    edit: Literal["", "result", "given", "tap"] = ""
    stream: bool = False


def _site(
    op: str,
    inputs: str,
    axes: str,
    function: Callable[..., Any] | None,
    piece: str = "",
    edit: Literal["", "result", "given", "tap"] = "",
    stream: bool = False,
) -> Site:
    line = None if function is None else (function, piece)
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
    """Queries and keys by head, on their way: split, normalised, turned, as far as each applies."""
    axes, turn = f"head {token} head_feature", positions.Rotation.rotate
    apart = _site("split_heads", f"{letter}_proj", axes, _split, ".unflatten(")
    normed = _site("rms_norm", f"{letter}_heads", axes, _rms, "torch.rsqrt(", "result")
    return {
        f"{letter}_heads": apart,
        f"{letter}_norm": normed,
        letter: replace(apart, edit="tap"),
        f"{letter}:rms_norm": replace(normed, edit="tap"),
        f"{letter}:rotate": _site("rotate", f"{letter}_heads", axes, turn, "x * self.cos", "tap"),
        f"{letter}:rotate_normed": _site("rotate", f"{letter}_norm", axes, turn, "x * self.cos", "tap"),
    }


SITES: dict[str, Site] = {
    "input": _site("input", "", "token feature", None),
    "ids": _site("ids", "", "token", _embed, "ids: ", stream=True),
    "rows": _site("lookup", "ids", "token feature", _embed, "functional.embedding(ids, self.weight)", stream=True),
    "scaled": _site("scale", "before", "token feature", _embed, "* self.scale", stream=True),
    "spelling": _site("spelling", "", "token ngram", Spelling.numbers, "known = [", stream=True),
    "spelling:hashed": _site("spelling", "", "token ngram", HashedNgramEmbedding.numbers, "self.rows + 1", stream=True),
    "ngrams": _site("bag", "numbers", "token feature", NgramEmbedding.forward, "F.embedding_bag(", "result", True),
    "pairs": _site("pairs", "", "token", BigramEmbedding.numbers, "torch.searchsorted(", stream=True),
    "bigrams": _site("lookup", "numbers", "token feature", BigramEmbedding.forward, "F.embedding(", "result", True),
    "spelled": _site("add", "before added", "token feature", _embed, "x + added", stream=True),
    "paired": _site("add", "before added", "token feature", _embed, "x + added", stream=True),
    "positions:sinusoidal": _site(
        "positions", "", "token feature", positions.sinusoidal, "table[:, 0::2] = angle.sin()", "result", True
    ),
    "positions:amplitude": _site("positions", "", "token feature", _waves, "* amplitude", "result", True),
    "positions:learned": _site("positions", "", "token feature", _learned, "self.weight[positions]", "result", True),
    "positions:other": _site("positions", "", "token feature", None, "", "result", True),
    "sum": _site("add", "before positions", "token feature", _embed, "x + self.positions(", "given", True),
    "norm:layer_norm": _site(
        "layer_norm", "before", "token feature", norms.LayerNorm.forward, "F.layer_norm(", "result"
    ),
    "norm:rms_norm": _site("rms_norm", "before", "token feature", _rms, "torch.rsqrt(", "result"),
    "q_proj": _site("linear", "x", "token heads_features", _attend, "self.q_proj(", "result"),
    "k_proj": _site("linear", "memory", "memory heads_features", _attend, "self.k_proj(", "result"),
    "v_proj": _site("linear", "memory", "memory heads_features", _attend, "self.v_proj(", "result"),
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
        "concat_heads", "context", "token heads_features", MultiHeadAttention._combine_heads, ".flatten(-2)", "given"
    ),
    "out": _site("linear", "concat", "token feature", _attend, "self.o_proj(", "result"),
    "residual:pre": _site("add", "x branch", "token feature", Residual.forward, "return x + self.dropout(", "result"),
    "residual:post": _site(
        "add", "x branch", "token feature", Residual.forward, "return self.norm(x + self.dropout(", "given"
    ),
    "w_gate:SwiGLU": _site("linear", "x", "token hidden", SwiGLU.forward, "self.w_gate(x)", "result"),
    "w_in:SwiGLU": _site("linear", "x", "token hidden", SwiGLU.forward, "self.w_in(x)", "result"),
    "w_in:FeedForward": _site("linear", "x", "token hidden", FeedForward.forward, "self.w_in(x)", "result"),
    "hidden:relu": _site("relu", "w_in", "token hidden", activate, "F.relu(", "given"),
    "hidden:gelu": _site("gelu", "w_in", "token hidden", activate, "F.gelu(", "given"),
    "hidden:swiglu": _site("swiglu", "w_gate w_in", "token hidden", SwiGLU.forward, "F.silu(", "given"),
    "out:SwiGLU": _site("linear", "hidden", "token feature", SwiGLU.forward, "self.w_out(", "result"),
    "out:FeedForward": _site("linear", "hidden", "token feature", FeedForward.forward, "self.w_out(", "result"),
    **{
        f"pooled:{how}": _site("pool", "end padding", "pooled", classifier.pool, piece, "given")
        for how, piece in _pools.items()
    },
    "head": _site("linear", "pooled", "class", TextClassifier.forward, "self.head(", "result"),
    "logits:class": _site("linear", "pooled", "class", TextClassifier.forward, "self.head(", "result"),
    "logits:pin_zero": _site(
        "pin_zero", "head", "class", TextClassifier.forward, "torch.cat([torch.zeros_like(logits), logits]", "result"
    ),
    "logits:LanguageModel": _site("linear", "end", "token vocab", LanguageModel.forward, "F.linear(", "result"),
    "logits:Translator": _site("linear", "end", "token vocab", Translator.decode, "F.linear(", "result"),
    "linear:token": _site("linear", "before", "token out", None, "", "result"),
    "linear:class": _site("linear", "before", "class", None, "", "result"),
}
"""By the name of the step, with its kind where one name stands for several."""
