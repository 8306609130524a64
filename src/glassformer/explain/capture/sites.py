"""Describe every step that can be recorded: its operation, inputs, axes, source line, and how a tap can edit it.

The hooks (`attach.py`, `hooks.py`) pass the tensor of a step and its key in `SITES`. The page's list of steps is
generated from this file (`page/typescript.py`). A test checks the snippets of source lines.

A stream is a sequence of tokens that the model reads: the text, or a source and a target (not the residual stream).
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from glassformer.models import LanguageModel, MaskedLanguageModel, TextClassifier, Translator, encoder_models
from glassformer.models.encoder_models import Pooler
from glassformer.nn import embeddings, layers, operations
from glassformer.nn.attention import Mask, MultiHeadAttention, additive_mask, attention, causal_mask
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.nn.layers import FeedForward, Residual, SwiGLU, activate
from glassformer.nn.ngram_embeddings import BigramEmbedding, HashedNgramEmbedding, NgramEmbedding, SegmentEmbedding
from glassformer.text.ngrams import NgramVocabulary

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
        op: an operation of `nn/operations.py`; "input" for a tensor that no recorded module computed.
        inputs: steps of the same call by name, or steps from outside by the name in `CallRecorder.inputs`; those that
            the call has not recorded are omitted. From outside come "x", what the module was called with; "memory",
            what attention reads keys and values from; "before", the last step before this one; "added", the other side
            of a residual; "end", the output of the stack; "table_ids", the ids that a table is read at.
        axes: the axes without the batch; "memory" are the tokens that attention reads keys and values from.
        line: the function that computes it, and a snippet of the line; None where there is no such line here.
        editable: whether a tap can replace the tensor; False if it is computed only for the record.
        stream: True if it belongs to the embedding of a stream.
    """

    op: str
    inputs: tuple[str, ...]
    axes: tuple[str, ...]
    line: tuple[Callable[..., Any], str] | None
    editable: bool = True
    stream: bool = False


def _site(
    op: str,
    *,
    inputs: str = "",
    axes: str = "token feature",
    line: tuple[Callable[..., Any], str] | None = None,
    editable: bool = True,
    stream: bool = False,
) -> Site:
    return Site(op, tuple(inputs.split()), tuple(axes.split()), line, editable, stream)


_embed, _attend, _split = TokenEmbedding.forward, MultiHeadAttention.forward, MultiHeadAttention._split_heads
_rms, _learned, _waves = (
    layers.RMSNorm.forward,
    embeddings.LearnedPositions.forward,
    embeddings.SinusoidalPositions.__init__,
)
_pools = {
    "mean": "mean = (x * real).sum(",
    "max": "peak = x.masked_fill(",
    "mean+max": "torch.cat([mean, peak]",
    "first": "x[:, 0]",
}


def _heads(letter: str, token: str) -> dict[str, Site]:
    """Return the sites of queries or keys by head: split, rotated."""
    axes, rotate = f"head {token} head_feature", embeddings.Rotation.rotate
    apart = _site("split_heads", inputs=f"{letter}_proj", axes=axes, line=(_split, ".unflatten("), editable=False)
    return {
        f"{letter}_heads": apart,
        letter: replace(apart, editable=True),
        f"{letter}:rotate": _site("rotate", inputs=f"{letter}_heads", axes=axes, line=(rotate, "return x * cos")),
    }


def _embedded(inputs: str, op: str, name: str, snippet: str) -> dict[str, Site]:
    """Return the sites of a step of the embedding.

    It is recomputed, except where it is the last, which the forward pass uses.
    """
    step = _site(op, inputs=inputs, line=(_embed, snippet), editable=False, stream=True)
    return {name: step, f"{name}:last": replace(step, editable=True)}


SITES: dict[str, Site] = {
    "input": _site("input", editable=False),
    "ids": _site("ids", axes="token", line=(_embed, "ids: "), editable=False, stream=True),
    **_embedded("ids", "lookup", "rows", "functional.embedding(ids, self.weight)"),
    **_embedded("before", "scale", "scaled", "* self.scale"),
    "ngram_ids": _site(
        "ngram_ids", axes="token ngram", line=(NgramVocabulary.lookup, "known = ["), editable=False, stream=True
    ),
    "ngram_ids:hashed": _site(
        "ngram_ids",
        axes="token ngram",
        line=(HashedNgramEmbedding.lookup_ids, "self.n_rows + 1"),
        editable=False,
        stream=True,
    ),
    "ngrams": _site(
        "embedding_bag", inputs="table_ids", line=(NgramEmbedding.forward, "F.embedding_bag("), stream=True
    ),
    "bigram_ids": _site(
        "bigram_ids",
        axes="token",
        line=(BigramEmbedding.lookup_ids, "torch.searchsorted("),
        editable=False,
        stream=True,
    ),
    "bigrams": _site("padded_lookup", inputs="table_ids", line=(BigramEmbedding.forward, "F.embedding("), stream=True),
    **_embedded("before added", "add", "with_ngrams", "x + added"),
    **_embedded("before added", "add", "with_bigrams", "x + added"),
    "segment_ids": _site(
        "segment_ids",
        axes="token",
        line=(SegmentEmbedding.segment_ids, "torch.zeros_like("),
        editable=False,
        stream=True,
    ),
    "segments": _site("lookup", inputs="table_ids", line=(SegmentEmbedding.forward, "F.embedding("), stream=True),
    **_embedded("before added", "add", "with_segments", "x + added"),
    "positions:sinusoidal": _site(
        "positions", line=(embeddings.sinusoidal, "table[:, 0::2] = angle.sin()"), stream=True
    ),
    "positions:amplitude": _site("positions", line=(_waves, "* amplitude"), stream=True),
    "positions:learned": _site("positions", line=(_learned, "self.weight[positions]"), stream=True),
    "positions:other": _site("positions", stream=True),
    "sum": _site("add", inputs="before positions", line=(_embed, "x + self.positions("), stream=True),
    "embedding_norm:layer_norm": _site(
        "layer_norm", inputs="before", line=(layers.LayerNorm.forward, "F.layer_norm("), stream=True
    ),
    "embedding_norm:rms_norm": _site("rms_norm", inputs="before", line=(_rms, "torch.rsqrt("), stream=True),
    "norm:layer_norm": _site("layer_norm", inputs="before", line=(layers.LayerNorm.forward, "F.layer_norm(")),
    "norm:rms_norm": _site("rms_norm", inputs="before", line=(_rms, "torch.rsqrt(")),
    "q_proj": _site("linear", inputs="x", axes="token heads_features", line=(_attend, "self.q_proj(")),
    "k_proj": _site("linear", inputs="memory", axes="memory heads_features", line=(_attend, "self.k_proj(")),
    "v_proj": _site("linear", inputs="memory", axes="memory heads_features", line=(_attend, "self.v_proj(")),
    **_heads("q", "token"),
    **_heads("k", "memory"),
    "v": _site("split_heads", inputs="v_proj", axes="head memory head_feature", line=(_split, ".unflatten(")),
    "products": _site("dot", inputs="q k", axes="head token key", line=(attention, "q @ k.transpose(-2, -1)")),
    "scores": _site("scale", inputs="products", axes="head token key", line=(attention, "products * scale")),
    "mask:causal": _site("mask", axes="head token key", line=(causal_mask, ".tril(")),
    "mask:padding": _site("mask", axes="head token key", line=(Mask.of, "padding_mask[:, None, None, :]")),
    "mask:word": _site("mask", axes="head token key", line=(TextClassifier.pooled_tokens, "== self.token")),
    "mask:given": _site("mask", axes="head token key", line=(additive_mask, "masked_fill_(~mask")),
    "weights": _site("softmax", inputs="scores mask", axes="head token key", line=(attention, ".softmax(dim=-1)")),
    "context": _site("mix", inputs="weights v", axes="head token head_feature", line=(attention, "@ v)")),
    "concat": _site(
        "concat_heads",
        inputs="context",
        axes="token heads_features",
        line=(MultiHeadAttention._combine_heads, ".flatten(-2)"),
    ),
    "out": _site("linear", inputs="concat", line=(_attend, "self.o_proj(")),
    "residual:pre": _site("add", inputs="x branch", line=(Residual.forward, "return x + self.dropout(")),
    "residual:post": _site("add", inputs="x branch", line=(Residual.forward, "return self.norm(x + self.dropout(")),
    "w_gate:SwiGLU": _site("linear", inputs="x", axes="token hidden", line=(SwiGLU.forward, "self.gate_proj(x)")),
    "w_in:SwiGLU": _site("linear", inputs="x", axes="token hidden", line=(SwiGLU.forward, "self.up_proj(x)")),
    "w_in:FeedForward": _site("linear", inputs="x", axes="token hidden", line=(FeedForward.forward, "self.up_proj(x)")),
    "hidden:relu": _site("relu", inputs="w_in", axes="token hidden", line=(activate, "F.relu(")),
    "hidden:gelu": _site("gelu", inputs="w_in", axes="token hidden", line=(activate, "F.gelu(")),
    "hidden:gelu-tanh": _site("gelu_tanh", inputs="w_in", axes="token hidden", line=(activate, 'approximate="tanh"')),
    "hidden:silu": _site("silu", inputs="w_in", axes="token hidden", line=(activate, "F.silu(")),
    "hidden:swiglu": _site("swiglu", inputs="w_gate w_in", axes="token hidden", line=(SwiGLU.forward, "F.silu(")),
    "out:SwiGLU": _site("linear", inputs="hidden", line=(SwiGLU.forward, "self.down_proj(")),
    "out:FeedForward": _site("linear", inputs="hidden", line=(FeedForward.forward, "self.down_proj(")),
    **{
        f"pooled:{how}": _site("pool", inputs="end padding", axes="pooled", line=(encoder_models.pool, snippet))
        for how, snippet in _pools.items()
    },
    "pooler": _site("linear", inputs="pooled", axes="pooled", line=(Pooler.forward, "self.dense(x)")),
    "pooler_hidden:tanh": _site("tanh", inputs="pooler", axes="pooled", line=(Pooler.forward, "x.tanh()")),
    "pooler_hidden:relu": _site("relu", inputs="pooler", axes="pooled", line=(Pooler.forward, "x.relu()")),
    "head": _site("linear", inputs="pooled", axes="class", line=(TextClassifier.forward, "self.head(")),
    "logits:class": _site("linear", inputs="pooled", axes="class", line=(TextClassifier.forward, "self.head(")),
    "logits:pin_zero": _site(
        "pin_zero",
        inputs="head",
        axes="class",
        line=(TextClassifier.forward, "torch.cat([torch.zeros_like(logits), logits]"),
    ),
    "logits:LanguageModel": _site(
        "linear", inputs="end", axes="token vocab", line=(LanguageModel.forward, "F.linear(")
    ),
    "logits:Translator": _site("linear", inputs="end", axes="token vocab", line=(Translator.decode, "F.linear(")),
    "mlm_transform": _site(
        "linear", inputs="end", axes="token out", line=(MaskedLanguageModel.forward, "self.mlm_transform(")
    ),
    "mlm_hidden": _site(
        "gelu", inputs="mlm_transform", axes="token out", line=(MaskedLanguageModel.forward, "F.gelu(")
    ),
    "logits:MaskedLanguageModel": _site(
        "linear", inputs="before", axes="token vocab", line=(MaskedLanguageModel.forward, "F.linear(")
    ),
    "linear:token": _site("linear", inputs="before", axes="token out"),
    "linear:class": _site("linear", inputs="before", axes="class"),
}
"""Every site by the name of its step, with a variant where one name has several."""


PACKAGE = Path(__file__).parents[2]
N_CONTEXT_LINES = 4
"""Lines shown before and after the marked one."""


@dataclass(frozen=True)
class SourceLine:
    """The source line of this package that computes a record."""

    file: str
    """Path relative to the package: "nn/attention.py"."""
    line: int
    """Line number of the first line of `code`."""
    mark: int
    """Line number of the line that computes the record."""
    code: str
    """That line with a few lines around it, dedented."""

    @property
    def marked(self) -> str:
        """Return the text of the marked line."""
        return self.code.splitlines()[self.mark - self.line].strip()


@cache
def source_of(key: str) -> SourceLine | None:
    """Return the source line of a key of `SITES`; None where there is none, or without source files."""
    site = SITES.get(key)
    return None if site is None or site.line is None else source_line(*site.line)


@cache
def expression_line(operation: str, expression: str) -> SourceLine | None:
    """Return the line of the table of operations with an expression of a row; None without source files."""
    return source_line(cast(Any, operations), expression, after=f'"{operation}":')


@cache
def source_line(function: Any, snippet: str, after: str = "") -> SourceLine | None:
    """Return the first line of a function or module with a snippet, after another line; None where there is none."""
    function = inspect.unwrap(function)
    try:
        lines, first = inspect.getsourcelines(function)
        file = Path(inspect.getsourcefile(function) or "").resolve().relative_to(PACKAGE.resolve())
    except (OSError, TypeError, ValueError):
        # An installation without .py files, or from a zip.
        return None
    first = max(1, first)  # of a module it is 0
    begin = _find(lines, after) if after else 0
    mark = None if begin is None else _find(lines, snippet, begin)
    if mark is None:
        return None
    start, end = max(0, mark - N_CONTEXT_LINES), min(len(lines), mark + N_CONTEXT_LINES + 1)
    while not lines[start].strip():
        start += 1
    code = textwrap.dedent("".join(lines[start:end])).rstrip()
    return SourceLine(file.as_posix(), first + start, first + mark, code)


def _find(lines: list[str], snippet: str, begin: int = 0) -> int | None:
    """Return the index of the first line with the snippet outside docstrings, from a line on."""
    inside = False
    for i, line in enumerate(lines):
        quotes = line.count('"""')
        if i >= begin and not inside and not quotes and snippet in line:
            return i
        if quotes == 1:
            inside = not inside
    return None
