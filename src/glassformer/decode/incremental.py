"""Run a model, or an ensemble, token by token: the interface between models and decoding."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.models.ensemble import mean_logits, members_of
from glassformer.nn.attention import DecoderCache, Mask


class ModelDecoder:
    """R rows that advance together through a language model; their past is in a cache of keys and values.

    A row is a hypothesis, and the rows of a sentence are adjacent. Of an ensemble each model has a cache, and the
    logits are those of their mean probability.

    Attributes:
        max_len: maximum tokens per row.
        device: of tokens and logits.
    """

    def __init__(self, model: Any) -> None:
        self._members: list[Any] = members_of(model)
        self.max_len, self.device = int(model.max_len), next(model.parameters()).device
        self.reset()

    def reset(self) -> None:
        """Forget the tokens of every row."""
        self._caches: list[DecoderCache] = [member.new_cache() for member in self._members]

    def step(self, tokens: Int[Tensor, "R n"]) -> Float[Tensor, "R V"]:
        """Append n tokens to every row and return the float32 logits of the next token."""
        each = zip(self._members, self._caches, strict=True)
        return mean_logits([member(tokens, cache=cache)[:, -1] for member, cache in each])

    def reorder(self, rows: Int[Tensor, " R2"], sentences: Int[Tensor, " B2"] | None = None) -> None:
        """Keep these rows in this order (a row may be kept twice), and these sentences (None: all)."""
        for cache in self._caches:
            cache.select(rows)


class TranslationDecoder(ModelDecoder):
    """Incremental decoder of a translator; rows are translations of B sources, which are encoded once.

    The hypotheses of a sentence are branches of one tree: a row of the cache holds the keys and values
    of all tokens that any of them ever had, in the order of time, and each hypothesis attends to those on its own path
    from the root. A search that drops one hypothesis and continues another twice then changes paths (booleans) and
    moves no keys and values, which takes as long as everything else in a step.

    Args:
        model: the translator or the ensemble, in evaluation mode.
        src: sources (B, S), padded.
        src_padding_mask: True at real tokens, or None when nothing is padded.
    """

    def __init__(
        self, model: Any, src: Int[Tensor, "B S"], src_padding_mask: Bool[Tensor, "B S"] | None = None
    ) -> None:
        super().__init__(model)
        self._memories: list[Tensor] = [member.encode(src, src_padding_mask) for member in self._members]
        self._mask = src_padding_mask

    def reset(self) -> None:
        super().reset()
        self._depth = 0
        # Which tokens of the cache are on the path of each row, (R, K); None while a sentence has only one row.
        self._paths: Tensor | None = None

    def reorder(self, rows: Int[Tensor, " R2"], sentences: Int[Tensor, " B2"] | None = None) -> None:
        if sentences is not None:
            self._memories = [memory.index_select(0, sentences) for memory in self._memories]
            self._mask = None if self._mask is None else self._mask.index_select(0, sentences)
            for cache in self._caches:
                cache.select(sentences, sentences)
        if self._paths is not None:
            self._paths = self._paths.index_select(0, rows)
        elif len(rows) > len(self._memories[0]):
            self._paths = torch.ones(len(rows), self._caches[0].length, dtype=torch.bool, device=self.device)

    def step(self, tokens: Int[Tensor, "R n"]) -> Float[Tensor, "R V"]:
        """Append n tokens to each branch, one after another."""
        n_sentences = len(self._memories[0])
        width, logits, mask = len(tokens) // n_sentences, list[Tensor](), None
        for column in tokens.unbind(dim=1):
            if self._paths is not None:
                # The new tokens of a sentence lie side by side in the cache, and each is on its own path alone.
                itself = torch.eye(width, dtype=torch.bool, device=self.device).repeat(n_sentences, 1)
                self._paths = torch.cat([self._paths, itself], dim=1)  # (R, K)
                mask = Mask(self._paths.view(n_sentences, 1, width, -1), may_hide_all_keys=False)  # (B, 1, width, K)
            # All are equally deep, however many tokens the cache holds.
            positions = torch.full((1, width), self._depth, device=self.device)
            self._depth += 1
            grown, each = column.view(n_sentences, width), zip(self._members, self._memories, self._caches, strict=True)
            logits = [model.decode(grown, memory, self._mask, cache, positions, mask) for model, memory, cache in each]
        return mean_logits([each.view(len(tokens), -1) for each in logits])  # of (B, width, V)
