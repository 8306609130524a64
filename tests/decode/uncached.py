"""Decoders that recompute every prefix, which decoding with a cache must equal."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.decode.incremental import ModelDecoder
from glassformer.models.ensemble import mean_logits, members_of


class Recomputing(ModelDecoder):
    """The decoder of a language model, or of a translator where sources are given."""

    def __init__(self, model: Any, src: Tensor | None = None, mask: Tensor | None = None) -> None:
        self.models, self.mask, self.past = members_of(model), mask, None
        self.max_len, self.device = model.max_len, next(model.parameters()).device
        self.memories = [None if src is None else each.encode(src, mask) for each in self.models]

    def reset(self) -> None:
        self.past = None

    def step(self, tokens: Tensor) -> Tensor:
        past = self.past = tokens if self.past is None else torch.cat([self.past, tokens], dim=1)
        each: Any = zip(self.models, self.memories, strict=True)
        logits = [one(past) if memory is None else one.decode(past, memory, self.mask) for one, memory in each]
        return mean_logits([rows[:, -1] for rows in logits])

    def reorder(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        self.past = None if self.past is None else self.past.index_select(0, rows)
        if sentences is not None:
            self.memories = [None if memory is None else memory.index_select(0, sentences) for memory in self.memories]
            self.mask = None if self.mask is None else self.mask.index_select(0, sentences)


def recompute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `translate_ids` and `generate_ids` decode without a cache."""
    monkeypatch.setattr("glassformer.decode.jobs.TranslationDecoder", Recomputing)
    monkeypatch.setattr("glassformer.decode.jobs.ModelDecoder", Recomputing)
