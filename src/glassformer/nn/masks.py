"""Who may attend to whom, as one value: built once in a model's forward and handed to every layer.

Everywhere True = may attend; `torch.nn.MultiheadAttention.key_padding_mask` has the opposite meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Mask:
    """Which keys each query may attend to, in the words of the explicit path and of torch's kernel.

    What it was made from is kept: a kernel for texts of unequal lengths needs `padding_mask` or `segments`.
    """

    allowed: Bool[Tensor, "#B #H #Q #K"]
    """Broadcastable to (B, H, Q, K)."""
    is_causal: bool = False
    """It hides the future and nothing else."""
    padding_mask: Bool[Tensor, "B K"] | None = None
    segments: Int[Tensor, "B K"] | None = None
    blind: bool = True
    """There may be a query that sees no key at all."""
    _lowered: dict[torch.dtype, Tensor] = field(default_factory=dict)

    @staticmethod
    def of(
        *,
        causal: tuple[int, int] | None = None,
        padding_mask: Bool[Tensor, "B K"] | None = None,
        segments: Int[Tensor, "B K"] | None = None,
        device: torch.device | str = "cpu",
    ) -> Mask | None:
        """The mask under which all of these hold; None when every query may attend to every key.

        Args:
            causal: (Q, K): the queries are the last Q of K positions, and see themselves and their past.
            padding_mask: True = real token; nobody attends to the others.
            segments: texts packed into a row, numbered: a query sees the tokens of its own text alone.
            device: where a causal mask is made.
        """
        parts = []
        if causal is not None and causal[0] > 1:
            parts.append(causal_mask(*causal, device)[None, None])
        if padding_mask is not None:
            parts.append(padding_mask[:, None, None, :])
        if segments is not None:
            parts.append(segments[:, None, :, None] == segments[:, None, None, :])
        if not parts:
            return None
        is_causal = padding_mask is None and segments is None
        blind = padding_mask is not None  # by its past or its own text a query sees itself
        return Mask(reduce(torch.logical_and, parts), is_causal, padding_mask, segments, blind)

    def hide(self, scores: Float[Tensor, "B H Q K"]) -> Float[Tensor, "B H Q K"]:
        """`hide`, with what is added made once for all layers."""
        if scores.dtype not in self._lowered:
            self._lowered[scores.dtype] = lowered(self.allowed, scores.dtype)
        return scores + self._lowered[scores.dtype]

    def for_kernel(self) -> dict[str, Any]:
        """The same for `scaled_dot_product_attention`, never in two ways at once. Its is_causal aligns
        queries with the first keys, and is right only where there are as many of both."""
        square = self.allowed.shape[-2] == self.allowed.shape[-1]
        return {"is_causal": True} if self.is_causal and square else {"attn_mask": self.allowed}


def causal_mask(n_queries: int, n_keys: int, device: torch.device | str = "cpu") -> Bool[Tensor, "Q K"]:
    """Position i sees positions ≤ i (the look-ahead mask; paper, 3.2.3), shape (Q, K).

    The queries are the last Q of the K positions, as they are when a cache holds the earlier ones.
    """
    ones = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)
    return ones.tril(diagonal=n_keys - n_queries)


def hide(scores: Float[Tensor, "B H Q K"], mask: Tensor | None) -> Float[Tensor, "B H Q K"]:
    """Scores to which a softmax gives no weight where the mask is False.

    A finite "minus infinity", added while the mask is still small: a row of nothing but masked keys stays
    free of NaN, in the gradient too.
    """
    if mask is None:
        return scores
    return scores + lowered(mask, scores.dtype)


def lowered(mask: Bool[Tensor, "#B #H #Q #K"], dtype: torch.dtype) -> Float[Tensor, "#B #H #Q #K"]:
    """0 where the mask is True, and half of the lowest number there is where it is not."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min / 2)


def zero_blind_rows(x: Float[Tensor, "B H Q n"], mask: Tensor | None) -> Float[Tensor, "B H Q n"]:
    """Zero the rows of x whose query may attend to no key. A product would keep a NaN."""
    return x if mask is None else torch.where(mask.any(dim=-1, keepdim=True), x, 0.0)
