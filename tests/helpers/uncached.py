"""Decoders that recompute every prefix, which decoding with a cache must equal."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.decode.incremental import EnsembleDecoder, ModelDecoder
from glassformer.models.ensemble import members_of


class Recomputing(ModelDecoder):
    """The decoder of a language model, or of a translator where sources are given."""

    def __init__(self, model: Any, src: Tensor | None = None, mask: Tensor | None = None) -> None:
        self.model, self.mask, self.past = model, mask, None
        self.max_len, self.device = model.max_len, next(model.parameters()).device
        self.memory = None if src is None else model.encode(src, mask)

    def reset(self) -> None:
        self.past = None

    def step(self, tokens: Tensor) -> Tensor:
        past = self.past = tokens if self.past is None else torch.cat([self.past, tokens], dim=1)
        logits = self.model(past) if self.memory is None else self.model.decode(past, self.memory, self.mask)
        return logits[:, -1].float()

    def reorder(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        self.past = None if self.past is None else self.past.index_select(0, rows)
        if sentences is not None and self.memory is not None:
            self.memory = self.memory.index_select(0, sentences)
            self.mask = None if self.mask is None else self.mask.index_select(0, sentences)


def recompute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `translate_ids` and `generate_ids` decode without a cache."""

    def decoder(model: Any, *sources: Any) -> Any:
        made = [Recomputing(member, *sources) for member in members_of(model)]
        return made[0] if len(made) == 1 else EnsembleDecoder(made)

    monkeypatch.setattr("glassformer.decode.translate.translation_decoder", decoder)
    monkeypatch.setattr("glassformer.decode.sampling.lm_decoder", decoder)
