"""Pretraining on texts alone: some tokens are hidden, and the model guesses them (Devlin et al. 2019, 3.1).

There are no pairs of sentences. What is learned is of use to a classifier of texts of the same kind: `--init-from`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from glassformer.config import DecodeConfig
from glassformer.data.batches import Batch, ngrams_of_batch, padding_mask_of
from glassformer.data.corpus import CorpusWriter, EncodedCorpus
from glassformer.data.datasets.columns import TEXT, DataSchema
from glassformer.data.splits import Split
from glassformer.distributed import SINGLE_PROCESS, ProcessGroup
from glassformer.evaluate.metrics import Metric
from glassformer.models.build import encoder_flops
from glassformer.models.encoder_models import MaskedLanguageModel
from glassformer.models.ensemble import evaluation_mode
from glassformer.nn.cross_entropy import IGNORE_INDEX, cross_entropy_sum
from glassformer.nn.ngram_embeddings import NgramBatch
from glassformer.runs.records import JsonObject
from glassformer.tasks.base import HASHED_NGRAMS, OF_LABELS, PARALLEL_FILES, Task, register
from glassformer.tasks.reporting import TaskReport
from glassformer.text import answers as masked_text
from glassformer.text.ngrams import AHEAD
from glassformer.utils.formatting import number, percent

SHARE = 0.15
"""Of the tokens of a text, how many are to be guessed."""
HIDDEN, EXCHANGED = 0.8, 0.1
"""Of those, how many read [MASK] and how many another token; the rest is left as it is, so that the model cannot tell
which of the tokens it sees are true."""


def mask_tokens(
    ids: Int[Tensor, "B S"],
    ngram_batch: NgramBatch | None,
    mask_id: int,
    special_ids: Collection[int],
    generator: torch.Generator | None = None,
) -> tuple[Int[Tensor, "B S"], NgramBatch | None, Int[Tensor, "B S"]]:
    """Mask tokens of padded ids (B, S) and their n-grams.

    Return both, and labels: the original token where it is predicted, else IGNORE_INDEX.

    The share is of every text's tokens, rounded, and at least one token; special tokens are never chosen; where a batch
    has no others, nothing is masked. The choice is new at each call (Liu et al. 2019, 4.1), drawn from `generator` or
    torch's own, which checkpoints keep. A token is replaced by one from anywhere in the batch, with its n-grams.
    """
    eligible = ~torch.isin(ids, torch.tensor(sorted(special_ids)))
    n_chosen = (SHARE * eligible.sum(dim=1)).round().clamp(min=1)
    order = torch.rand(ids.shape, generator=generator).masked_fill(~eligible, 2.0)
    chosen = eligible & (order.argsort(dim=1).argsort(dim=1) < n_chosen[:, None])
    fate = torch.rand(ids.shape, generator=generator)
    hidden, exchanged = chosen & (fate < HIDDEN), chosen & (fate >= 1 - EXCHANGED)
    places = eligible.flatten().nonzero()[:, 0]
    if not len(places):
        return ids, ngram_batch, torch.full_like(ids, IGNORE_INDEX)
    drawn = places[torch.randint(len(places), ids.shape, generator=generator)]
    source = torch.where(exchanged, drawn, torch.arange(ids.numel()).view(ids.shape))  # (B, S) into B · S
    seen = ids.flatten()[source].masked_fill(hidden, mask_id)
    if ngram_batch is not None:
        ngram_batch = replace(ngram_batch, index=ngram_batch.index.flatten()[source].masked_fill(hidden, 0))
    return seen, ngram_batch, ids.masked_fill(~chosen, IGNORE_INDEX)


def without_previews(ngram_batch: NgramBatch, ahead: Bool[Tensor, " N"], guessed: Bool[Tensor, "B S"]) -> NgramBatch:
    """Return the n-grams without those that reveal later masked tokens.

    In scripts without spaces n-grams look ahead. `ahead` is True for each n-gram id that extends beyond its token, and
    `guessed` at the tokens to predict.
    """
    reveals = ahead[ngram_batch.ngrams].any(dim=1)[ngram_batch.index]  # (B, S)
    near = torch.zeros_like(guessed)
    for distance in range(1, AHEAD + 1):
        near[:, :-distance] |= guessed[:, distance:]
    return replace(ngram_batch, index=ngram_batch.index.masked_fill(reveals & near, 0))


HIDDEN_SEED = 0
"""Of what is hidden when a loss is measured: the same tokens each time and in each run, so that losses compare."""


REPORT = TaskReport(
    model_name="masked language model",
    unit="masked tokens",
    metrics=(
        Metric("nats_per_masked_token", "Nats per masked token", "lower is better", number, False),
        Metric("masked_accuracy", "Masked-token accuracy", "share of masked tokens predicted right", percent),
    ),
    limits="It fills in words in the manner of its training texts. It is meant to be fine-tuned: "
    "glassformer train classify --init-from with the folder of its run.",
)


@register
class Pretrain(Task):
    """Validated on nats per hidden token."""

    name = "pretrain"
    explain_as = "masked_language_model"
    needs_tokens = ("mask",)
    imported_start: ClassVar = {"lr": 1e-4}
    schema = DataSchema("pretrain", (TEXT,))
    metric = "nats_per_masked_token"
    report = REPORT
    ignores = (
        PARALLEL_FILES
        | OF_LABELS
        | HASHED_NGRAMS
        | {"data.label_column", "data.use_test_as_validation", "text.truncate"}
        | {"model.pooling", "model.pooler", "model.output_bias", "model.ensemble_size"}
        | {"train.word_mask_prob", "train.word_unknown_prob"}
        | {f"decode.{f.name}" for f in fields(DecodeConfig) if f.name != "top_k"}
    )

    def encode_into(self, writer: CorpusWriter, split: Split, training: bool) -> None:
        """Write columns: ids, and the n-grams of the tokens.

        A text longer than `max_len` gives several sequences, since nothing is truncated. Texts without a token to
        predict are skipped and counted.
        """
        self._write(writer, (found for chunk in writer.chunks(split) for found in self.tokenizer.read(chunk.text)))

    def _write(self, writer: CorpusWriter, encoded: Iterable[tuple[list[int], list[str]]]) -> None:
        """Write the windows of encoded texts that hold a token to predict, or one that is masked already."""
        t, ids = self.tokenizer, writer.column("ids")
        length, others = t.room(self.config.text.max_len), t.special_ids - {t.mask_id}
        writer.stats |= {"n_empty": 0}
        for tokens, forms in encoded:
            writer.stats["n_empty"] += others.issuperset(tokens)
            for start in range(0, len(tokens), length):
                if not others.issuperset(window := tokens[start : start + length]):
                    ids.append(t.framed(window))
                    writer.add_surfaces(forms[start : start + length])

    def batches(self, model: nn.Module, corpus: EncodedCorpus, group: ProcessGroup = SINGLE_PROCESS) -> Iterator[Batch]:
        """Yield batches with the same masked tokens at every call and on every rank.

        Each masks all batches in order.
        """
        device, generator = next(model.parameters()).device, torch.Generator().manual_seed(HIDDEN_SEED)
        for i, index in enumerate(self.eval_batches(corpus)):
            batch = self.make_batch(corpus, index, generator)
            if i % group.world_size == group.rank:
                yield batch.to(device)

    def make_batch(self, corpus: EncodedCorpus, index: np.ndarray, generator: torch.Generator | None = None) -> Batch:
        """Make a batch whose masked tokens `generator` draws, or torch's own."""
        t = self.tokenizer
        ids, real = corpus.ids.padded(index, t.pad_id)
        ngram_batch = ngrams_of_batch(corpus, index)
        seen, ngram_batch, labels = mask_tokens(torch.from_numpy(ids), ngram_batch, t.mask_id, t.special_ids, generator)
        guessed = labels != IGNORE_INDEX
        if ngram_batch is not None and t.ngrams and any(ahead := t.ngrams.looks_ahead):
            ngram_batch = without_previews(ngram_batch, torch.tensor(ahead), guessed)
        n_labels = int(guessed.sum())
        return Batch(seen, padding_mask_of(real), labels, None, index, int(real.sum()), n_labels, ngram_batch)

    def build_single_model(self) -> MaskedLanguageModel:
        c, t = self.config, self.tokenizer
        n_ngrams = len(t.ngrams) if t.ngrams else 0
        return MaskedLanguageModel(c.model, t.vocab_size, c.text.max_len, n_ngrams, t.bigrams)

    def forward_flops(self, length: float) -> float:
        d_model = self.config.model.d_model
        return encoder_flops(self.config.model, length) + SHARE * 2 * d_model * (d_model + self.tokenizer.vocab_size)

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return logits (N, V) of the tokens that have a label."""
        return model(batch.ids, batch.padding_mask, batch.ngram_batch, batch.labels != IGNORE_INDEX)

    def loss_sum(self, model: nn.Module, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        labels = batch.labels[batch.labels != IGNORE_INDEX]
        return cross_entropy_sum(self.logits(model, batch), labels, label_smoothing)

    def validate(
        self, model: nn.Module, corpus: EncodedCorpus, split: Split, group: ProcessGroup = SINGLE_PROCESS
    ) -> dict[str, float]:
        sums = np.zeros(3)
        with evaluation_mode(model):
            for batch in self.batches(model, corpus, group):
                logits, labels = self.logits(model, batch), batch.labels[batch.labels != IGNORE_INDEX]
                right = int((logits.argmax(dim=-1) == labels).sum())
                sums += [cross_entropy_sum(logits, labels).item(), right, batch.n_labels]
        nats, right, n = group.all_reduce(*sums.tolist())
        return {"loss": nats / max(1, n), self.metric: nats / max(1, n), "masked_accuracy": right / max(1, n)}

    def evaluate(self, model: nn.Module, split: Split, decode: DecodeConfig, train: Split | None = None) -> JsonObject:
        corpus = self.encode(split, training=False)
        n = sum(batch.n_labels for batch in self.batches(model, corpus))
        return {"n": n, **self.validate(model, corpus, split), "predictions": []}

    def predict(self, model: nn.Module, texts: Sequence[str], decode: DecodeConfig, first: int = 0) -> list[JsonObject]:
        """Return {"text", "filled", "guesses"} for each text.

        The guesses are, for every [MASK], the most probable tokens, {"token", "probability"}. `filled` is the text with
        the first of them. A text without [MASK] is returned unchanged.
        """
        masked_text.warn_without_mask(texts)
        answers = []
        for text in texts:
            ids, words = masked_text.encode_masked(self.tokenizer, text)
            guesses = self._guesses(model, ids, words, decode.top_k or masked_text.N_PREDICTIONS)
            filled = masked_text.filled(text, [guess[0]["token"] for guess in guesses])
            answer = {"text": text, "filled": filled, "guesses": guesses}
            answers.append(answer | self.tokenizer.mark(ids))
        return answers

    def _guesses(self, model: nn.Module, ids: list[int], words: list[str], k: int) -> list[list[JsonObject]]:
        """Return the k most probable tokens for each masked id, in chunks as in training, without special tokens."""
        guesses, t, device = [], self.tokenizer, next(model.parameters()).device
        writer = CorpusWriter(t, self.config.text)
        self._write(writer, [(ids, words)])
        corpus = writer.corpus()
        with evaluation_mode(model):
            for i in range(len(corpus)):
                row = torch.tensor([corpus.ids[i].tolist()], device=device)
                if bool((wanted := row == t.mask_id).any()):
                    ngram_batch = ngrams_of_batch(corpus, np.array([i]))
                    logits = model(row, None, ngram_batch and ngram_batch.to(device), wanted).float().cpu()
                    guesses += masked_text.top_predictions(t, logits.numpy(), k)
        return guesses
