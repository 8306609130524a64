"""A bare encoder: a text in, one vector out, such as a sentence encoder's. It comes from an import, and is not trained.

It has no answer to score; an explanation shows every number up to the vector. A classifier, or a masked language
model, is fine-tuned from it: `--init-from`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config import DecodeConfig
from glassformer.data.batches import Batch, padding_mask_of
from glassformer.data.corpus import ArrayWriter, CorpusWriter, EncodedCorpus
from glassformer.data.datasets.columns import TEXT, DataSchema
from glassformer.data.splits import Split
from glassformer.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from glassformer.errors import DivergedError, UsageError
from glassformer.models.build import encoder_flops
from glassformer.models.encoder_models import TextEmbedder
from glassformer.models.ensemble import evaluation_mode
from glassformer.runs.records import JsonObject
from glassformer.tasks import register
from glassformer.tasks.base import CLASSES, HASHED_NGRAMS, PAIRS_OF_TEXTS, PARALLEL_FILES, SEVERAL_LABELS, Task
from glassformer.tasks.reporting import TaskReport
from glassformer.text.answers import vector_lines


class EmbedReport(TaskReport):
    """The vector of a text."""

    model_name = "text encoder"
    pipeline_tag = "feature-extraction"
    family = "encoder"
    headline = "loss"
    limits = (
        "It gives a vector for a text, and no answer. It is meant to be fine-tuned: "
        "glassformer train classify --init-from with the folder of its run."
    )

    def answer_lines(self, answer: JsonObject) -> list[str]:
        return vector_lines(answer)


@register
class Embed(Task):
    """Neither trained nor scored."""

    name = "embed"
    schema = DataSchema("embed", (TEXT,))
    metric = "loss"
    report = EmbedReport()
    explain_as = "text_embedder"
    pools = True
    ignores = (
        PARALLEL_FILES
        | HASHED_NGRAMS
        | SEVERAL_LABELS
        | PAIRS_OF_TEXTS
        | CLASSES
        | {"model.tie_embeddings", "model.output_bias", "model.pooler", "decode"}
    )

    def encode_into(self, writer: CorpusWriter, split: Split, training: bool) -> None:
        """Write one column, ids, a sequence per text."""
        ids = writer.sequences("ids")
        for chunk in writer.chunks(split):
            for tokens in self.tokenizer.encode_batch(chunk.text):
                ids.append(writer.truncate(tokens, self.config.text.truncate))

    def make_batch(self, corpus: EncodedCorpus, index: np.ndarray) -> Batch:
        ids, real = corpus.ids.padded(index, self.tokenizer.pad_id)
        labels, n = torch.zeros(len(index), dtype=torch.long), int(real.sum())
        return Batch(torch.from_numpy(ids), padding_mask_of(real), labels, None, index, n, len(index), None)

    def build_single_model(self) -> TextEmbedder:
        c = self.config
        return TextEmbedder(c.model, self.tokenizer.vocab_size, c.text.max_len)

    def forward_flops(self, length: float) -> float:
        return encoder_flops(self.config.model, length)

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the vectors (B, P) of the texts."""
        return model(batch.ids, batch.padding_mask)

    def loss_sum(self, model: nn.Module, batch: Batch, label_smoothing: float = 0.0) -> NoReturn:
        raise _no_answer()

    def validate(
        self, model: nn.Module, corpus: EncodedCorpus, split: Split, group: ProcessGroup = SINGLE_PROCESS
    ) -> NoReturn:
        raise _no_answer()

    def evaluate(self, model: nn.Module, split: Split, decode: DecodeConfig, train: Split | None = None) -> NoReturn:
        raise _no_answer()

    def predict(
        self, model: nn.Module, texts: Sequence[str], decode: DecodeConfig, first: int = 0
    ) -> list[dict[str, Any]]:
        """Return {"text", "vector"} for each text, and what `Classify.predict` says of a text."""
        encoded = self.tokenizer.encode_cut(texts, self.config.text.max_len, self.config.text.truncate)
        arrays = ArrayWriter(None)
        writer = CorpusWriter(arrays, self.tokenizer, self.config.text)
        ids = writer.sequences("ids")
        for cut in encoded:
            ids.append(cut.ids)
        corpus = EncodedCorpus.from_arrays(arrays.in_memory(), writer.stats, str)
        vectors = dict[int, list[float]]()
        with evaluation_mode(model):
            for batch in self.batches(model, corpus):
                rows = self.logits(model, batch).float().cpu()
                if not bool(rows.isfinite().all()):
                    raise DivergedError("the model's vectors are not finite", "import the model again")
                vectors |= dict(zip(batch.index.tolist(), rows.tolist(), strict=True))
        rows = ({"text": text, "vector": vectors[i]} for i, text in enumerate(texts))
        return [row | cut.mark for row, cut in zip(rows, encoded, strict=True)]


def _no_answer() -> UsageError:
    hint = "fine-tune it: glassformer train classify --init-from with the folder of its run"
    return UsageError("a bare encoder gives vectors, and no answer to score", hint)
