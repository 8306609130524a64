"""Reading a text with an encoder and answering about it: one task, whose head says with what (`tasks/heads.py`).

A text is one, a pair (`text/pairs.py`), or a sentence of words, each of which is answered at its first token (Devlin et
al. 2019, 5.3): a model reads the words of a text joined by single spaces; tokens of a word after its first are read and
not scored, and words beyond the longest text that a model reads get the tag O, and are counted.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config import Config, DecodeConfig
from glassformer.data.batches import Batch, ngrams_of_batch, padding_mask_of
from glassformer.data.corpus import CorpusWriter, EncodedCorpus
from glassformer.data.datasets.columns import DataSchema
from glassformer.data.datasets.tagged import read_tagged
from glassformer.data.splits import Split, TextData
from glassformer.distributed import SINGLE_PROCESS, ProcessGroup
from glassformer.errors import CheckpointError, DivergedError
from glassformer.models.build import encoder_flops
from glassformer.models.ensemble import evaluation_mode, members_of
from glassformer.nn.cross_entropy import IGNORE_INDEX
from glassformer.runs.records import JsonObject
from glassformer.tasks.base import Task, register
from glassformer.tasks.heads import HEADS, Head, Known, count_tags, fit_layer, scale_of
from glassformer.tasks.settings import suggest_for_texts, suggest_for_words
from glassformer.text.answers import cut_message, encoder_answer
from glassformer.text.pairs import PairTokenizer, split_pairs
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.words import EncodedWords, ReadText, are_plain, encoded_words, read_running
from glassformer.utils.formatting import counted

logger = logging.getLogger(__name__)


class EncoderTask(Task):
    """A task with a head; `of` makes the one of a head."""

    head: ClassVar[Head]
    imported_start: ClassVar = {"word_unknown_prob": 0.0}

    @staticmethod
    def of(head: Head) -> type[EncoderTask]:
        """Return the task of a head."""
        reading = {"read": read_tagged, "count": count_tags} if head.per_word else {}
        schema = DataSchema(head.name, head.columns, check=head.check_rows, **reading)
        of_head = {"name": head.name, "metric": head.report.headline, "report": head.report, "ignores": head.ignores}
        more = {"explain_as": head.kind, "pools": not head.per_word}
        return type(head.name, (EncoderTask,), of_head | more | {"schema": schema, "head": head})

    def __init__(self, config: Config, tokenizer: Tokenizer, label_names: list[str] | None = None) -> None:
        super().__init__(config, tokenizer, label_names)
        n_names, expected = len(label_names or ()), f"two or more {self.head.unit}s" if self.head.unit else "none"
        if n_names < 2 if self.head.unit else n_names:
            raise CheckpointError(f"label_names should be {expected} for {self.name}, and {n_names} came")
        if self.head.per_word and are_plain(label_names or ()):
            self.metric = "tag_accuracy"

    @classmethod
    def from_data(cls, config: Config, data: TextData, tokenizer: Tokenizer | None = None) -> EncoderTask:
        if config.data.pair_column is not None:
            trained = tokenizer or Tokenizer.train(split_pairs(data.train.text), config.text, data.extra_tokens)
            tokenizer = PairTokenizer.of(trained)
        task = cast(EncoderTask, super().from_data(config, data, tokenizer))
        if task.label_names is None and data.train.answer is not None:
            task.decision = scale_of(data.train.answers, data.train.source)
        return task

    @classmethod
    def suggest_settings(cls, data: TextData, config: Config) -> tuple[dict[str, Any], str]:
        names = cls.classes_of(data.train) or []
        if cls.head.per_word:
            return suggest_for_words(data.train, config, names)
        return suggest_for_texts(data.train, config, names, cls.head.several)

    @classmethod
    def classes_of(cls, train: Split) -> list[str] | None:
        return cls.head.names(train.answers, train.source) if cls.head.unit else None

    @property
    def names(self) -> list[str]:
        """Return the names of the outputs; none of a number."""
        return self.label_names or []

    @property
    def eval_schema(self) -> DataSchema:
        return replace(self.schema, check=partial(self.head.check_rows, known=self.names))

    # --- data -----------------------------------------------------------------------------------------------

    def encode_into(self, writer: CorpusWriter, split: Split, training: bool) -> None:
        """Write columns: ids, a sequence per text; the n-grams of its tokens; what is true of it.

        That is labels, the number of its name, or its number; or target, the numbers of its names; of words the place
        of each one's first token, and then the number of each one's tag.
        """
        rows = None if split.answer is None else self.head.rows(split.answer, self.label_names, split.source)
        for _ in self._write(writer, split, rows, of_joined):
            pass

    def _write(
        self, writer: CorpusWriter, split: Split, rows: Sequence[Any] | None, read: Callable[[str], ReadText]
    ) -> Iterator[dict[str, Any]]:
        """Write texts, their words as `read` finds them, and what is true of them; yield the marks of their answers."""
        t, text, ids = self.tokenizer, self.config.text, writer.column("ids")
        target = writer.column("target", False) if self.head.several or self.head.per_word else None
        if target is None:
            writer.labels = np.array(rows or [0] * len(split), "<i4" if self.label_names else "<f8")
        encoded = (found for chunk in writer.chunks(split) for found in self._encoded(chunk.text, read))
        for number, found in enumerate(encoded):
            kept = writer.truncate(found.ids, text.truncate)
            ids.append(kept)
            writer.add_surfaces(t.truncate(found.ids, text.max_len, text.truncate, found.surfaces))
            if target is not None:
                target.append([*found.places, *(rows[number] if rows else [0] * len(found.places))])
            yield t.mark(kept, len(found.ids) > t.room(text.max_len))

    def _encoded(self, texts: Sequence[str], read: Callable[[str], ReadText]) -> Iterable[EncodedWords]:
        if self.head.per_word:
            return encoded_words(self.tokenizer, map(read, texts), self.config.text.max_len)
        return (EncodedWords(ids, surfaces, []) for ids, surfaces in self.tokenizer.read(texts))

    def truth(self, corpus: EncodedCorpus, index: Sequence[int] | np.ndarray | None = None) -> Any:
        """Return what is true of texts, of all by default, as the head's `array`."""
        index = range(len(corpus)) if index is None else index
        if self.head.per_word:
            rows = [places_and_tags(corpus, int(i))[1] for i in index]
        else:
            known = corpus.targets if corpus.labels is None else corpus.labels
            rows = [known[int(i)] for i in index]
        return self.head.array(rows, len(self.names))

    def targets(self, truth: np.ndarray) -> Tensor:
        """Return what the loss takes."""
        if self.label_names is None:
            return torch.from_numpy(self.decision.standardised(truth).astype(np.float32))
        return torch.from_numpy(truth).long()

    def places(self, corpus: EncodedCorpus) -> list[np.ndarray]:
        """Return where each text is answered: at the first tokens of its words, or once, as at one token."""
        n = len(corpus)
        return [places_and_tags(corpus, i)[0] for i in range(n)] if self.head.per_word else [np.zeros(1, np.int64)] * n

    def make_batch(self, corpus: EncodedCorpus, index: np.ndarray) -> Batch:
        """Make a batch; labels are `targets`, of words (B, S) the tags at the first token of each."""
        ids, real = corpus.ids.padded(index, self.tokenizer.pad_id)
        labels = torch.full(ids.shape, IGNORE_INDEX) if self.head.per_word else self.targets(self.truth(corpus, index))
        for row, i in enumerate(index if self.head.per_word else ()):
            places, tags = places_and_tags(corpus, int(i))
            labels[row, places[places >= 0]] = torch.from_numpy(tags[places >= 0])
        shared = torch.from_numpy(ids), padding_mask_of(real), labels, None, index, int(real.sum())
        return Batch(*shared, int((labels != IGNORE_INDEX).sum()), ngrams_of_batch(corpus, index))

    # --- model and loss -------------------------------------------------------------------------------------

    def build_single_model(self) -> nn.Module:
        c, t = self.config, self.tokenizer
        n_ngrams = len(t.ngrams) if t.ngrams else 0
        n_outputs = max(1, len(self.names))
        model: Any = self.head.model(c.model, t.vocab_size, n_outputs, c.text.max_len, n_ngrams, t.bigrams)
        return model.of_pairs(t.separator) if t.separator else model

    def forward_flops(self, length: float) -> float:
        return encoder_flops(self.config.model, length)

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch.ids, batch.padding_mask, batch.ngram_batch)

    def loss_sum(self, model: nn.Module, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        """Return the head's loss, summed over a batch."""
        return self.head.loss(self.logits(model, batch), batch.labels, label_smoothing)

    def initialise_output(self, model: nn.Module, corpus: EncodedCorpus) -> None:
        truth = self.truth(corpus)
        with torch.no_grad():
            for member in members_of(model):
                self.head.begin(cast(nn.Linear, member.head), truth)

    def start_head(self, model: nn.Module, corpus: EncodedCorpus) -> bool:
        """Set the head of each member to a linear model of the pooled vectors of the training texts."""
        if self.head.per_word:
            return False
        logger.info(f"fitting a probe to the vectors of {counted(len(corpus), 'training texts')}")
        truth = self.truth(corpus, np.concatenate(self.eval_batches(corpus)))
        truth = truth if self.label_names else self.decision.standardised(truth)
        for member in members_of(model):
            layer, vectors = cast(nn.Linear, member.head), list[Tensor]()
            handle = layer.register_forward_pre_hook(partial(_keep, vectors))
            self.all_logits(member, corpus)
            handle.remove()
            weight, bias = fit_layer(torch.cat(vectors).double().numpy(), truth)
            with torch.no_grad():
                layer.weight.copy_(torch.from_numpy(weight))
                layer.bias.copy_(torch.from_numpy(bias))
        return True

    # --- scores and answers ---------------------------------------------------------------------------------

    def all_logits(self, model: nn.Module, corpus: EncodedCorpus, group: ProcessGroup = SINGLE_PROCESS) -> Tensor:
        """Return the logits of all texts, (N, …), on the CPU and in their order; of words (W, C), text after text."""
        places = self.places(corpus)
        ends = np.cumsum([0, *map(len, places)])
        n_outputs, found = max(1, len(self.names)), None
        with evaluation_mode(model):
            for batch in self.batches(model, corpus, group):
                logits = self.logits(model, batch).float()
                logits = (logits[batch.labels != IGNORE_INDEX] if self.head.per_word else logits).cpu()
                found = torch.zeros(int(ends[-1]), *logits.shape[1:]) if found is None else found
                rows = [ends[i] + np.flatnonzero(places[i] >= 0) for i in batch.index]
                found[torch.from_numpy(np.concatenate(rows))] = logits
            if found is None:  # as where there are fewer batches than processes
                found = torch.zeros(int(ends[-1]), n_outputs, *([2] if self.head.several else []))
            found = group.all_reduce_tensor(found)  # of a word that is not read 0: its tag is the first, O
        return found

    def outputs(self, logits: Tensor, corpus: EncodedCorpus) -> Any:
        """Return what the texts are answered with; of words a list with an array for each text.

        Raises:
            DivergedError: one is no finite number, as where finite weights are too large to compute.
        """
        outputs = self.head.probabilities(logits.double(), self.decision)
        if not np.isfinite(outputs).all():
            message = "the model's logits are NaN or infinite, so it has no answer"
            raise DivergedError(message, "train again with a lower --lr")
        if not self.head.per_word:
            return outputs
        ends = np.cumsum([len(places) for places in self.places(corpus)])
        return np.split(outputs, ends)[: len(ends)]

    def validate(
        self, model: nn.Module, corpus: EncodedCorpus, split: Split, group: ProcessGroup = SINGLE_PROCESS
    ) -> dict[str, float]:
        logits, truth = self.all_logits(model, corpus, group), self.truth(corpus)
        targets = self.targets(np.concatenate(truth) if self.head.per_word else truth)
        unread = torch.from_numpy(np.concatenate(self.places(corpus)) < 0)
        targets[unread] = IGNORE_INDEX
        loss = self.head.loss(logits, targets, 0.0).item() / max(1, targets.numel() - int(unread.sum()))
        return {"loss": loss} | self.head.validated(truth, self.outputs(logits, corpus), self.names)

    def decided(self, model: nn.Module, corpus: EncodedCorpus) -> EncoderTask:
        """Return the task with what its head chooses on the validation texts: thresholds, a temperature."""
        if self.head.decided is None:
            return self
        task, outputs = copy.copy(self), self.outputs(self.all_logits(model, corpus), corpus)
        task.decision = replace(self.decision, **self.head.decided(self.truth(corpus), outputs))
        return task

    def evaluate(self, model: nn.Module, split: Split, decode: DecodeConfig, train: Split | None = None) -> JsonObject:
        corpus = self.encode(split, training=False)
        truth, outputs = self.truth(corpus), self.outputs(self.all_logits(model, corpus), corpus)
        n_cut = corpus.stats["n_truncated"]
        if message := cut_message(n_cut, len(split), self.config.text.max_len):
            logger.warning(message)
        scores = self.head.scored(truth, outputs, self.names, self.decision) | {"n_truncated": n_cut}
        if train is not None:
            logger.info(f"fitting the baselines to {counted(len(train), f'training {self.report.unit}')}")
            pairs = bool(self.tokenizer.separator)
            rows = self.head.rows(train.answers, self.label_names, train.source)
            known = Known(train.text, self.head.array(rows, len(self.names)), pairs), Known(split.text, truth, pairs)
            scores["baselines"] = self.head.baselines(*known, outputs, self.names, self.decision)
        texts = map(of_joined if self.head.per_word else self.tokenizer.text_fields, split.text)
        rows = [
            self.head.kept(self._answer(text, each)) | {"truth": self.head.true(answer)}
            for text, each, answer in zip(texts, outputs, split.answers, strict=True)
        ]
        # Texts can be long, and the data set has them: a number is enough to find one again.
        stored = [
            {"index": i} | {k: v for k, v in row.items() if k not in ("text", "pair")} for i, row in enumerate(rows)
        ]
        return scores | {"examples": rows[:8], "predictions": stored}

    def predict(self, model: nn.Module, texts: Sequence[str], decode: DecodeConfig, first: int = 0) -> list[JsonObject]:
        """Return the head's answer for each text.

        A text longer than `max_len` is cut, and has "truncated": True; "unknown" counts the tokens that the vocabulary
        lacks. Words are found in a text by `text/words.py`.
        """
        writer = CorpusWriter(self.tokenizer, self.config.text)
        marks = list(self._write(writer, Split(list(texts)), None, read_running))
        corpus = writer.corpus()
        outputs = self.outputs(self.all_logits(model, corpus), corpus)
        fields = map(read_running if self.head.per_word else self.tokenizer.text_fields, texts)
        answers = zip(fields, outputs, marks, strict=True)
        return [self._answer(given, each) | mark for given, each, mark in answers]

    def _answer(self, given: Any, outputs: Any) -> dict[str, Any]:
        return encoder_answer(self.head.kind, given, outputs, self.names, self.decision)


Classify, MultiLabel, Regress, Tag, Embed = (register(EncoderTask.of(head)) for head in HEADS)


def _keep(found: list[Tensor], module: nn.Module, given: tuple[Tensor, ...]) -> None:
    found.append(given[0].float().cpu())


def of_joined(text: str) -> ReadText:
    """Return a text of words that are joined by spaces already."""
    words = text.split(" ") if text else []
    read = ReadText(text, words, [], text)
    return read._replace(spans=[(start, start + len(word)) for start, word in zip(read.starts, words, strict=True)])


def places_and_tags(corpus: EncodedCorpus, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Return of a text the place of each word's first token, NO_TOKEN for none, and the word's tag."""
    both = np.asarray(corpus.targets[i], np.int64)
    return both[: len(both) // 2], both[len(both) // 2 :]
