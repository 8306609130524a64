"""Which line of this package computes which step: a function and a piece of the line, looked up once.

The pieces are checked by a test, so that a line that moves or changes cannot leave a wrong excerpt behind.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from glassformer.explain.capture.records import SourceLine
from glassformer.models import LanguageModel, TextClassifier, Translator, classifier
from glassformer.models.bigrams import BigramEmbedding
from glassformer.models.spelling import NgramEmbedding
from glassformer.nn import masks, norms, positions
from glassformer.nn.attention import MultiHeadAttention, attention
from glassformer.nn.embeddings import TokenEmbedding
from glassformer.nn.feed_forward import FeedForward, SwiGLU, activate
from glassformer.nn.layers import Residual
from glassformer.text.spelling import Spelling

PACKAGE = Path(__file__).parents[2]
AROUND = 4
"""Lines shown before and after the marked one."""

LINES: dict[str, tuple[Callable[..., Any], str]] = {
    "ids": (TokenEmbedding.forward, "ids: "),
    "lookup": (TokenEmbedding.forward, "functional.embedding(ids, self.weight)"),
    "embedding.scale": (TokenEmbedding.forward, "* self.scale"),
    "embedding.spelling": (Spelling.numbers, "known = ["),
    "embedding.ngrams": (NgramEmbedding.forward, "F.embedding_bag("),
    "embedding.pairs": (BigramEmbedding.numbers, "torch.searchsorted("),
    "embedding.bigrams": (BigramEmbedding.forward, "F.embedding("),
    "embedding.added": (TokenEmbedding.forward, "x + added"),
    "embedding.add": (TokenEmbedding.forward, "x + self.positions("),
    "positions.sinusoidal": (positions.sinusoidal, "table[:, 0::2] = angle.sin()"),
    "positions.amplitude": (positions.SinusoidalPositions.__init__, "* amplitude"),
    "positions.learned": (positions.LearnedPositions.forward, "self.weight[positions]"),
    "layer_norm": (norms.LayerNorm.forward, "F.layer_norm("),
    "rms_norm": (norms.RMSNorm.forward, "torch.rsqrt("),
    "q_proj": (MultiHeadAttention.forward, "self.q_proj("),
    "k_proj": (MultiHeadAttention.forward, "self.k_proj("),
    "v_proj": (MultiHeadAttention.forward, "self.v_proj("),
    "o_proj": (MultiHeadAttention.forward, "self.o_proj("),
    "split_heads": (MultiHeadAttention._split_heads, ".unflatten("),
    "rotate": (positions.Rotation.rotate, "x * self.cos"),
    "dot": (attention, "q @ k.transpose(-2, -1)"),
    "attention.scale": (attention, "products * scale"),
    "mask.causal": (masks.causal_mask, ".tril("),
    "mask.padding": (masks.Mask.of, "padding_mask[:, None, None, :]"),
    "mask.given": (masks.hide, "masked_fill_(~mask"),
    "softmax": (attention, ".softmax(dim=-1)"),
    "mix": (attention, "@ v)"),
    "concat_heads": (MultiHeadAttention._combine_heads, ".flatten(-2)"),
    "residual.pre": (Residual.forward, "return x + self.dropout("),
    "residual.post": (Residual.forward, "return self.norm(x + self.dropout("),
    "FeedForward.w_in": (FeedForward.forward, "self.w_in(x)"),
    "FeedForward.w_out": (FeedForward.forward, "self.w_out("),
    "relu": (activate, "F.relu("),
    "gelu": (activate, "F.gelu("),
    "SwiGLU.w_gate": (SwiGLU.forward, "self.w_gate(x)"),
    "SwiGLU.w_in": (SwiGLU.forward, "self.w_in(x)"),
    "SwiGLU.w_out": (SwiGLU.forward, "self.w_out("),
    "swiglu": (SwiGLU.forward, "F.silu("),
    "pool.mean": (classifier.pool, "mean = (x * real).sum("),
    "pool.max": (classifier.pool, "peak = x.masked_fill("),
    "pool.mean+max": (classifier.pool, "torch.cat([mean, peak]"),
    "pool.first": (classifier.pool, "x[:, 0]"),
    "TextClassifier.head": (TextClassifier.forward, "self.head("),
    "pin_zero": (TextClassifier.forward, "torch.cat([torch.zeros_like(logits), logits]"),
    "LanguageModel.output": (LanguageModel.forward, "F.linear("),
    "Translator.output": (Translator.decode, "F.linear("),
}
"""Kind of step to the function that does it and a piece of the line."""


@cache
def source_of(kind: str) -> SourceLine | None:
    """The line that does this kind of step; None for a kind that is not ours, or without source files."""
    if kind not in LINES:
        return None
    function, piece = LINES[kind]
    function = inspect.unwrap(function)
    try:
        lines, first = inspect.getsourcelines(function)
        file = Path(inspect.getsourcefile(function) or "").resolve().relative_to(PACKAGE.resolve())
    except (OSError, TypeError, ValueError):
        return None  # an installation without .py files, or from a zip
    mark = _find(lines, piece)
    if mark is None:
        return None
    start, end = max(0, mark - AROUND), min(len(lines), mark + AROUND + 1)
    while not lines[start].strip():
        start += 1
    code = textwrap.dedent("".join(lines[start:end])).rstrip()
    return SourceLine(file.as_posix(), first + start, first + mark, code)


def _find(lines: list[str], piece: str) -> int | None:
    """Index of the first line with that piece, docstrings left out."""
    inside = False
    for i, line in enumerate(lines):
        quotes = line.count('"""')
        if not inside and not quotes and piece in line:
            return i
        if quotes == 1:
            inside = not inside
    return None
