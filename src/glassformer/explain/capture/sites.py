"""A step of a forward pass, a check of it, and every kind of step that can be recorded: operation, axes, source line.

Layers and models report their steps (`nn/steps.py`); `trace.py` keeps them. The page's list of steps is generated from
this file (`page/typescript.py`). A test checks the snippets of source lines.

A stream is a sequence of tokens that the model reads: the text, or a source and a target (not the residual stream).
"""

from __future__ import annotations

import inspect
import math
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from glassformer.errors import UsageError
from glassformer.models import TextClassifier, encoder_models
from glassformer.models.encoder_models import Pooler
from glassformer.nn import embeddings, layers, operations
from glassformer.nn.attention import Mask, MultiHeadAttention, additive_mask, causal_mask
from glassformer.nn.ngram_embeddings import BigramEmbedding, HashedNgramEmbedding, NgramEmbedding
from glassformer.nn.steps import step
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


Line = tuple[Callable[..., Any], str]
"""A function, and a snippet of the line in it."""


@dataclass(frozen=True)
class Site:
    """A kind of step.

    Attributes:
        op: an operation of `nn/operations.py`; "input" for a tensor that no recorded module computed.
        axes: the axes without the batch.
        line: the line that computes it, where that is another than the one which reports it.
    """

    op: str
    axes: tuple[str, ...]
    line: Line | None = None


def _site(op: str, axes: str = "token feature", line: Line | None = None) -> Site:
    return Site(op, tuple(axes.split()), line)


def _each(name: str, variants: Mapping[str, Site]) -> dict[str, Site]:
    return {f"{name}:{variant}": site for variant, site in variants.items()}


_norms = {
    "layer_norm": _site("layer_norm", line=(layers.LayerNorm.forward, "F.layer_norm(")),
    "rms_norm": _site("rms_norm", line=(layers.RMSNorm.forward, "torch.rsqrt(mean_square")),
}
_heads = _site("split_heads", "head token head_feature", (MultiHeadAttention._split_heads, ".unflatten("))
_rotated = replace(_heads, op="rotate", line=(embeddings.Rotation.rotate, "return x * cos"))
_masks = {
    "causal": (causal_mask, ".tril("),
    "padding": (Mask.of, "padding_mask[:, None, None, :]"),
    "given": (additive_mask, "masked_fill_(~mask"),
    "word": (TextClassifier.pooled_tokens, "== self.token"),
}
_pools = {
    "mean": "mean = (x * real).sum(",
    "max": "peak = x.masked_fill(",
    "mean+max": "torch.cat([mean, peak]",
    "first": "x[:, 0]",
}
_activations = {"relu": "F.relu(", "gelu": "F.gelu(", "gelu_tanh": 'approximate="tanh"', "silu": "F.silu("}

SITES: dict[str, Site] = {
    "input": _site("input"),
    "ids": _site("ids", "token"),
    "rows": _site("lookup"),
    "scaled": _site("scale"),
    "ngram_ids": _site("ngram_ids", "token ngram", (NgramVocabulary.lookup, "known = [")),
    "ngram_ids:hashed": _site("ngram_ids", "token ngram", (HashedNgramEmbedding.lookup_ids, "self.n_rows + 1")),
    "ngrams": _site("embedding_bag", line=(NgramEmbedding.forward, "F.embedding_bag(")),
    "with_ngrams": _site("add"),
    "bigram_ids": _site("bigram_ids", "token", (BigramEmbedding.lookup_ids, "torch.searchsorted(")),
    "bigrams": _site("padded_lookup"),
    "with_bigrams": _site("add"),
    "segment_ids": _site("segment_ids", "token"),
    "segments": _site("lookup"),
    "with_segments": _site("add"),
    "positions:sinusoidal": _site("positions", line=(embeddings.sinusoidal, "table[:, 0::2] = angle.sin()")),
    "positions:learned": _site("positions"),
    "sum": _site("add"),
    **_each("embedding_norm", _norms),
    **_each("norm", _norms),
    **{f"{letter}_proj": _site("linear", "token heads_features") for letter in "qkv"},
    **dict.fromkeys(("q_heads", "k_heads", "q", "k", "v"), _heads),
    **dict.fromkeys(("q:rotate", "k:rotate"), _rotated),
    "products": _site("dot", "head token key"),
    "scores": _site("scale", "head token key"),
    **_each("mask", {kind: _site("mask", "head token key", line) for kind, line in _masks.items()}),
    "weights": _site("softmax", "head token key"),
    "context": _site("mix", "head token head_feature"),
    "concat": _site("concat_heads", "token heads_features"),
    "out": _site("linear"),
    "residual": _site("add"),
    "w_gate": _site("linear", "token hidden"),
    "w_in": _site("linear", "token hidden"),
    **_each("hidden", {op: _site(op, "token hidden", (layers.activate, of)) for op, of in _activations.items()}),
    "hidden:swiglu": _site("swiglu", "token hidden"),
    **_each("pooled", {how: _site("pool", "pooled", (encoder_models.pool, of)) for how, of in _pools.items()}),
    "pooler": _site("linear", "pooled"),
    **_each("pooler_hidden", {op: _site(op, "pooled", (Pooler.forward, "x.tanh()")) for op in ("tanh", "relu")}),
    "head": _site("linear", "class"),
    "logits:class": _site("linear", "class"),
    "logits:pin_zero": _site("pin_zero", "class"),
    "logits:vocab": _site("linear", "token vocab"),
    "mlm_transform": _site("linear", "token out"),
    "mlm_hidden": _site("gelu", "token out"),
    "linear:token": _site("linear", "token out"),
    "linear:class": _site("linear", "class"),
}
"""Every site by the name of its step, with a variant where one name has several."""


def site_key(name: str, *variants: object) -> str:
    """Return the key of `SITES` of a step by its name, and by its variant where it has several."""
    return next((key for variant in variants if (key := f"{name}:{variant}") in SITES), name)


PACKAGE = Path(__file__).parents[2]
REPORTING = ("glassformer.nn.", "glassformer.models.")
"""The modules whose functions report steps."""
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


def reported_line() -> SourceLine | None:
    """Return the line of a layer or model that reports the present step; None where none of this package does."""
    frame = sys._getframe(1)
    while frame is not None:
        module, function = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if module.startswith(REPORTING) and module != step.__module__ and function != "_report":
            return source_line(frame.f_code, frame.f_lineno)
        frame = frame.f_back
    return None


@cache
def expression_line(operation: str, expression: str) -> SourceLine | None:
    """Return the line of the table of operations with an expression of a row; None without source files."""
    return source_line(cast(Any, operations), expression, after=f'"{operation}":')


@cache
def source_line(function: Any, line: str | int, after: str = "") -> SourceLine | None:
    """Return a line of a function or module, by number or the first with a snippet, after another; None without one."""
    function = inspect.unwrap(function)
    try:
        lines, first = inspect.getsourcelines(function)
        file = Path(inspect.getsourcefile(function) or "").resolve().relative_to(PACKAGE.resolve())
    except (OSError, TypeError, ValueError):
        # An installation without .py files, or from a zip.
        return None
    first = max(1, first)  # of a module it is 0
    mark = line - first if isinstance(line, int) else _find(lines, line, _find(lines, after) or 0)
    if mark is None:
        return None
    start, end = max(0, mark - N_CONTEXT_LINES), min(len(lines), mark + N_CONTEXT_LINES + 1)
    while not lines[start].strip():
        start += 1
    code = textwrap.dedent("".join(lines[start:end])).rstrip()
    return SourceLine(file.as_posix(), first + start, first + mark, code)


def _find(lines: list[str], snippet: str, begin: int = 0) -> int | None:
    """Return the index of the first line with the snippet, from a line on."""
    return next((i for i in range(begin, len(lines)) if snippet in lines[i]), None)


BLOCKED = 1e30
"""Scores below minus this are of blocked keys (`edits/apply.py`)."""


WireDtype: TypeAlias = Literal["f32", "i32", "u8"]
"""Element types in which tensors are sent."""


@dataclass(frozen=True)
class Axis:
    """One axis of a tensor; `stream` names the tokens along it."""

    name: Annotated[str, "AxisName"]
    size: int
    stream: Annotated[str | None, "StreamName | null"] = None


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """A step of a forward pass; as JSON without its numbers."""

    id: str
    """"encoder.0.self.weights", "decoder.1.cross.q", "embedding.sum", "logits": see explain/trace.py."""
    site: str
    """What kind of step it is, a key of `SITES`: "weights", "residual:pre"; of the loss or a gradient its operation."""
    op: str
    """The operation, a key of `OPERATIONS`."""
    inputs: tuple[str, ...]
    """Ids of the steps it was computed from, in the order of the operation's arguments."""
    params: dict[str, str]
    """Names of parameters or buffers by role ("weight", "bias")."""
    attrs: Annotated[dict[str, Any], "Record<string, number | string | boolean | (number | null)[]>"]
    """The operation's constants, such as a factor or an epsilon."""
    axes: tuple[Axis, ...]
    """Those of `value`."""
    value: Annotated[Tensor, WireDtype]
    """The tensor, detached, without a batch axis of size 1, on "meta" if the numbers are not kept; as JSON its type."""
    source: SourceLine | None = None
    """The line that computes it; None where the source is not available."""
    stack: Annotated[str, 'StreamName | "encoder" | "decoder" | "head"'] = ""
    """source, target, text: the embedding of that stream."""
    layer: int | None = None
    """Counted from 0."""
    block: Annotated[str | None, '"self" | "cross" | "ff" | null'] = None
    editable: bool = False
    """Whether the forward pass uses its numbers, so that an edit of them changes what follows; no mask."""
    min: float | None = None
    """Minimum of the finite values, of a step without its numbers; null where there is none."""
    max: float | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of `value`."""
        return tuple(self.value.shape)

    @property
    def dtype(self) -> torch.dtype:
        """Return the element type of `value`."""
        return self.value.dtype

    def without_value(self) -> Step:
        """Return the step without its numbers."""
        low, high = _finite_range(self.value)
        return replace(self, value=torch.empty_like(self.value, device="meta"), min=low, max=high)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.value.cpu().numpy()
        return array.copy() if dtype is None and copy else array if dtype is None else array.astype(dtype)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{axis.name} {axis.size}" for axis in self.axes)
        expression = f"{self.op}({', '.join([*self.inputs, *self.params.values()])})"
        return f"{self.id} = {expression}: ({sizes}) {str(self.dtype).removeprefix('torch.')}"


@dataclass(frozen=True)
class Check:
    """A comparison of two ways to compute a value: their largest difference and its tolerance."""

    name: str
    value: float
    tolerance: float
    ok: bool
    meaning: str
    """One sentence."""


class UnknownRecord(UsageError, KeyError):
    """An error for an id that a trace does not hold."""

    def __str__(self) -> str:
        # KeyError would show the repr.
        return self.message


def _finite_range(value: Tensor) -> tuple[float | None, float | None]:
    """Return the smallest and the largest value, of those that are finite and no blocked scores."""
    if value.dtype == torch.bool:
        value = value.to(torch.uint8)
    if not value.numel():
        return None, None
    low, high = (x.item() for x in torch.aminmax(value))
    # Where there is a NaN both are NaN.
    if math.isfinite(low) and math.isfinite(high) and low > -BLOCKED:
        return low, high
    return _finite_range(value[value.isfinite() & (value > -BLOCKED)])


BLOCKS = ("self", "cross", "ff")


@lru_cache(maxsize=4096)
def step_location(id: str, embedded: str | None = None) -> tuple[str, int | None, str | None]:
    """Return stack, layer and block from an id; `embedded` is the stream of an embedding's step."""
    parts = id.split("@")[0].split(".")
    # Ids of an ensemble begin with the member.
    parts = parts[2:] if parts[0] == "members" else parts
    layer = next((int(part) for part in parts if part.isdecimal()), None)
    block = next((part for part in parts if part in BLOCKS), None)
    stack = embedded or next((part for part in parts if part in ("encoder", "decoder")), None)
    if stack is None:
        stack = "head" if layer is None and block is None else ""
    return stack, layer, block
