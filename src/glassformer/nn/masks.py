"""Masks: which keys each query may attend to, made once per forward pass and passed to every layer.

Everywhere True = may attend; `torch.nn.MultiheadAttention.key_padding_mask` has the opposite meaning.
"""

from functools import reduce
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Mask:
    """A boolean mask, also as a tensor to add to scores and as an argument of torch's fused kernel.

    Args:
        allowed: True = may attend, broadcastable to (B, H, Q, K).
        is_causal: the mask is `causal_mask` and nothing else.
        may_hide_all_keys: there may be a query without any key.
    """

    def __init__(
        self, allowed: Bool[Tensor, "#B #H #Q #K"], is_causal: bool = False, may_hide_all_keys: bool = True
    ) -> None:
        self.allowed, self.is_causal, self.may_hide_all_keys = allowed, is_causal, may_hide_all_keys
        self.additive_cache: dict[torch.dtype, Tensor] = {}

    @staticmethod
    def of(
        *,
        causal: tuple[int, int] | None = None,
        padding_mask: Bool[Tensor, "B K"] | None = None,
        device: torch.device | str = "cpu",
    ) -> "Mask | None":
        """Return the conjunction of the given masks; None when every query may attend to every key.

        Args:
            causal: (Q, K) of a `causal_mask`.
            padding_mask: True = real token; no query attends to the others.
            device: device of the causal mask.
        """
        masks = []
        if causal is not None and causal[0] > 1:
            masks.append(causal_mask(*causal, device)[None, None])
        if padding_mask is not None:
            masks.append(padding_mask[:, None, None, :])
        if not masks:
            return None
        # Under a causal mask alone every query attends at least to itself.
        return Mask(reduce(torch.logical_and, masks), padding_mask is None, padding_mask is not None)

    def additive(self, dtype: torch.dtype) -> Float[Tensor, "#B #H #Q #K"]:
        """Return `additive_mask` of this mask, computed once for all layers."""
        if dtype not in self.additive_cache:
            self.additive_cache[dtype] = additive_mask(self.allowed, dtype)
        return self.additive_cache[dtype]

    def sdpa_kwargs(self) -> dict[str, Any]:
        """Return the mask as an argument of `scaled_dot_product_attention`.

        Its `is_causal` aligns the queries with the first keys, and is used only where there are as many of both.
        """
        square = self.allowed.shape[-2] == self.allowed.shape[-1]
        return {"is_causal": True} if self.is_causal and square else {"attn_mask": self.allowed}


def causal_mask(n_queries: int, n_keys: int, device: torch.device | str = "cpu") -> Bool[Tensor, "Q K"]:
    """Return the look-ahead mask (paper, 3.2.3): a position may attend to itself and earlier ones.

    The queries are the last Q of the K positions, as they are when a cache holds the earlier ones.
    """
    full = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)
    return full.tril(diagonal=n_keys - n_queries)


def additive_mask(mask: Bool[Tensor, "#B #H #Q #K"], dtype: torch.dtype) -> Float[Tensor, "#B #H #Q #K"]:
    """Return 0 where the mask is True, and half of the lowest number of `dtype` elsewhere.

    Since that is finite, a query without any key gives no NaN, in the gradient either.
    """
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min / 2)


def mask_scores(scores: Float[Tensor, "B H Q K"], mask: Tensor | None) -> Float[Tensor, "B H Q K"]:
    """Return scores to which a softmax gives no weight where the mask is False."""
    return scores if mask is None else scores + additive_mask(mask, scores.dtype)


def zero_fully_masked(x: Float[Tensor, "B H Q n"], mask: Tensor | None) -> Float[Tensor, "B H Q n"]:
    """Zero the rows of x whose query may attend to no key; multiplying by 0 would keep a NaN."""
    return x if mask is None else torch.where(mask.any(dim=-1, keepdim=True), x, 0.0)
