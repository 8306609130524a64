"""Pretraining on texts alone: some tokens are hidden, and the model guesses them (Devlin et al. 2019, 3.1).

Masked language modelling (Devlin et al. 2019, 3.1), without the pairs of sentences. What is learned is of use to a
classifier of texts of the same kind: `--init-from`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from glassformer.config import DecodeConfig
from glassformer.data.batches import (
    Batch,
    BatchPlan,
    ngrams_of_batch,
    overlapping_windows,
    padding_mask_of,
    shuffled_windows,
)
from glassformer.data.corpus import CorpusWriter, EncodedCorpus, RaggedArray, gather_padded
from glassformer.data.datasets.columns import TEXT, DataSchema
from glassformer.data.splits import Split
from glassformer.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from glassformer.evaluate.metrics import Metric
from glassformer.models.build import encoder_flops
from glassformer.models.encoder_models import MaskedLanguageModel
from glassformer.models.ensemble import evaluation_mode
from glassformer.nn.cross_entropy import IGNORE_INDEX, cross_entropy_sum
from glassformer.nn.ngram_embeddings import NgramBatch
from glassformer.tasks import register
from glassformer.tasks.base import EVALUATION_TOKENS, HASHED_NGRAMS, OF_LABELS, PARALLEL_FILES, Task
from glassformer.tasks.reporting import TaskReport
from glassformer.text import answers as masked_text
from glassformer.text.answers import masked_lines
from glassformer.text.ngrams import AHEAD
from glassformer.text.tokenizer import MASK
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
    generator: torch.Generator | None = None,
    special_ids: Collection[int] | None = None,
) -> tuple[Int[Tensor, "B S"], NgramBatch | None, Int[Tensor, "B S"]]:
    """Mask tokens of padded ids (B, S) and their n-grams.

    Return both, and labels: the original token where it is predicted, else IGNORE_INDEX.

    The share is of every text's tokens, rounded, and at least one token; special tokens, by default the ids up to
    `mask_id`, are never chosen; where a batch has no others, nothing is masked. The choice is new at each call (Liu et
    al. 2019, 4.1), drawn from `generator` or torch's own, which checkpoints keep. A token is replaced by one from
    anywhere in the batch, with its n-grams.
    """
    special = range(mask_id + 1) if special_ids is None else sorted(special_ids)
    eligible = ~torch.isin(ids, torch.tensor([*special]))
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
N_EXAMPLES, EXAMPLE_TOKENS, EXAMPLE_CHARS = 6, 24, 400


REPORT = TaskReport(
    model_name="masked language model",
    pipeline_tag="fill-mask",
    family="encoder",
    unit="masked tokens",
    loss_unit="nats per masked token",
    metrics=(
        Metric("nats_per_masked_token", "Nats per masked token", "lower is better", number, False),
        Metric("masked_accuracy", "Masked-token accuracy", "share of masked tokens predicted right", percent),
    ),
    limits="It fills in words in the manner of its training texts. It is meant to be fine-tuned: "
    "glassformer train classify --init-from with the folder of its run.",
    examples_note="Beginnings of the first texts, one token of each hidden.",
    example_text='"I [MASK] this film."',
    answer_lines=masked_lines,
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
        | {"data.files.label_column", "data.use_test_as_validation", "text.truncate"}
        | {"model.pooling", "model.pooler", "model.output_bias", "model.ensemble_size"}
        | {"train.word_mask_prob", "train.word_unknown_prob"}
        | {f"decode.{f.name}" for f in fields(DecodeConfig) if f.name != "top_k"}
    )

    def encode_into(self, writer: CorpusWriter, split: Split, training: bool) -> None:
        """Write columns: ids, and the n-grams of the tokens.

        A text longer than `max_len` gives several sequences, since nothing is truncated. Texts without a token to
        predict are skipped and counted.
        """
        t, ids, surfaces = self.tokenizer, writer.sequences("ids"), writer.surfaces()
        length = t.room(self.config.text.max_len)
        writer.stats |= {"n_empty": 0}
        for chunk in writer.chunks(split):
            for tokens, forms in masked_text.encode(self.tokenizer, chunk.text):
                writer.stats["n_empty"] += t.special_ids.issuperset(tokens)
                for start in range(0, len(tokens), length):
                    if not t.special_ids.issuperset(window := tokens[start : start + length]):
                        ids.append(t.framed(window))
                        if surfaces is not None:
                            surfaces.append_surfaces(forms[start : start + length])

    def epoch_batches(self, corpus: EncodedCorpus, epoch: int) -> BatchPlan:
        """Return texts bucketed by length; of a running text windows, which may span documents."""
        if corpus.is_running_text:
            c = self.config
            return shuffled_windows(len(corpus.ids.flat) + 1, c.text.max_len, c.train, epoch)
        return super().epoch_batches(corpus, epoch)

    def eval_batches(self, corpus: EncodedCorpus, max_tokens: int = EVALUATION_TOKENS) -> BatchPlan:
        """Return every text once; of a running text every window."""
        if corpus.is_running_text:
            max_len = self.config.text.max_len
            return overlapping_windows(len(corpus.ids.flat) + 1, max_len, max_tokens, stride=max_len)
        return super().eval_batches(corpus, max_tokens)

    def make_batch(self, corpus: EncodedCorpus, index: np.ndarray) -> Batch:
        return self._batch(corpus, index, None)

    def batches(self, model: nn.Module, corpus: EncodedCorpus, group: ProcessGroup = SINGLE_PROCESS) -> Iterator[Batch]:
        """Yield batches with the same masked tokens at every call and on every rank.

        Each masks all batches in order.
        """
        device, generator = next(model.parameters()).device, torch.Generator().manual_seed(HIDDEN_SEED)
        for i, index in enumerate(self.eval_batches(corpus)):
            batch = self._batch(corpus, index, generator)
            if i % group.world_size == group.rank:
                yield batch.to(device)

    def _batch(self, corpus: EncodedCorpus, index: np.ndarray, generator: torch.Generator | None) -> Batch:
        pad_id = self.tokenizer.pad_id
        if corpus.is_running_text:  # rows (start, stop, …)
            ids, real = gather_padded(corpus.ids.flat, index[:, 0], index[:, 1] - index[:, 0], pad_id)
            index = index[:, 0]
        else:
            ids, real = corpus.ids.padded(index, pad_id)
        ngram_batch, t = ngrams_of_batch(corpus, index), self.tokenizer
        seen, ngram_batch, labels = mask_tokens(torch.from_numpy(ids), ngram_batch, t.mask_id, generator, t.special_ids)
        guessed = labels != IGNORE_INDEX
        if ngram_batch is not None and self._ahead is not None:
            ngram_batch = without_previews(ngram_batch, self._ahead, guessed)
        n_labels = int(guessed.sum())
        return Batch(seen, padding_mask_of(real), labels, None, index, int(real.sum()), n_labels, ngram_batch)

    @cached_property
    def _ahead(self) -> Tensor | None:
        """Return a mask of the n-gram ids that reveal later tokens; None if there are none."""
        ahead = self.tokenizer.ngrams.looks_ahead if self.tokenizer.ngrams else []
        return torch.tensor(ahead) if any(ahead) else None

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
        nats, right, n = 0.0, 0, 0
        with evaluation_mode(model):
            for batch in self.batches(model, corpus, group):
                labels = batch.labels[batch.labels != IGNORE_INDEX]
                logits = self.logits(model, batch)
                nats += cross_entropy_sum(logits, labels).item()
                right += int((logits.argmax(dim=-1) == labels).sum())
                n += batch.n_labels
        nats, right, n = group.all_reduce(nats, right, n)
        loss = nats / max(1, n)
        return {"loss": loss, self.metric: loss, "masked_accuracy": right / max(1, n)}

    def evaluate(
        self, model: nn.Module, split: Split, decode: DecodeConfig, train: Split | None = None
    ) -> dict[str, Any]:
        corpus = self.encode(split, training=False)
        n = sum(batch.n_labels for batch in self.batches(model, corpus))
        scores = {"n": n, **self.validate(model, corpus, split)}
        return scores | {"examples": self._examples(model, split), "predictions": []}

    def predict(
        self, model: nn.Module, texts: Sequence[str], decode: DecodeConfig, first: int = 0
    ) -> list[dict[str, Any]]:
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
            answers.append(answer | masked_text.unknown_mark(self.tokenizer, ids))
        return answers

    def _guesses(self, model: nn.Module, ids: list[int], words: list[str], k: int) -> list[list[dict[str, Any]]]:
        """Return the k most probable tokens for each masked id, in chunks as in training, without special tokens."""
        guesses, t = [], self.tokenizer
        max_len = t.room(self.config.text.max_len)
        device = next(model.parameters()).device
        with evaluation_mode(model):
            for start in range(0, len(ids), max_len):
                row = torch.tensor([t.framed(ids[start : start + max_len])], device=device)
                if not bool((wanted := row == t.mask_id).any()):
                    continue
                ngram_batch = self._ngram_batch(words[start : start + max_len])
                logits = model(row, None, ngram_batch and ngram_batch.to(device), wanted).float().cpu()
                guesses += masked_text.top_predictions(t, logits.numpy(), k)
        return guesses

    def _ngram_batch(self, words: list[str]) -> NgramBatch | None:
        """Return the n-grams of one row of tokens; "" has none."""
        if (known := self.tokenizer.ngrams) is None:
            return None
        rows = RaggedArray.from_lists([[], *(known.lookup(word) if word else [] for word in words)])
        ngrams, _ = rows.padded(np.arange(len(rows)), 0)
        return NgramBatch(torch.arange(1, len(rows))[None], torch.from_numpy(ngrams))

    def _examples(self, model: nn.Module, split: Split) -> list[dict[str, Any]]:
        """Return the beginnings of texts with one token masked, its first prediction, and the truth."""
        rows, t = [], self.tokenizer
        for ids, words in masked_text.encode(t, [text[:EXAMPLE_CHARS] for text in split.text[:N_EXAMPLES]]):
            ids, words = ids[:EXAMPLE_TOKENS], words[:EXAMPLE_TOKENS]
            places = [at for at, token in enumerate(ids) if token not in t.special_ids]
            if not places:
                continue
            at = places[len(places) // 2]
            hidden = [*ids[:at], t.mask_id, *ids[at + 1 :]]
            surfaces = [*([""] * at if self._ahead is not None else words[:at]), "", *words[at + 1 :]]
            ((guess,),) = self._guesses(model, hidden, surfaces, 1)
            text = f"{t.decode(ids[:at]).strip()} {MASK} {t.decode(ids[at + 1 :]).strip()}"
            rows.append({"text": text, "guess": guess["token"], "truth": masked_text.written(t, ids[at])})
        return rows
