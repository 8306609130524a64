"""A task of one's own, whole in this one file: a tag for every token of a word tokenizer, simpler than `tasks/tag.py`.

Nothing else of the library knows of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.data.batches import Batch, padding_mask_of
from glassformer.data.corpus import CorpusWriter, EncodedCorpus, RaggedArray
from glassformer.data.datasets.columns import TEXT, ColumnSpec, DataSchema, Rows
from glassformer.data.diagnostics import Diagnostics
from glassformer.data.splits import Split
from glassformer.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from glassformer.evaluate.metrics import Metric
from glassformer.models.build import encoder_flops, initialise, make_embedding, make_encoder, make_rotation
from glassformer.models.ensemble import evaluation_mode
from glassformer.nn.attention import Mask
from glassformer.nn.cross_entropy import IGNORE_INDEX
from glassformer.nn.embeddings import positions_of
from glassformer.tasks import Task, register
from glassformer.tasks.reporting import TaskReport
from glassformer.utils.formatting import percent

TAGS = ColumnSpec("tags", "--label-column", ("tags", "pos", "ner"))


def check_tags(rows: Mapping[str, Rows], diagnostics: Diagnostics) -> None:
    """As many tags as words, and none that training lacks."""
    known = {tag for answer in rows["train"].answer for tag in answer.split()} if "train" in rows else None
    for part in rows.values():
        for line, text, answer in zip(part.lines, part.text, part.answer, strict=True):
            words, tags = text.split(), answer.split()
            if len(words) != len(tags):
                diagnostics.error(part.path, line, "label", f"{len(words)} words, but {len(tags)} tags")
            elif known is not None and not known.issuperset(tags):
                diagnostics.error(part.path, line, "label", f"a tag of {answer!r} is none of the training data's")


class Tagger(nn.Module):
    """Embedding, encoder, and a linear layer at every token."""

    def __init__(self, config: ModelConfig, vocab_size: int, n_tags: int, max_len: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = make_embedding(config, vocab_size, max_len)
        self.encoder = make_encoder(config)
        self.head = nn.Linear(config.d_model, n_tags)
        initialise(self)

    def forward(self, ids: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """Logits (B, S, C)."""
        positions = positions_of(ids.shape[1], None, ids.device)
        mask = Mask.of(padding_mask=padding_mask)
        x = self.encoder(self.embedding(ids, positions), mask, make_rotation(self.config, positions))
        return self.head(x)


class TagReport(TaskReport):
    """A metric of its own, and its words."""

    model_name = "tagger"
    family = "encoder"
    unit = "words"
    loss_unit = "nats per word"
    metrics = (Metric("tag_accuracy", "Tag accuracy", "share of words tagged right", percent),)
    limits = "It knows the tags of its training data and no other."
    comparison_keys: ClassVar = ("truth", "tags")


class Tag(Task):
    """Validated on the share of words whose tag is right."""

    name = "toy-tag"
    schema = DataSchema("toy-tag", (TEXT, TAGS), check=check_tags)
    metric = "tag_accuracy"
    report = TagReport()
    ignores = frozenset({"decode", "model.pooling", "model.tie_embeddings"})

    @classmethod
    def classes_of(cls, train: Split) -> list[str]:
        return sorted({tag for answer in train.answers for tag in answer.split()})

    @property
    def tags(self) -> list[str]:
        return self.label_names or []

    def encode_into(self, writer: CorpusWriter, split: Split, training: bool) -> None:
        number = {tag: i for i, tag in enumerate(self.tags)}
        ids, tags = writer.sequences("ids"), writer.sequences("target")
        for chunk in writer.chunks(split):
            for tokens, answer in zip(self.tokenizer.encode_batch(chunk.text), chunk.answers, strict=True):
                ids.append(writer.truncate(tokens))
                tags.append([number[tag] for tag in answer.split()][: self.config.text.max_len])

    def make_batch(self, corpus: EncodedCorpus, index: np.ndarray) -> Batch:
        ids, real = corpus.ids.padded(index, self.tokenizer.pad_id)
        labels, _ = corpus.targets.padded(index, IGNORE_INDEX)
        n = int(real.sum())
        return Batch(
            torch.from_numpy(ids), padding_mask_of(real), torch.from_numpy(labels), None, index, n_tokens=n, n_labels=n
        )

    def build_single_model(self) -> Tagger:
        text = self.config.text
        return Tagger(self.config.model, self.tokenizer.vocab_size, len(self.tags), text.max_len)

    def forward_flops(self, length: float) -> float:
        return encoder_flops(self.config.model, length)

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch.ids, batch.padding_mask)

    def validate(
        self, model: nn.Module, corpus: EncodedCorpus, split: Split, group: ProcessGroup = SINGLE_PROCESS
    ) -> dict[str, float]:
        right = n = 0
        with evaluation_mode(model):
            for batch in self.batches(model, corpus, group):
                scored = batch.labels != IGNORE_INDEX
                right += int((self.logits(model, batch).argmax(dim=-1) == batch.labels)[scored].sum())
                n += int(scored.sum())
        return {"loss": self.mean_loss(model, corpus, group), "tag_accuracy": right / max(1, n)}

    def evaluate(
        self, model: nn.Module, split: Split, decode: DecodeConfig, train: Split | None = None
    ) -> dict[str, Any]:
        answers = self.predict(model, split.text, decode)
        rows = [answer | {"truth": true} for answer, true in zip(answers, split.answers, strict=True)]
        pairs = [pair for row in rows for pair in zip(row["tags"].split(), row["truth"].split(), strict=True)]
        right = sum(found == true for found, true in pairs)
        return {"n": len(pairs), "tag_accuracy": right / len(pairs), "examples": rows[:8], "predictions": rows}

    def predict(
        self, model: nn.Module, texts: Sequence[str], decode: DecodeConfig, first: int = 0
    ) -> list[dict[str, Any]]:
        """{"text", "tags"} each."""
        ids = RaggedArray.from_lists(self.tokenizer.encode_batch(list(texts)))
        found = []
        with evaluation_mode(model):
            for i, text in enumerate(texts):
                row, _ = ids.padded(np.array([i]), self.tokenizer.pad_id)
                device = next(model.parameters()).device
                best = model(torch.from_numpy(row).to(device))[0].argmax(dim=-1).tolist()[: len(ids[i])]
                found.append({"text": text, "tags": " ".join(self.tags[tag] for tag in best)})
        return found


RECIPE = """
task = "toy-tag"
note = "Words and their tags."

[text]
tokenizer = "word"
vocab_size = 200
max_len = 32

[model]
n_layers = 1
d_model = 32
n_heads = 2
d_ff = 64

[train]
epochs = 24
max_tokens = 128
lr = 8e-3
save_every = 40
validate_every = 1.0
precision = "fp32"
device = "cpu"
"""
"""What a person would write down of it, to train with."""


def register_tag() -> None:
    """Register the task in a process of its own."""
    register(Tag)
