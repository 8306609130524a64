"""A tag for each word: an encoder, and a linear layer at the first token of each word (Devlin et al. 2019, 5.3).

A model reads the words of a text joined by single spaces. Tokens of a word after its first are read and not scored.
Words beyond the longest text that a model reads get the tag O, and are counted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config import Config, DecodeConfig
from glassformer.data.batches import Batch, ngrams_of_batch, padding_mask_of
from glassformer.data.corpus import ArrayWriter, CorpusWriter, EncodedCorpus
from glassformer.data.datasets.columns import DataSchema, Rows
from glassformer.data.datasets.labels import labels_of
from glassformer.data.datasets.tagged import TAGS, WORDS, read_tagged
from glassformer.data.diagnostics import Diagnostics
from glassformer.data.splits import Split, TextData
from glassformer.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from glassformer.errors import DataError, UsageError
from glassformer.evaluate import tagging
from glassformer.evaluate.tag_baselines import fit_baselines
from glassformer.models.build import encoder_flops
from glassformer.models.encoder_models import TokenClassifier
from glassformer.models.ensemble import evaluation_mode
from glassformer.nn.cross_entropy import IGNORE_INDEX, cross_entropy_sum
from glassformer.tasks import register
from glassformer.tasks.base import CLASSES, HASHED_NGRAMS, PAIRS_OF_TEXTS, PARALLEL_FILES, SEVERAL_LABELS, Task
from glassformer.tasks.tag_report import TagReport
from glassformer.text.answers import check_probabilities
from glassformer.text.tags import OUTSIDE, are_plain, marks_span, outside_of, spans_of, tag_names, tags_answer, tags_at
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.words import NO_TOKEN, EncodedWords, ReadText, encoded_words, read_running
from glassformer.utils.formatting import counted

logger = logging.getLogger(__name__)


def check_tags(rows: Mapping[str, Rows], diagnostics: Diagnostics, known: Sequence[str] | None = None) -> None:
    """Note tags that are not among the known ones, by file and line; without any those of training are known."""
    if known is None:
        train = rows["train"]
        found = {tag for answer in train.answer for tag in labels_of(answer)}
        mixed = sorted(tag for tag in found - {OUTSIDE} if not marks_span(tag))
        if not are_plain(found) and mixed:
            _note_mixed(train, set(mixed), diagnostics)
            return
        known = tag_names(found)
        if len(known) < 2:
            diagnostics.error(train.path, 0, "label", f"two or more tags are needed, found {known}")
            return
    shown = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
    for part in rows.values():
        for line, text, answer in zip(part.lines, part.text, part.answer, strict=True):
            for number, (word, tag) in enumerate(zip(text.split(), labels_of(answer), strict=True), start=1):
                if tag not in known:
                    what = f"word {number} ({word[:40]!r}) has the tag {tag!r}, which is not one of the training data's"
                    diagnostics.error(part.path, line, "label", f"{what} ({shown})")


def _note_mixed(train: Rows, plain: set[str], diagnostics: Diagnostics) -> None:
    for line, text, answer in zip(train.lines, train.text, train.answer, strict=True):
        for number, (word, tag) in enumerate(zip(text.split(), labels_of(answer), strict=True), start=1):
            if tag in plain:
                what = f"word {number} ({word[:40]!r}) has the tag {tag!r}, and other words have tags of spans, as B-X"
                diagnostics.error(train.path, line, "label", f"{what}; use one kind, with O outside of spans")
                return


def count_tags(split: Split) -> dict[str, int]:
    """Return how many words a part has, with each tag, and how many spans of each label."""
    counts: dict[str, int] = {"words": 0}
    for answer in split.answers:
        tags = labels_of(answer)
        counts["words"] += len(tags)
        for name in (*(f"words tagged {tag}" for tag in tags), *(f"spans of {span.label}" for span in spans_of(tags))):
            counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))


@register
class Tag(Task):
    """Validated on span F1; of plain tags on the share of right ones."""

    name = "tag"
    schema = DataSchema("tag", (WORDS, TAGS), check=check_tags, read=read_tagged, count=count_tags)
    metric = "span_f1"
    report = TagReport()
    ignores = (
        PARALLEL_FILES
        | HASHED_NGRAMS
        | SEVERAL_LABELS
        | CLASSES
        | PAIRS_OF_TEXTS
        | {"model.tie_embeddings", "model.output_bias", "model.pooling", "model.pooler", "text.truncate", "decode"}
    )
    fits_baselines = True
    explain_as = "tagger"
    imported_start: ClassVar = {"word_unknown_prob": 0.0}

    def __init__(self, config: Config, tokenizer: Tokenizer, label_names: list[str] | None = None) -> None:
        super().__init__(config, tokenizer, label_names)
        self.plain = are_plain(label_names or [])
        self.metric = tagging.HEADLINES[self.plain][0]

    @classmethod
    def suggest_settings(cls, data: TextData, config: Config) -> tuple[dict[str, Any], str]:
        """Return settings for about 2,500 steps; a pretrained model needs fewer, at a tenth of the rate."""
        train = data.train
        n, n_words = len(train), sum(len(labels_of(answer)) for answer in train.answers)
        batch_size = 32 if n >= 3000 else 16 if n >= 800 else 8
        pretrained = config.train.init_from and config.text.tokenizer == "imported"
        steps = 1000 if pretrained else 2500
        suggested: dict[str, Any] = {
            "epochs": round(min(30.0, max(3.0, steps * batch_size / max(1, n))), 1),
            "batch_size": batch_size,
            "lr": 2e-4 if pretrained else 1e-3,
            "dropout": 0.1 if pretrained else 0.2,
            "embedding_dropout": 0.1 if pretrained else 0.3,
        }
        tags = tag_names({tag for answer in train.answers for tag in labels_of(answer)})
        return suggested, f"{n:,} sentences, {n_words:,} words, {len(tags)} tags"

    @classmethod
    def classes_of(cls, train: Split) -> list[str]:
        names = tag_names({tag for answer in train.answers for tag in labels_of(answer)})
        if len(names) < 2:
            raise DataError(f"{train.source}: two or more tags are needed, found {names}")
        return names

    @property
    def tags(self) -> list[str]:
        if not self.label_names:
            raise UsageError("a tagger needs the names of its tags")
        return self.label_names

    @property
    def outside(self) -> int:
        """Return the tag of words that are not read: O, or where there is none the first."""
        return outside_of(self.tags)

    @property
    def eval_schema(self) -> DataSchema:
        return replace(self.schema, check=partial(check_tags, known=self.tags))

    # --- data -----------------------------------------------------------------------------------------------

    def encode_into(self, writer: CorpusWriter, split: Split, training: bool) -> None:
        """Write columns: ids; target, of each text the place of each word's first token, then each word's tag."""
        known = split.answer is not None
        answers = [self._numbers(answer, split.source) for answer in split.answers] if known else None
        texts = (of_joined(text) for text in split.text)
        self._write(writer, encoded_words(self.tokenizer, texts, self.config.text.max_len), answers)
        writer.stats["n"] += len(split)

    def _write(self, writer: CorpusWriter, encoded: Iterable[EncodedWords], answers: list[list[int]] | None) -> None:
        ids, target, surfaces = writer.sequences("ids"), writer.numbers("target"), writer.surfaces()
        writer.stats["n_words_cut"] = 0
        for number, found in enumerate(encoded):
            ids.append(writer.truncate(found.ids))
            if surfaces is not None:
                surfaces.append_surfaces(found.surfaces)
            writer.stats["n_words_cut"] += found.places.count(NO_TOKEN)
            target.append([*found.places, *(answers[number] if answers else [self.outside] * len(found.places))])

    def _numbers(self, answer: str, source: str) -> list[int]:
        number = {tag: i for i, tag in enumerate(self.tags)}
        tags = labels_of(answer)
        if unknown := set(tags) - number.keys():
            what = f"{source}: no training example has the tag {min(unknown)!r}"
            raise DataError(what, "train on more examples: a larger --limit, or without one")
        return [number[tag] for tag in tags]

    def make_batch(self, corpus: EncodedCorpus, index: np.ndarray) -> Batch:
        """Make a batch; labels (B, S) are the tags at the first token of each word."""
        ids, real = corpus.ids.padded(index, self.tokenizer.pad_id)
        labels = np.full(ids.shape, IGNORE_INDEX, np.int64)
        for row, i in enumerate(index):
            places, tags = places_and_tags(corpus, int(i))
            labels[row, places[places >= 0]] = tags[places >= 0]
        n_tokens, n_labels = int(real.sum()), int((labels != IGNORE_INDEX).sum())
        shared = torch.from_numpy(ids), padding_mask_of(real), torch.from_numpy(labels), None, index
        return Batch(*shared, n_tokens, n_labels, ngrams_of_batch(corpus, index))

    # --- model ----------------------------------------------------------------------------------------------

    def build_single_model(self) -> TokenClassifier:
        c, t = self.config, self.tokenizer
        sizes = t.vocab_size, len(self.tags), c.text.max_len, len(t.ngrams) if t.ngrams else 0
        return TokenClassifier(c.model, *sizes, t.bigrams)

    def forward_flops(self, length: float) -> float:
        return encoder_flops(self.config.model, length)

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch.ids, batch.padding_mask, batch.ngram_batch)

    # --- scores and answers ---------------------------------------------------------------------------------

    def validate(
        self, model: nn.Module, corpus: EncodedCorpus, split: Split, group: ProcessGroup = SINGLE_PROCESS
    ) -> dict[str, float]:
        """Return the loss, the accuracy of tags and, where they mark spans, F1."""
        nats, n_labels, sums = 0.0, 0, np.zeros(5)
        with evaluation_mode(model):
            for batch in self.batches(model, corpus, group):
                logits = self.logits(model, batch)
                nats += cross_entropy_sum(logits, batch.labels).item()
                n_labels += batch.n_labels
                values = logits.float().cpu().numpy()
                for row, i in enumerate(batch.index):
                    places, truth = places_and_tags(corpus, int(i))
                    found, _ = tags_at(values[row], places.tolist(), self.tags)
                    sums += tagging.counts_of([self.tags[int(tag)] for tag in truth], found)
        nats, n_labels, *rest = group.all_reduce(nats, n_labels, *sums)
        total = np.array(rest)
        scores = {"loss": nats / max(1, n_labels), "tag_accuracy": tagging.tag_accuracy(total)}
        return scores if self.plain else scores | {"span_f1": tagging.span_f1(total)}

    def evaluate(
        self, model: nn.Module, split: Split, decode: DecodeConfig, train: Split | None = None
    ) -> dict[str, Any]:
        corpus = self.encode(split, training=False)
        found = [tags for tags, _ in self._answered(model, corpus)]
        truth = [labels_of(answer) for answer in split.answers]
        scores = tagging.score(truth, found, self.plain)
        n_cut = int(corpus.stats.get("n_words_cut", 0))
        if n_cut:
            logger.warning(self.cut_message(n_cut))
        scores |= {"n_truncated": int(corpus.stats.get("n_truncated", 0)), "n_words_cut": n_cut}
        if train is not None:
            logger.info(f"fitting the baselines to {counted(len(train), 'training sentences')}")
            known = [text.split() for text in train.text], [labels_of(answer) for answer in train.answers]
            scores["baselines"] = fit_baselines(*known, [text.split() for text in split.text], truth, self.plain)
        rows = [
            {"text": text, "truth": " ".join(true), "tags": " ".join(tags)}
            for text, true, tags in zip(split.text, truth, found, strict=True)
        ]
        stored = [{"index": i, "truth": row["truth"], "tags": row["tags"]} for i, row in enumerate(rows)]
        return scores | {"examples": rows[:8], "predictions": stored}

    def cut_message(self, n_words: int) -> str:
        """Return a sentence about words that were not read."""
        longest = counted(self.config.text.max_len, "tokens")
        beyond = f"{counted(n_words, 'words')} beyond {longest} of their text, or without a token"
        return f"{beyond}, get the tag {self.tags[self.outside]}"

    def predict(
        self, model: nn.Module, texts: Sequence[str], decode: DecodeConfig, first: int = 0
    ) -> list[dict[str, Any]]:
        """Return {"text", "words", "tags", "spans"} for each text, which is cut into words (`text/words.py`).

        A span has "start" and "end" in characters of the text, "label", "text" and "probability". A text longer than
        `max_len` has "truncated": True; "unknown" counts the tokens that the vocabulary lacks.
        """
        several, longest = [read_running(text) for text in texts], self.config.text.max_len
        encoded, arrays = list(encoded_words(self.tokenizer, several, longest)), ArrayWriter(None)
        writer = CorpusWriter(arrays, self.tokenizer, self.config.text)
        self._write(writer, encoded, None)
        corpus = EncodedCorpus.from_arrays(arrays.in_memory(), writer.stats, str)
        marks = [found.mark(self.tokenizer, longest) for found in encoded]
        return [
            tags_answer(text, read.words, read.spans, tags, shares) | mark
            for text, read, (tags, shares), mark in zip(
                texts, several, self._answered(model, corpus), marks, strict=True
            )
        ]

    def _answered(self, model: nn.Module, corpus: EncodedCorpus) -> list[tuple[list[str], np.ndarray]]:
        """Return the most probable tag of each word of each text, and its probability."""
        answers: list[tuple[list[str], np.ndarray]] = [([], np.zeros(0))] * len(corpus)
        with evaluation_mode(model):
            for batch in self.batches(model, corpus):
                shares = check_probabilities(self.logits(model, batch).double().softmax(dim=-1).cpu().numpy())
                for row, i in enumerate(batch.index):
                    answers[int(i)] = tags_at(shares[row], places_and_tags(corpus, int(i))[0].tolist(), self.tags)
        return answers


def of_joined(text: str) -> ReadText:
    """Return a text of words that are joined by spaces already."""
    words = text.split(" ") if text else []
    read = ReadText(text, words, [])
    return read._replace(spans=[(start, start + len(word)) for start, word in zip(read.starts, words, strict=True)])


def places_and_tags(corpus: EncodedCorpus, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Return of a text the place of each word's first token, NO_TOKEN for none, and the word's tag."""
    both = np.asarray(corpus.targets[i], np.int64)
    return both[: len(both) // 2], both[len(both) // 2 :]
