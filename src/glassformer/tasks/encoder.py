"""Reading a text with an encoder and answering about it: one task, whose head says with what (`tasks/heads.py`).

A text is one, a pair (`text/pairs.py`), or a sentence of words, each of which is answered at its first token (Devlin et
al. 2019, 5.3): a model reads the words of a text joined by single spaces; tokens of a word after its first are read and
not scored, and words beyond the longest text that a model reads get the tag O, and are counted.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config import Config, DecodeConfig
from glassformer.data.batches import Batch, ngrams_of_batch, padding_mask_of
from glassformer.data.corpus import ArrayWriter, CorpusWriter, EncodedCorpus
from glassformer.data.datasets.columns import DataSchema
from glassformer.data.splits import Split, TextData
from glassformer.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from glassformer.errors import DivergedError, UsageError
from glassformer.models.build import encoder_flops
from glassformer.models.ensemble import evaluation_mode, members_of
from glassformer.nn.cross_entropy import IGNORE_INDEX, cross_entropy_sum
from glassformer.tasks import register
from glassformer.tasks.base import Task, corpus_vectors
from glassformer.tasks.heads import HEADS, Head, Known, scale_of
from glassformer.text.answers import cut_message, encoder_answer
from glassformer.text.pairs import PairTokenizer, split_pairs
from glassformer.text.tags import are_plain, outside_of
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.words import NO_TOKEN, EncodedWords, ReadText, encoded_words, read_running
from glassformer.utils.formatting import counted

logger = logging.getLogger(__name__)

NEVER = -1e4
"""Logit of the tags that a word without a token has not."""


class EncoderTask(Task):
    """A task with a head; `of` makes the one of a head."""

    head: ClassVar[Head]
    fits_baselines = True
    imported_start: ClassVar = {"word_unknown_prob": 0.0}
    class_weights: Tensor | None = None
    """(C,) what the loss of a text of each class is multiplied by in training; None where that is 1."""

    @staticmethod
    def of(head: Head) -> type[EncoderTask]:
        """Return the task of a head."""
        schema = DataSchema(head.name, head.columns, check=head.check_rows, read=head.read, count=head.count)
        of_head = {"name": head.name, "metric": head.metric, "report": head.report, "ignores": head.ignores}
        auto = ("adversarial",) if head.pools else ()
        more = {"explain_as": head.kind, "pools": head.pools, "imported_auto": auto, "schema": schema, "head": head}
        return type(head.name, (EncoderTask,), of_head | more)

    def __init__(self, config: Config, tokenizer: Tokenizer, label_names: list[str] | None = None) -> None:
        super().__init__(config, tokenizer, label_names)
        if self.head.per_word and are_plain(label_names or ()):
            self.metric = "tag_accuracy"

    @classmethod
    def from_data(cls, config: Config, data: TextData, tokenizer: Tokenizer | None = None) -> EncoderTask:
        if config.data.files.pair_column is not None:
            trained = tokenizer or Tokenizer.train(split_pairs(data.train.text), config.text, data.extra_tokens)
            tokenizer = PairTokenizer.of(trained)
        task = cast(EncoderTask, super().from_data(config, data, tokenizer))
        if data.train.answer is None:
            return task
        rows = cls.head.rows(data.train.answers, task.label_names, data.train.source)
        if task.label_names is None:
            task.decision = scale_of(data.train, rows)
        if config.train.class_weight == "balanced":
            if cls.head.loss is not cross_entropy_sum or cls.head.several:
                raise UsageError(f"{cls.name} has a loss that knows no class weights", "leave out --class-weight")
            counts = torch.tensor(np.bincount(rows, minlength=len(task.names)))
            task.class_weights = counts.sum() / (len(counts) * counts.float())  # 1 in the mean over the texts
        return task

    @classmethod
    def suggest_settings(cls, data: TextData, config: Config) -> tuple[dict[str, Any], str]:
        names = cls.head.names(data.train.answers) or []
        return cls.head.suggest(data.train, config, names, cls.head.several)

    @classmethod
    def classes_of(cls, train: Split) -> list[str] | None:
        return None if cls.head.parts is None else cls.head.names(train.answers, train.source)

    @property
    def names(self) -> list[str]:
        """Return the names of the outputs; none of a number."""
        return self.label_names or []

    @property
    def eval_schema(self) -> DataSchema:
        known = self.label_names
        return self.schema if known is None else replace(self.schema, check=partial(self.head.check_rows, known=known))

    # --- data -----------------------------------------------------------------------------------------------

    def encode_into(self, writer: CorpusWriter, split: Split, training: bool) -> None:
        """Write columns: ids, a sequence per text; the n-grams of its tokens; what is true of it.

        That is labels, the number of its name, or its number; or target, the numbers of its names; of words the place
        of each one's first token, and then the number of each one's tag.
        """
        known = split.answer is not None
        rows = self.head.rows(split.answers, self.label_names, split.source) if known else None
        if self.head.per_word:
            texts = (of_joined(text) for text in split.text)
            self._write_words(writer, encoded_words(self.tokenizer, texts, self.config.text.max_len), rows)
            writer.stats["n"] += len(split)
            return
        text, ids, surfaces = self.config.text, writer.sequences("ids"), writer.surfaces()
        for chunk in writer.chunks(split):
            if surfaces is None:
                for tokens in self.tokenizer.encode_batch(chunk.text):
                    ids.append(writer.truncate(tokens, text.truncate))
                continue
            for tokens, forms in self.tokenizer.encode_with_surfaces(chunk.text):
                ids.append(writer.truncate(tokens, text.truncate))
                surfaces.append_surfaces(self.tokenizer.truncate(tokens, text.max_len, text.truncate, forms))
        if rows is not None and self.head.several:
            target = writer.numbers("target")
            for row in rows:
                target.append(sorted({*row}))
        elif rows is not None:
            writer.scalars("labels", rows, "<i4" if self.label_names else "<f8")

    def _write_words(
        self, writer: CorpusWriter, encoded: Iterable[EncodedWords], rows: Sequence[Sequence[int]] | None
    ) -> None:
        ids, target, surfaces = writer.sequences("ids"), writer.numbers("target"), writer.surfaces()
        writer.stats["n_words_cut"] = 0
        for number, found in enumerate(encoded):
            ids.append(writer.truncate(found.ids))
            if surfaces is not None:
                surfaces.append_surfaces(found.surfaces)
            writer.stats["n_words_cut"] += found.places.count(NO_TOKEN)
            target.append([*found.places, *(rows[number] if rows else [outside_of(self.names)] * len(found.places))])

    def truth(self, corpus: EncodedCorpus) -> Any:
        """Return what is true of all texts, as the head's `array`; of words a list of arrays."""
        if self.head.per_word:
            return [places_and_tags(corpus, i)[1] for i in range(len(corpus))]
        return self.head.array(self._rows(corpus, np.arange(len(corpus))), len(self.names))

    def _rows(self, corpus: EncodedCorpus, index: np.ndarray) -> Any:
        if corpus.labels is not None:
            return corpus.labels[index]
        unknown = [] if self.head.several else 0
        return [unknown if corpus.target is None else corpus.target[int(i)] for i in index]

    def make_batch(self, corpus: EncodedCorpus, index: np.ndarray) -> Batch:
        """Make a batch; labels are the head's `tensor`, of words (B, S) the tags at the first token of each."""
        ids, real = corpus.ids.padded(index, self.tokenizer.pad_id)
        if self.head.per_word:
            labels = torch.full(ids.shape, IGNORE_INDEX)
            for row, i in enumerate(index):
                places, tags = places_and_tags(corpus, int(i))
                labels[row, places[places >= 0]] = torch.from_numpy(tags[places >= 0])
            n_labels = int((labels != IGNORE_INDEX).sum())
        else:
            labels = self.head.tensor(self.head.array(self._rows(corpus, index), len(self.names)), self.decision)
            n_labels = labels.numel()
        shared = torch.from_numpy(ids), padding_mask_of(real), labels, None, index, int(real.sum())
        return Batch(*shared, n_labels, ngrams_of_batch(corpus, index))

    # --- model and loss -------------------------------------------------------------------------------------

    def build_single_model(self) -> nn.Module:
        c, t = self.config, self.tokenizer
        n_ngrams = len(t.ngrams) if t.ngrams else 0
        model: Any = self.head.model(c.model, t.vocab_size, len(self.names), c.text.max_len, n_ngrams, t.bigrams)
        return model.of_pairs(t.separator) if t.separator else model

    def forward_flops(self, length: float) -> float:
        return encoder_flops(self.config.model, length)

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch.ids, batch.padding_mask, batch.ngram_batch)

    def loss_sum(self, model: nn.Module, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        """Return the head's loss, summed over a batch; in training weighted by class where that is set."""
        self._check_scored()
        logits = self.logits(model, batch)
        if self.class_weights is None or not model.training:
            return self.head.loss(logits, batch.labels, label_smoothing)
        losses = F.cross_entropy(logits.float(), batch.labels, reduction="none", label_smoothing=label_smoothing)
        return (losses * self.class_weights.to(losses.device)[batch.labels]).sum()

    def initialise_output(self, model: nn.Module, corpus: EncodedCorpus) -> None:
        truth = self.truth(corpus)
        with torch.no_grad():
            for member in members_of(model):
                self.head.begin(cast(nn.Linear, member.head), truth)

    def start_head(self, model: nn.Module, corpus: EncodedCorpus) -> bool:
        """Set the head of each member to a linear model of the pooled vectors of the training texts."""
        if self.head.fit is None:
            return False
        logger.info(f"fitting a probe to the vectors of {counted(len(corpus), 'training texts')}")
        truth = self.truth(corpus) if self.label_names else self.decision.standardised(self.truth(corpus))
        for member in members_of(model):
            layer = cast(nn.Linear, member.head)
            vectors, index = corpus_vectors(self, member, corpus)
            weight, bias = self.head.fit(vectors.astype(np.float64), truth[index])
            with torch.no_grad():
                layer.weight.copy_(torch.from_numpy(weight))
                layer.bias.copy_(torch.from_numpy(bias))
        return True

    # --- scores and answers ---------------------------------------------------------------------------------

    def all_logits(self, model: nn.Module, corpus: EncodedCorpus, group: ProcessGroup = SINGLE_PROCESS) -> Tensor:
        """Return the logits of all texts, (N, …), on the CPU and in their order; of words (W, C), text after text."""
        places = [places_and_tags(corpus, i)[0] for i in range(len(corpus))] if self.head.per_word else []
        start = np.cumsum([0, *map(len, places)])
        with evaluation_mode(model):
            found: Tensor | None = None
            for batch in self.batches(model, corpus, group):
                logits = self.logits(model, batch).float().cpu()
                if found is None:
                    shape = (int(start[-1]), logits.shape[-1]) if places else (len(corpus), *logits.shape[1:])
                    found = torch.zeros(shape)
                if not places:
                    found[torch.from_numpy(batch.index)] = logits
                    continue
                for row, i in enumerate(batch.index):
                    read = np.flatnonzero(places[i] >= 0)
                    found[torch.from_numpy(start[i] + read)] = logits[row, torch.from_numpy(places[i][read])]
            if found is None:  # as where there are fewer batches than processes
                shape = (len(self.names), 2) if self.head.several else (max(1, len(self.names)),)
                found = torch.zeros(int(start[-1]) if places else len(corpus), *shape)
            found = group.all_reduce_tensor(found)
            if places:  # a word that is not read is outside of all
                unread = torch.from_numpy(np.concatenate(places) < 0)
                found[unread] = NEVER
                found[unread, outside_of(self.names)] = 0.0
        return found

    def outputs(self, logits: Tensor, corpus: EncodedCorpus) -> Any:
        """Return what the texts are answered with; of words a list with an array for each text.

        Raises:
            DivergedError: one is no finite number, as where finite weights are too large to compute.
        """
        outputs = self.head.probabilities(logits.double(), self.decision)
        if not np.isfinite(outputs).all():
            message = "the model's logits are NaN or infinite, so it has no answer"
            raise DivergedError(message, "use an earlier checkpoint")
        if not self.head.per_word:
            return outputs
        n_words = [len(corpus.targets[i]) // 2 for i in range(len(corpus))]
        return np.split(outputs, np.cumsum(n_words)[:-1]) if n_words else []

    def validate(
        self, model: nn.Module, corpus: EncodedCorpus, split: Split, group: ProcessGroup = SINGLE_PROCESS
    ) -> dict[str, float]:
        self._check_scored()
        logits, truth = self.all_logits(model, corpus, group), self.truth(corpus)
        flat = np.concatenate(truth) if self.head.per_word else truth
        targets = self.head.tensor(flat, self.decision)
        n_labels = targets.numel()
        if self.head.per_word:
            unread = np.concatenate([places_and_tags(corpus, i)[0] for i in range(len(corpus))]) < 0
            targets[torch.from_numpy(unread)] = IGNORE_INDEX
            n_labels -= int(unread.sum())
        loss = self.head.loss(logits, targets, 0.0).item() / max(1, n_labels)
        return {"loss": loss} | self.head.validated(truth, self.outputs(logits, corpus), self.names)

    def decided(self, model: nn.Module, corpus: EncodedCorpus) -> EncoderTask:
        """Return the task with what its head chooses on the validation texts: thresholds, a temperature."""
        if self.head.decided is None:
            return self
        task = copy.copy(self)
        outputs = self.outputs(self.all_logits(model, corpus), corpus)
        task.decision = replace(self.decision, **self.head.decided(self.truth(corpus), outputs))
        return task

    def evaluate(
        self, model: nn.Module, split: Split, decode: DecodeConfig, train: Split | None = None
    ) -> dict[str, Any]:
        scored = self._check_scored()
        corpus = self.encode(split, training=False)
        truth, outputs = self.truth(corpus), self.outputs(self.all_logits(model, corpus), corpus)
        scores = scored(truth, outputs, self.names, self.decision) | self._count_cut(corpus, len(split))
        if train is not None:
            logger.info(f"fitting the baselines to {counted(len(train), f'training {self.report.unit}')}")
            pairs = bool(self.tokenizer.separator)
            rows = self.head.rows(train.answers, self.label_names, train.source)
            of_train = [np.array(row) for row in rows] if self.head.per_word else self.head.array(rows, len(self.names))
            known = Known(train.text, of_train, pairs), Known(split.text, truth, pairs)
            scores["baselines"] = self.head.baselines(*known, outputs, self.names, self.decision)
        texts = map(of_joined, split.text) if self.head.per_word else map(self.tokenizer.text_fields, split.text)
        rows = [
            self.head.kept(self._answer(text, each)) | {"truth": self.head.true(answer)}
            for text, each, answer in zip(texts, outputs, split.answers, strict=True)
        ]
        # Texts can be long, and the data set has them: a number is enough to find one again.
        stored = [
            {"index": i} | {k: v for k, v in row.items() if k not in ("text", "pair")} for i, row in enumerate(rows)
        ]
        return scores | {"examples": rows[:8], "predictions": stored}

    def _count_cut(self, corpus: EncodedCorpus, n: int) -> dict[str, int]:
        """Return how many of the n texts of a corpus were cut, and how many words, after a warning."""
        n_cut, n_words = (corpus.stats.get(name, 0) for name in ("n_truncated", "n_words_cut"))
        if n_words:
            longest, outside = counted(self.config.text.max_len, "tokens"), self.names[outside_of(self.names)]
            beyond = f"{counted(n_words, 'words')} beyond {longest} of their text, or without a token"
            logger.warning(f"{beyond}, get the tag {outside}")
        elif message := cut_message(n_cut, n, self.config.text.max_len):
            logger.warning(message)
        return {"n_truncated": n_cut} | ({"n_words_cut": n_words} if self.head.per_word else {})

    def predict(
        self, model: nn.Module, texts: Sequence[str], decode: DecodeConfig, first: int = 0
    ) -> list[dict[str, Any]]:
        """Return the head's answer for each text.

        A text longer than `max_len` is cut, and has "truncated": True; "unknown" counts the tokens that the vocabulary
        lacks. Words are found in a text by `text/words.py`.
        """
        arrays, text, t = ArrayWriter(), self.config.text, self.tokenizer
        writer = CorpusWriter(arrays, t, text)
        if self.head.per_word:
            fields: list[Any] = [read_running(each) for each in texts]
            encoded = list(encoded_words(t, fields, text.max_len))
            self._write_words(writer, encoded, None)
            marks = [found.mark(t, text.max_len) for found in encoded]
        else:
            fields, cuts = [t.text_fields(each) for each in texts], t.encode_cut(texts, text.max_len, text.truncate)
            ids, surfaces = writer.sequences("ids"), writer.surfaces()
            for cut in cuts:
                ids.append(cut.ids)
                if surfaces is not None:
                    surfaces.append_surfaces(cut.surfaces)
            marks = [cut.mark for cut in cuts]
        corpus = EncodedCorpus.from_arrays(arrays.arrays(), writer.stats)
        outputs = self.outputs(self.all_logits(model, corpus), corpus)
        answers = zip(fields, outputs, marks, strict=True)
        return [self._answer(given, each) | mark for given, each, mark in answers]

    def _answer(self, given: Any, outputs: Any) -> dict[str, Any]:
        return encoder_answer(self.head.kind, given, outputs, self.names, self.decision)

    def _check_scored(self) -> Callable[..., dict[str, Any]]:
        if self.head.scored is None:
            hint = "fine-tune it: glassformer train classify --init-from with the folder of its run"
            raise UsageError("a bare encoder gives vectors, and no answer to score", hint)
        return self.head.scored


Classify, MultiLabel, Regress, Tag, Embed = (register(EncoderTask.of(head)) for head in HEADS)


def of_joined(text: str) -> ReadText:
    """Return a text of words that are joined by spaces already."""
    words = text.split(" ") if text else []
    read = ReadText(text, words, [], text)
    return read._replace(spans=[(start, start + len(word)) for start, word in zip(read.starts, words, strict=True)])


def places_and_tags(corpus: EncodedCorpus, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Return of a text the place of each word's first token, NO_TOKEN for none, and the word's tag."""
    both = np.asarray(corpus.targets[i], np.int64)
    return both[: len(both) // 2], both[len(both) // 2 :]
