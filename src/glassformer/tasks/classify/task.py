"""Text classification: a text in, a probability for each class out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config import DecodeConfig
from glassformer.data.batching import Batch, eval_batches, make_batch
from glassformer.data.corpus import EncodedCorpus
from glassformer.data.splits import Split
from glassformer.errors import UsageError
from glassformer.models import TextClassifier
from glassformer.nn.cross_entropy import cross_entropy_sum
from glassformer.tasks.base import EVALUATION_TOKENS, Task


class Classify(Task):
    """Validated on accuracy."""

    name = "classify"
    metric = "accuracy"
    higher_is_better = True

    @property
    def labels(self) -> list[str]:
        """The classes, in the order of the logits."""
        if not self.label_names:
            raise UsageError("a classifier needs label names")
        return self.label_names

    def build_model(self) -> TextClassifier:
        text = self.config.text
        return TextClassifier(self.config.model, self.tokenizer.vocab_size, len(self.labels), text.max_len)

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch.ids, batch.padding_mask)

    def validate(
        self, model: nn.Module, corpus: EncodedCorpus, split: Split, device: torch.device
    ) -> dict[str, float]:
        logits, labels = self._all_logits(model, corpus, device)
        loss = cross_entropy_sum(logits, labels).item() / max(1, len(labels))
        return {"loss": loss, "accuracy": (logits.argmax(dim=-1) == labels).float().mean().item()}

    def evaluate(
        self,
        model: nn.Module,
        split: Split,
        device: torch.device,
        decode: DecodeConfig,
        train: Split | None = None,
    ) -> dict[str, Any]:
        from glassformer.evaluate.baselines import fit_baselines
        from glassformer.evaluate.classification import score

        corpus = self.encode(split, training=False)
        logits, labels = self._all_logits(model, corpus, device)
        probabilities = logits.double().softmax(dim=-1).numpy()
        scores = score(labels.numpy(), probabilities, self.labels)
        scores["truncated"] = int(corpus.stats.get("n_truncated", 0))
        if train is not None and train.labels is not None and split.labels is not None:
            scores["baselines"] = fit_baselines(train.text, train.labels, split.text, split.labels)
        truth = [self.labels[i] for i in labels.tolist()]
        results = [self._result(text, p) for text, p in zip(split.text, probabilities, strict=True)]
        rows = [result | {"truth": true} for result, true in zip(results, truth, strict=True)]
        # Texts can be long, and the data set has them: a number is enough to find one again.
        stored = [{"index": i} | {k: v for k, v in row.items() if k != "text"} for i, row in enumerate(rows)]
        return scores | {"examples": rows[:8], "predictions": stored}

    def predict(
        self,
        model: nn.Module,
        texts: Sequence[str],
        device: torch.device,
        decode: DecodeConfig,
        first: int = 0,
    ) -> list[dict[str, Any]]:
        split = Split(list(texts), None, [0] * len(texts), "input")
        logits, _ = self._all_logits(model, self.encode(split, training=False), device)
        probabilities = logits.double().softmax(dim=-1).numpy()
        return [self._result(text, p) for text, p in zip(texts, probabilities, strict=True)]

    def _all_logits(
        self, model: nn.Module, corpus: EncodedCorpus, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Logits (N, C) and labels (N,) on the CPU, in the corpus's order."""
        logits = torch.zeros(len(corpus), len(self.labels))
        labels = torch.zeros(len(corpus), dtype=torch.long)
        for index in eval_batches(corpus, self.name, EVALUATION_TOKENS, self.config.text):
            batch = make_batch(corpus, self.name, index, self.tokenizer)
            rows = torch.from_numpy(np.asarray(index, dtype=np.int64))
            labels[rows] = batch.labels
            logits[rows] = self.logits(model, batch.to(device)).float().cpu()
        return logits, labels

    def _result(self, text: str, probabilities: np.ndarray) -> dict[str, Any]:
        best = int(probabilities.argmax())
        named = {name: float(p) for name, p in zip(self.labels, probabilities, strict=True)}
        return {
            "text": text,
            "label": self.labels[best],
            "probability": float(probabilities[best]),
            "probabilities": named,
        }
