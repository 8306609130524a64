"""The two masks there are. True = may attend; built once in a model's forward, never in a layer.

`torch.nn.MultiheadAttention.key_padding_mask` has the opposite meaning.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool
from torch import Tensor


def padding_to_attention_mask(padding_mask: Bool[Tensor, "B K"] | None) -> Bool[Tensor, "B 1 1 K"] | None:
    """Every query may attend to every real token: (B, K), True = real, to (B, 1, 1, K)."""
    return None if padding_mask is None else padding_mask[:, None, None, :]


def causal_mask(n_queries: int, n_keys: int, device: torch.device | str = "cpu") -> Bool[Tensor, "Q K"]:
    """Position i sees positions ≤ i (the look-ahead mask; paper, 3.2.3), shape (Q, K).

    The queries are the last Q of the K positions, as they are when a cache holds the earlier ones.
    """
    ones = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)
    return ones.tril(diagonal=n_keys - n_queries)
