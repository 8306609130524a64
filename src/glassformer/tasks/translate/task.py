"""Translation: a sentence in, a sentence out, both in one joint vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from glassformer.config import Config, DecodeConfig
from glassformer.data.batching import Batch
from glassformer.data.corpus import EncodedCorpus
from glassformer.data.splits import Split, TextData
from glassformer.decode import Hypothesis, translate_ids
from glassformer.models import Translator
from glassformer.tasks.base import Task
from glassformer.text.tokenizer import Tokenizer

VALIDATION_SENTENCES = 1024
"""Sentences translated greedily at each validation; the loss is over all of them."""
SHORT_ANSWER = 5.0
"""Mean words of a target below which a translation is right or wrong rather than near, and BLEU, which
counts runs of four words, says nothing: such tasks (dates) are validated on exact match."""


class Translate(Task):
    """Validated on BLEU of greedy translations, or on exact match where answers are short."""

    name = "translate"
    metric = "bleu"
    higher_is_better = True

    @classmethod
    def fit(cls, config: Config, data: TextData, tokenizer: Tokenizer | None = None) -> Task:
        task = super().fit(config, data, tokenizer)
        targets = data.train.target or []
        if sum(len(t.split()) for t in targets) < SHORT_ANSWER * len(targets):
            task.metric = "exact_match"
        return task

    def build_model(self) -> Translator:
        size = self.tokenizer.vocab_size
        # One position more than the longest text: the end token of the source, the start token of the target.
        return Translator(self.config.model, size, size, self.config.text.max_len + 1)

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch.ids, batch.tgt_in, batch.padding_mask)

    def validate(
        self, model: nn.Module, corpus: EncodedCorpus, split: Split, device: torch.device
    ) -> dict[str, float]:
        from glassformer.evaluate.translation import score

        greedy = replace(self.config.decode, beam_size=1, n_best=1, sample=False)
        sources = split.text[:VALIDATION_SENTENCES]
        found = [self.tokenizer.decode(h[0].ids) for h in self._translate(model, sources, device, greedy)]
        scores = score(found, (split.target or [])[:VALIDATION_SENTENCES], n_bootstrap=0)
        shown = {name: float(scores[name]) for name in ("bleu", "chrf", "exact_match")}
        return {"loss": self.mean_loss(model, corpus, device)} | shown

    def evaluate(
        self,
        model: nn.Module,
        split: Split,
        device: torch.device,
        decode: DecodeConfig,
        train: Split | None = None,
    ) -> dict[str, Any]:
        from glassformer.evaluate.translation import copy_baseline, score

        references = split.target or []
        rows = self.predict(model, split.text, device, decode)
        scores = score([row["translation"] for row in rows], references)
        scores["baselines"] = {"copy": copy_baseline(split.text, references)}
        scores["beam_size"] = decode.beam_size
        scores["length_penalty"] = decode.length_penalty
        rows = [row | {"reference": reference} for row, reference in zip(rows, references, strict=True)]
        return scores | {"examples": rows[:8], "predictions": rows}

    def predict(
        self,
        model: nn.Module,
        texts: Sequence[str],
        device: torch.device,
        decode: DecodeConfig,
        first: int = 0,
    ) -> list[dict[str, Any]]:
        """{"text", "translation", "score"} each, and "n_best" where more than one was asked for.

        An empty text has an empty translation.
        """
        results = []
        for text, found in zip(texts, self._translate(model, texts, device, decode, first), strict=True):
            ranked = [{"translation": self.tokenizer.decode(h.ids), "score": h.score} for h in found]
            best = ranked[0] | ({} if found[0].finished else {"unfinished": True})
            results.append({"text": text} | best | ({"n_best": ranked} if decode.n_best > 1 else {}))
        return results

    def _translate(
        self,
        model: nn.Module,
        texts: Sequence[str],
        device: torch.device,
        decode: DecodeConfig,
        first: int = 0,
    ) -> list[list[Hypothesis]]:
        t, most = self.tokenizer, self.config.text.max_len
        encoded = zip(texts, t.encode_batch(list(texts)), strict=True)
        sources = [ids[:most] + [t.eos_id] if text.strip() else [] for text, ids in encoded]
        return translate_ids(
            cast(Translator, model),
            sources,
            decode,
            bos=t.bos_id,
            eos=t.eos_id,
            pad=t.pad_id,
            first_row=first,
        )
