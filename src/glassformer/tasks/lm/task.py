"""Language modelling: the next token of a running text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from glassformer.config import DecodeConfig
from glassformer.data.batching import Batch, eval_batches, make_batch
from glassformer.data.corpus import EncodedCorpus
from glassformer.data.splits import Split
from glassformer.decode import generate_ids
from glassformer.models import LanguageModel
from glassformer.tasks.base import EVALUATION_TOKENS, Task


class LanguageModelling(Task):
    """Validated on nats per token; every token of the held-out part but the very first is scored once."""

    name = "lm"
    metric = "nats_per_token"
    higher_is_better = False

    def build_model(self) -> LanguageModel:
        return LanguageModel(self.config.model, self.tokenizer.vocab_size, self.config.text.max_len)

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch.ids)

    def validate(
        self, model: nn.Module, corpus: EncodedCorpus, split: Split, device: torch.device
    ) -> dict[str, float]:
        loss = self.mean_loss(model, corpus, device)
        return {"loss": loss, "nats_per_token": loss}

    def evaluate(
        self,
        model: nn.Module,
        split: Split,
        device: torch.device,
        decode: DecodeConfig,
        train: Split | None = None,
    ) -> dict[str, Any]:
        from glassformer.evaluate.language import score

        corpus = self.encode(split, training=False)
        nats, n_tokens = 0.0, 0
        for index in eval_batches(corpus, self.name, EVALUATION_TOKENS, self.config.text):
            batch = make_batch(corpus, self.name, index, self.tokenizer).to(device)
            nats += self.loss_sum(model, batch).item()
            n_tokens += batch.n_labels
        n_chars, n_bytes = (
            sum(len(s) for s in texts) for texts in (split.text, [t.encode() for t in split.text])
        )
        scores: dict[str, Any] = dict(score(nats, n_tokens, n_chars, n_bytes))
        prompt = split.text[0][:40]
        return scores | {"examples": self.predict(model, [prompt], device, decode), "predictions": []}

    def predict(
        self,
        model: nn.Module,
        texts: Sequence[str],
        device: torch.device,
        decode: DecodeConfig,
        first: int = 0,
    ) -> list[dict[str, Any]]:
        """{"prompt", "text"} each, text being what was written after the prompt.

        An empty prompt begins after an end-of-document token.
        """
        t = self.tokenizer
        prompts = [ids or [t.eos_id] for ids in t.encode_batch(list(texts))]
        banned = [t.pad_id, t.unk_id, t.bos_id, t.mask_id]
        written = generate_ids(
            cast(LanguageModel, model), prompts, decode, eos=t.eos_id, banned=banned, first_row=first
        )
        return [{"prompt": p, "text": t.decode(ids)} for p, ids in zip(texts, written, strict=True)]
