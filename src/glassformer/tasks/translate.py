"""Translation: a sentence in, a sentence out, both in one joint vocabulary.

Few pairs are read often, in small batches, by a narrow model with much dropout; many pairs a few times by a wider one.
RESULTS.md has what cuts of Multi30k say of it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config import Config, DecodeConfig
from glassformer.data.batches import Batch, padding_mask_of
from glassformer.data.corpus import CorpusWriter, EncodedCorpus
from glassformer.data.datasets.columns import SOURCE, TARGET, DataSchema
from glassformer.data.splits import Split, TextData
from glassformer.decode.jobs import translate_ids
from glassformer.decode.search import Hypothesis
from glassformer.distributed import SINGLE_PROCESS, ProcessGroup
from glassformer.evaluate.translation import bleu_scoring, headline_of, score
from glassformer.models import Translator
from glassformer.models.build import decoder_flops, encoder_flops
from glassformer.models.ensemble import Ensemble
from glassformer.nn.cross_entropy import IGNORE_INDEX
from glassformer.runs.records import Evaluation, JsonObject
from glassformer.tasks.base import HASHED_NGRAMS, OF_LABELS, WORD_VOCAB_SIZE, Task, register
from glassformer.tasks.reporting import TaskReport
from glassformer.text import answers
from glassformer.text.tokenizer import Tokenizer
from glassformer.utils.formatting import counted

logger = logging.getLogger(__name__)

FEW, MANY = 10_000, 100_000
"""Pairs below which a set is small, and from which it is large."""
VALIDATION_SENTENCES = 1024
"""Sentences translated greedily at each validation; the loss is over all of them."""


def decoding(decode: Mapping[str, Any]) -> str:
    """Return how translations are found, in a word or two."""
    return "sampling" if decode.get("sample") else f"beam {decode.get('beam_size')}"


def how_decoded(evaluation: Evaluation) -> list[str]:
    """Return how translations were decoded, and sacreBLEU's signatures."""
    scores = evaluation.scores
    signatures = [f"`{value}`" for name, value in scores.items() if name.endswith("_signature")]
    how = decoding(scores.get("decode") or {})
    return [f"Decoding: {how}. sacreBLEU signatures: {', '.join(signatures)}."] if signatures else []


REPORT = TaskReport(
    model_name="translator",
    unit="sentences",
    table_metrics=("bleu", "chrf", "exact_match"),
    limits="It translates sentences of the kind it was trained on. Others may come out fluent and wrong.",
    comparison_keys=("reference", "translation"),
    details=how_decoded,
    # BLEU by the tokenizer that the evaluation used; None where exact matches are the headline.
    scored=lambda s: bleu_scoring(s.get("bleu_signature", "")) if s.get("headline", "bleu") == "bleu" else None,
)


@register
class Translate(Task):
    """Validated on BLEU of greedy translations, or on exact match where answers are short."""

    name = "translate"
    schema = DataSchema("translate", (SOURCE, TARGET), parallel=True)
    metric = "bleu"
    explain_as = "translator"
    needs_tokens = ("bos", "eos")
    writes = ("eos", "unk", "mask")
    # Label smoothing would give a share to the tokens of the source in a joint vocabulary, which are never written.
    imported_start: ClassVar = {"lr": 3e-4, "label_smoothing": 0.0}
    report = REPORT
    ignores = (
        HASHED_NGRAMS
        | OF_LABELS
        | {"data.text_column", "data.label_column", "text.truncate", "text.ngrams", "text.bigrams"}
        | {"model.pooling", "model.pooler", "model.n_segments"}
    )

    @classmethod
    def suggest_settings(cls, data: TextData, config: Config) -> tuple[JsonObject, str]:
        """Return settings by the number of pairs.

        - Vocabulary: 6,000 pieces, so that most words of a small set are one piece, and more by a power of the size.
        - Passes: sixty over a thousand pairs, fewer the more there are. Loss on validation is lowest after a third of
          the sixty; BLEU, which chooses the weights, rises almost to the last.
        - Batches of half as many tokens where there are few pairs, for enough steps.
        """
        n, pieces = len(data.train), int(min(32_000, max(6000, round(6000 * (len(data.train) / FEW) ** 0.35, -2))))
        return {
            "vocab_size": WORD_VOCAB_SIZE if config.text.tokenizer == "word" else pieces,
            "epochs": round(min(60.0, max(1.0, 60 * (1000 / n) ** 0.43)), 1),
            "max_tokens": 1024 if n < FEW else 2048 if n < MANY else 4096,
            "d_model": 128 if n < FEW else 192 if n < MANY else 256,
            "dropout": 0.3 if n < FEW else 0.2 if n < MANY else 0.1,
        }, counted(n, "pairs")

    @classmethod
    def from_data(cls, config: Config, data: TextData, tokenizer: Tokenizer | None = None) -> Task:
        task = super().from_data(config, data, tokenizer)
        task.metric = headline_of(data.train.answers, config.decode.bleu_tokenize)
        return task

    def encode_into(self, writer: CorpusWriter, split: Split, training: bool) -> None:
        """Write columns: ids, the sources with their end tokens; target, the targets without start and end tokens.

        Either side may have `max_len` tokens, start and end tokens not counted. In training, pairs that are longer, or
        empty on one side, are skipped; every example of a test set keeps its target.
        """
        max_len, t = self.config.text.max_len, self.tokenizer
        writer.stats |= {"n_dropped": 0, "n_empty": 0}
        ids, targets = writer.column("ids"), writer.column("target")
        for chunk in writer.chunks(split):
            encoded = t.encode_batch(chunk.text), t.of_targets.encode_batch(chunk.answers)
            for source, target, *texts in zip(*encoded, chunk.text, chunk.answers, strict=True):
                if training and not (source and target and all(text.strip() for text in texts)):
                    writer.stats["n_empty"] += 1
                elif training and (len(source) > t.room(max_len) or len(target) > max_len):
                    writer.stats["n_dropped"] += 1
                else:
                    n_cut = writer.stats["n_truncated"]  # of a pair whose two sides are cut, one
                    ids.append(t.with_end(writer.truncate(source)))
                    targets.append(writer.truncate(target, framed=False))
                    writer.stats["n_truncated"] = min(n_cut + 1, writer.stats["n_truncated"])

    def token_columns(self, corpus: EncodedCorpus) -> list[Any]:
        return [corpus.ids, corpus.targets]

    def batch_costs(self, corpus: EncodedCorpus) -> tuple[np.ndarray, np.ndarray]:
        src, tgt = corpus.lengths, corpus.targets.lengths + 1  # one for the start, or the end, token
        return np.maximum(src, tgt), src + tgt

    def make_batch(self, corpus: EncodedCorpus, index: np.ndarray) -> Batch:
        """Make a batch: tgt_in begins with the start token, labels end with the end token (shifted by one)."""
        t = self.tokenizer
        ids, real = corpus.ids.padded(index, t.pad_id)
        target, is_target = corpus.targets.padded(index, t.pad_id, extra=1)
        lengths = is_target.sum(axis=1)
        labels = np.where(is_target, target, IGNORE_INDEX)
        labels[np.arange(len(index)), lengths] = t.eos_id
        tgt_in = np.roll(target, 1, axis=1)  # the last column is always padding
        tgt_in[:, 0] = t.bos_id
        n_labels = int(lengths.sum()) + len(index)
        mask, n_tokens = padding_mask_of(real), int(real.sum()) + n_labels
        source, given, following = map(torch.from_numpy, (ids, tgt_in, labels))
        return Batch(source, mask, following, given, index, n_tokens, n_labels)

    def build_single_model(self) -> Translator:
        size = self.tokenizer.vocab_size
        # One position more than the longest text: the end token of the source, the start token of the target.
        return Translator(self.config.model, size, self.config.text.max_len + 1)

    def forward_flops(self, length: float) -> float:
        """Return the FLOPs per token, assuming about as many source as target tokens."""
        c, size = self.config.model, self.tokenizer.vocab_size
        return (encoder_flops(c, length) + decoder_flops(c, length, size, cross=True)) / 2

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch.ids, batch.tgt_in, batch.padding_mask)

    def validate(
        self, model: nn.Module, corpus: EncodedCorpus, split: Split, group: ProcessGroup = SINGLE_PROCESS
    ) -> dict[str, float]:
        greedy = replace(self.config.decode, beam_size=1, n_best=1, sample=False)
        n = min(len(split), VALIDATION_SENTENCES)
        sources = [corpus.ids[i].tolist() if split.text[i].strip() else [] for i in range(n)]
        local_ids = [h[0].ids for h in self._translate(model, group.shard(sources), greedy)]
        translations = [self.tokenizer.decode(ids) for ids in group.all_gather_rows(local_ids, n)]
        scores = score(translations, split.answers[:n], n_bootstrap=0, tokenize=greedy.bleu_tokenize)
        shown = {name: float(scores[name]) for name in ("bleu", "chrf", "exact_match")}
        return {"loss": self.mean_loss(model, corpus, group)} | shown

    def evaluate(self, model: nn.Module, split: Split, decode: DecodeConfig, train: Split | None = None) -> JsonObject:
        logger.info(f"decoding: {decoding(asdict(decode))}; validations are greedy")
        rows = self.predict(model, split.text, decode)
        translations, references = [row["translation"] for row in rows], split.answers
        scores = score(translations, references, tokenize=decode.bleu_tokenize)
        scores |= {"decode": asdict(decode), "n_truncated": answers.warn_of_cut(rows, self.config.text.max_len)}
        rows = [row | {"reference": reference} for row, reference in zip(rows, references, strict=True)]
        return scores | {"examples": rows[:8], "predictions": rows}

    def predict(self, model: nn.Module, texts: Sequence[str], decode: DecodeConfig, first: int = 0) -> list[JsonObject]:
        """Return {"text", "translation", "score"} for each text, and "n_best" if more than one was requested.

        An empty text has an empty translation, as many times as were requested. A text longer than `max_len` is cut,
        and has "truncated": True.
        """
        t, written = self.tokenizer, []
        cuts = t.encode_cut(texts, self.config.text.max_len)
        sources = [t.with_end(cut.ids) if text.strip() else [] for text, cut in zip(texts, cuts, strict=True)]
        translated = self._translate(model, sources, decode, first)
        for text, cut, found in zip(texts, cuts, translated, strict=True):
            rows, best = [{"translation": t.decode(h.ids), "score": h.score} for h in found], found[0]
            unfinished = {} if best.finished else {"unfinished": True}
            answer = {"text": text} | rows[0] | unfinished | (cut.mark if text.strip() else {})
            n_best = rows if text.strip() else rows * decode.n_best  # an empty text is not decoded
            written.append(answer | ({"n_best": [*map(dict, n_best)]} if decode.n_best > 1 else {}))
        return written

    def _translate(
        self, model: nn.Module, sources: Sequence[Sequence[int]], decode: DecodeConfig, first: int = 0
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses for each source, ids with an end token; empty sources are not decoded."""
        t = self.tokenizer
        special = (t.pad_id, t.bos_id, t.eos_id)
        return translate_ids(cast("Translator | Ensemble", model), sources, decode, special, first_row=first)
