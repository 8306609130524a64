"""Language modelling: the next token of a running text.

Windows and tokens are a model's own; characters of the text are not. Blocks are cut by the text alone, so any two
models that were scored on it have the same ones, and a paired test can exchange them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config import Config, DecodeConfig
from glassformer.data.batches import Batch, BatchPlan, overlapping_windows, padding_mask_of, shuffled_windows
from glassformer.data.corpus import CorpusWriter, EncodedCorpus, gather_padded, split_document
from glassformer.data.datasets.columns import DataSchema
from glassformer.data.splits import Split, TextData
from glassformer.decode.jobs import generate_ids
from glassformer.errors import DataError
from glassformer.evaluate.metrics import score
from glassformer.evaluate.scoring import Predictions, Scoring, ratio
from glassformer.models import LanguageModel
from glassformer.models.build import decoder_flops
from glassformer.models.ensemble import Ensemble, evaluation_mode
from glassformer.nn.cross_entropy import IGNORE_INDEX
from glassformer.runs.records import JsonObject
from glassformer.tasks.base import EVALUATION_TOKENS, OF_LABELS, PARALLEL_FILES, WORD_VOCAB_SIZE, Task, register
from glassformer.tasks.reporting import TaskReport
from glassformer.text.backends import SPECIAL_TOKENS
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils.formatting import fenced

MOST_BLOCKS, LEAST_CHARS = 500, 200
"""Into so many blocks a text is cut at most, and none is shorter: neighbours within a sentence are not independent."""


def nats_by_token(task: Task, model: nn.Module, corpus: EncodedCorpus) -> np.ndarray:
    """Return −log p of every token of a running text, (N,) in nats; 0 for the first, which nothing predicts."""
    nats = np.zeros(len(corpus.ids.flat))
    with evaluation_mode(model):
        for batch in task.batches(model, corpus):
            logits = task.logits(model, batch).float().flatten(0, 1)
            losses = F.cross_entropy(logits, batch.labels.flatten(), ignore_index=IGNORE_INDEX, reduction="none")
            scored = (batch.labels != IGNORE_INDEX).cpu().numpy()
            position = batch.index[:, None] + 1 + np.arange(scored.shape[1])
            nats[position[scored]] = losses.view(scored.shape).cpu().numpy()[scored]
    return nats


def by_block(nats: np.ndarray, starts: np.ndarray, n_chars: int) -> list[JsonObject]:
    """Return {"block", "chars", "nats"} for each block of a text of `n_chars` characters, by where its tokens start."""
    size = max(LEAST_CHARS, -(-n_chars // MOST_BLOCKS))
    n = -(-n_chars // size)
    sums = np.bincount(np.minimum(starts // size, n - 1), weights=nats, minlength=n)
    chars = [min(size, n_chars - i * size) for i in range(n)]
    return [{"block": i, "chars": chars[i], "nats": round(float(sums[i]), 4)} for i in range(n)]


def token_starts(tokenizer: Tokenizer, documents: Sequence[str]) -> np.ndarray:
    """Return the character at which each token starts, (N,) int64; between documents there is an end token, if any."""
    starts, at = list[int](), 0
    for i, document in enumerate(documents):
        if i and tokenizer.eos_id >= 0:
            starts.append(max(0, at - 1))  # the end token belongs to what it ends
        for piece in chain.from_iterable(split_document(document, tokenizer.kind)):
            starts += [at + start for start, _ in tokenizer.offsets(piece)]
            at += len(piece)
    return np.array(starts, np.int64)


def block_counts(predictions: Predictions) -> np.ndarray:
    """Return the bits of each block of the text and its characters, (N, 2)."""
    return np.array([(float(row["nats"]) / math.log(2), float(row["chars"])) for row in predictions])


BITS = Scoring("bits_per_char", block_counts, ratio, unit="blocks of the text")
LOSSY = """The tokenizer leaves out white space, capitals or unknown tokens ({unknown:,} here), so less is predicted \
than was written: bits per character and per byte do not compare with those of models that predict every character."""


REPORT = TaskReport(
    model_name="language model",
    loss_unit="nats per token",
    unit="tokens",
    table_metrics=("bits_per_char", "nats_per_char", "bits_per_byte", "nats_per_token", "perplexity"),
    limits="It continues text in the manner of its training text. It knows no facts and follows no instructions.",
    comparison_keys=("chars", "nats"),
    example_table=lambda examples: "\n\n".join(fenced(f"{e['prompt']}{e['text']}") for e in examples),
    scored=lambda scores: BITS,
)


@register
class LanguageModelling(Task):
    """Validated on nats per token; every token of the held-out part but the very first is scored once."""

    name = "lm"
    schema = DataSchema("lm")
    metric = "nats_per_token"
    running_text = True
    explain_as = "language_model"
    imported_start: ClassVar = {"lr": 1e-4}
    report = REPORT
    writes = ("eos",)
    ignores = (
        PARALLEL_FILES
        | OF_LABELS
        | {"data.text_column", "data.label_column", "text.truncate", "text.ngrams", "text.bigrams"}
        | {"model.pooling", "model.pooler", "model.n_segments", "model.output_bias"}
        | {f"decode.{name}" for name in ("beam_size", "length_penalty", "n_best", "sample", "bleu_tokenize")}
    )

    @classmethod
    def suggest_settings(cls, data: TextData, config: Config) -> tuple[JsonObject, str]:
        """Return settings by the number of characters.

        - Vocabulary: a thousand pieces at least, 1,500 for a million characters, more by the root of the length.
        - Passes: eleven over a million characters, more over fewer, up to 25; validation ends them earlier.
        - Dropout where a text is read often.

        RESULTS.md has what the first 100,000 characters of Shakespeare say of it: fewer pieces are worse.
        """
        n = max(1, sum(map(len, data.train.text)))
        pieces = int(min(16_000, max(1000, round(1500 * (n / 1e6) ** 0.5, -2))))
        return {
            "vocab_size": WORD_VOCAB_SIZE if config.text.tokenizer == "word" else pieces,
            "epochs": round(min(25.0, max(1.0, 11 / (n / 1e6) ** 0.45)), 1),
            "dropout": 0.3 if n < 0.2e6 else 0.15 if n < 5e6 else 0.05 if n < 50e6 else 0.0,
        }, f"{n:,} characters"

    def encode_into(self, writer: CorpusWriter, split: Split, training: bool) -> None:
        """Write one column, ids, of one sequence: all documents with an end token between them."""
        ids = writer.column("ids")
        for i, document in enumerate(split.text):
            writer.stats["n"] += 1
            if i and self.tokenizer.eos_id >= 0:  # that of a pretrained model may have none
                ids.values.append(self.tokenizer.eos_id)
            for parts in split_document(document, self.tokenizer.kind):
                for tokens in self.tokenizer.encode_batch(parts):
                    ids.values.fromlist(tokens)
        if len(ids.values) < 2:
            message = f"{split.source}: a text of {len(ids.values)} tokens leaves nothing to predict"
            raise DataError(message, "give a longer text, with characters of the vocabulary")
        ids.append()

    def epoch_batches(self, corpus: EncodedCorpus, epoch: int) -> BatchPlan:
        """Return shuffled windows that start at a random offset."""
        return shuffled_windows(len(corpus.ids.flat), self.config.text.max_len, self.config.train, epoch)

    def eval_batches(self, corpus: EncodedCorpus, max_tokens: int = EVALUATION_TOKENS) -> BatchPlan:
        """Return overlapping windows in reading order, so that no token is predicted from little context."""
        return overlapping_windows(len(corpus.ids.flat), self.config.text.max_len, max_tokens)

    def make_batch(self, corpus: EncodedCorpus, index: np.ndarray) -> Batch:
        """Make a batch of windows (B, 3).

        Labels are the next ids; those before a window's `first` token are context only.
        """
        start, stop, first = index.T
        ids, real = gather_padded(corpus.ids.flat, start, stop - start, self.tokenizer.pad_id)
        labels, _ = gather_padded(corpus.ids.flat, start + 1, stop - start, IGNORE_INDEX)
        position = start[:, None] + 1 + np.arange(ids.shape[1])
        labels[position < first[:, None]] = IGNORE_INDEX
        mask, n_labels = padding_mask_of(real), int((stop + 1 - first).sum())
        return Batch(torch.from_numpy(ids), mask, torch.from_numpy(labels), None, start, int(real.sum()), n_labels)

    def build_single_model(self) -> LanguageModel:
        c = self.config
        return LanguageModel(c.model, self.tokenizer.vocab_size, c.text.max_len, len(SPECIAL_TOKENS))

    def forward_flops(self, length: float) -> float:
        return decoder_flops(self.config.model, length, self.tokenizer.vocab_size, cross=False)

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch.ids)

    def evaluate(self, model: nn.Module, split: Split, decode: DecodeConfig, train: Split | None = None) -> JsonObject:
        corpus, t = self.encode(split, training=False), self.tokenizer
        nats, unknown = nats_by_token(self, model, corpus), corpus.stats.get("n_unknown", 0)
        n_chars, n_bytes = sum(map(len, split.text)), sum(len(text.encode()) for text in split.text)
        scores: JsonObject = dict(score(float(nats.sum()), len(nats) - 1, n_chars, n_bytes))
        if t.kind == "word" or self.config.text.lowercase or t.lowercases or unknown:
            scores |= {"headline": "nats_per_token", "notes": [LOSSY.format(unknown=unknown)]}
        blocks = by_block(nats, token_starts(t, split.text), n_chars)
        return scores | {"examples": self.predict(model, [split.text[0][:40]], decode), "predictions": blocks}

    def predict(self, model: nn.Module, texts: Sequence[str], decode: DecodeConfig, first: int = 0) -> list[JsonObject]:
        """Return {"prompt", "text"} for each prompt, with the continuation as text.

        An empty prompt starts after an end-of-document token. Of a prompt longer than the context the end is read, and
        the answer has "truncated": True; "unknown" counts the tokens that the vocabulary lacks.
        """
        t, context = self.tokenizer, self.config.text.max_len
        prompts = [t.framed(ids) or [t.start_id] for ids in t.encode_batch(list(texts))]
        options: Any = {"eos": t.eos_id, "suppress_tokens": self.suppress_tokens, "first_row": first}
        written = generate_ids(cast("LanguageModel | Ensemble", model), prompts, decode, **options)
        answers = []
        for text, prompt, ids in zip(texts, prompts, written, strict=True):
            answers.append({"prompt": text, "text": t.decode(ids)} | t.mark(prompt, len(prompt) > context))
        return answers
